//! Finds a record by its ID, by a prefix of its ID, or by its key.

use clap::Args;
use serde_json::{Map, Value};

use super::list::Filter;
use crate::client::view::Record;
use crate::client::{ApiPath, Client, typed};
use crate::exit::{self, Exit};
use crate::progress::Progress;

/// The number of records that are searched for a prefix.
const LOOK_AT_MOST: u64 = 200_000;
/// The minimum length of a prefix.
const AT_LEAST: usize = 8;
const WHOLE: usize = 64;

/// The record to work on.
#[derive(Args, Clone, Debug)]
pub(crate) struct RecordSelector {
    /// The ID of the record, or its first 8 or more characters.
    #[arg(
        value_name = "ID",
        required_unless_present = "key",
        conflicts_with = "key"
    )]
    id: Option<String>,
    /// The caller's key, with the scope that it was used in.
    #[arg(long, value_name = "KEY", requires = "scope")]
    key: Option<String>,
    /// The scope of the key.
    #[arg(long, value_name = "NAME")]
    scope: Option<String>,
    /// The tenant of the key.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// The authenticated caller of the key, if the route separates callers.
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,
}

impl RecordSelector {
    /// Finds the record through the API.
    pub(crate) async fn find(&self, client: &Client, with_answer: bool) -> Result<Value, Exit> {
        let id = match (&self.id, &self.key) {
            (Some(id), _) => self.whole(client, &id.to_ascii_lowercase()).await?,
            (None, Some(key)) => {
                let found = self.by_key(client, key).await?;
                if !with_answer {
                    return Ok(found);
                }
                typed::<Record>(found)?.id
            }
            (None, None) => return Err(Exit::failed(exit::UNEXPECTED, "no record is given")),
        };
        let path = ApiPath::new(format!("/admin/v1/records/{id}"));
        client
            .get(&path.with("answer", with_answer.then_some("true")))
            .await
    }

    async fn by_key(&self, client: &Client, key: &str) -> Result<Value, Exit> {
        let mut asked = Map::new();
        let parts = [
            ("key", Some(key)),
            ("environment", client.environment.as_deref()),
            ("scope", self.scope.as_deref()),
            ("tenant", self.tenant.as_deref()),
            ("principal", self.principal.as_deref()),
        ];
        for (name, value) in parts {
            if let Some(value) = value {
                asked.insert(name.to_owned(), value.into());
            }
        }
        client.post("/admin/v1/lookups", Value::Object(asked)).await
    }

    async fn whole(&self, client: &Client, id: &str) -> Result<String, Exit> {
        let is_hex = id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_hex || !(AT_LEAST..=WHOLE).contains(&id.len()) {
            let message = "an ID has 64 hexadecimal digits; its first 8 or more are enough\n    \
                           fix: `semel keys list` shows IDs; or give the key with --key KEY \
                           --scope SCOPE";
            return Err(Exit::failed(exit::REFUSED, message));
        }
        if id.len() == WHOLE {
            return Ok(id.to_owned());
        }
        let found = self.beginning(client, id).await?;
        match found.as_slice() {
            [one] => Ok(one.clone()),
            [] => Err(Exit::failed(
                exit::NOT_FOUND,
                format!("there is no record with an ID that begins with {id}, or it has expired"),
            )),
            [first, second, ..] => {
                let message = format!("more than one ID begins with {id}: {first}, {second}");
                Err(Exit::failed(exit::REFUSED, message))
            }
        }
    }

    /// Up to two IDs with this prefix.
    async fn beginning(&self, client: &Client, id: &str) -> Result<Vec<String>, Exit> {
        let filter = Filter {
            tenant: self.tenant.as_deref(),
            scope: self.scope.as_deref(),
            ..Filter::default()
        };
        let progress = Progress::counting("searching", "looked at");
        let (mut found, mut looked_at) = (Vec::<String>::new(), 0);
        let mut cursor: Option<String> = None;
        loop {
            let page = filter.page(client, cursor.as_deref(), 1000).await?;
            looked_at += page.records.len() as u64;
            progress.to(looked_at);
            for record in &page.records {
                let other = record["id"].as_str().unwrap_or_default();
                if other.starts_with(id) && !found.iter().any(|known| known == other) {
                    found.push(other.to_owned());
                }
            }
            cursor = page.next;
            if cursor.is_none() || found.len() > 1 {
                return Ok(found);
            }
            if looked_at >= LOOK_AT_MOST {
                let message = format!(
                    "{looked_at} records were searched, and there are more\n    fix: give the \
                     full ID; `semel keys list --full-ids` shows it"
                );
                return Err(Exit::failed(exit::REFUSED, message));
            }
        }
    }
}
