//! `semel migrate`: creates or updates the tables of a store.

use clap::Args;
use semel::StoreScheme;
use semel::core::{StoreError, StoreResult};
use semel_server::config::without_password;
use semel_stores::mysql::{self, MySqlStore};
use semel_stores::postgres::{self, PostgresStore};
use semel_stores::sqlite::{self, SqliteStore};
use serde_json::json;

use crate::exit::{self, Exit};
use crate::out;
use crate::progress::Progress;
use crate::runtime;

/// Creates or updates the tables of a store, and lists the changes.
///
/// For deployments in which the sidecar may not create tables (migrate=off in the store's URL).
/// Redis and Valkey have no tables.
#[derive(Args)]
#[command(after_help = "\
Example:
  semel migrate --dry-run --store postgres://owner@127.0.0.1/app")]
pub(crate) struct Migrate {
    /// The store: postgres://…, mysql://…, sqlite://…; migrate=off in the URL is ignored here.
    #[arg(long, value_name = "URL", env = "SEMEL_STORE_URL")]
    store: String,
    /// Include the tables for jobs (jobs.enabled); PostgreSQL only.
    #[arg(long)]
    jobs: bool,
    /// Only print what would be done.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

const fn has_tables(scheme: StoreScheme) -> bool {
    match scheme {
        StoreScheme::MySql | StoreScheme::Postgres | StoreScheme::Sqlite => true,
        StoreScheme::Memory | StoreScheme::Object | StoreScheme::Redis => false,
    }
}

impl Migrate {
    pub(crate) fn run(self) -> Exit {
        runtime::block_on(async move { self.migrate().await }).into()
    }

    async fn migrate(&self) -> Result<(), Exit> {
        // What isn't a URL is not repeated: it may be a password.
        if !self.store.contains("://") {
            return Err(refused("the store is given by a URL, with ://"));
        }
        let scheme = StoreScheme::of_url(&self.store);
        if self.jobs && matches!(scheme, Some(StoreScheme::MySql | StoreScheme::Sqlite)) {
            let message = "jobs require PostgreSQL or a bucket\n    fix: leave out --jobs";
            return Err(Exit::failed(exit::CONFIG, message));
        }
        let steps = match scheme {
            Some(scheme) if has_tables(scheme) => self.tables(scheme).await?,
            Some(_) => Vec::new(),
            None => return Err(refused("unknown scheme of the store's URL")),
        };
        if self.json {
            out::json(&json!({"steps": steps, "applied": !self.dry_run}));
            return Ok(());
        }
        match (steps.as_slice(), self.dry_run) {
            ([], _) if scheme.is_some_and(has_tables) => out::say("the tables are up to date"),
            ([], _) => {
                let base = self.store.split([':', '+']).next().unwrap_or_default();
                out::say(format_args!("{base} has no tables; nothing to do"));
            }
            (steps, true) => out::say(format_args!("to be applied: {}", steps.join(", "))),
            (steps, false) => out::say(format_args!("applied: {}", steps.join(", "))),
        }
        Ok(())
    }

    async fn tables(&self, scheme: StoreScheme) -> Result<Vec<&'static str>, Exit> {
        let url = with_tables(&self.store);
        let steps = self
            .pending(scheme, &url)
            .await
            .map_err(|error| self.failed(&error))?;
        if self.dry_run || steps.is_empty() {
            return Ok(steps);
        }
        let _progress = Progress::counting("making tables", "");
        self.create_tables(scheme, &url)
            .await
            .map_err(|error| self.failed(&error))?;
        Ok(steps)
    }

    async fn pending(&self, scheme: StoreScheme, url: &str) -> StoreResult<Vec<&'static str>> {
        let clock = semel::tokio_env().clock;
        match scheme {
            StoreScheme::MySql => mysql::pending(url, clock).await,
            StoreScheme::Sqlite => sqlite::pending(url).await,
            _ => {
                let jobs = if self.jobs {
                    semel_jobs::postgres::MIGRATIONS
                } else {
                    &[]
                };
                let files = [postgres::MIGRATIONS, jobs].concat();
                postgres::pending(url, &files, clock).await
            }
        }
    }

    /// Safe to run concurrently, and to repeat after a crash.
    async fn create_tables(&self, scheme: StoreScheme, url: &str) -> StoreResult<()> {
        let clock = semel::tokio_env().clock;
        match scheme {
            StoreScheme::MySql => MySqlStore::open(url, clock).await.map(drop),
            StoreScheme::Sqlite => SqliteStore::open(url, clock).await.map(drop),
            _ => {
                let store = PostgresStore::open(url, clock).await?;
                if self.jobs {
                    store.prepare(semel_jobs::postgres::MIGRATIONS).await?;
                }
                Ok(())
            }
        }
    }

    fn failed(&self, error: &StoreError) -> Exit {
        use std::error::Error as _;
        let cause = error
            .source()
            .map_or(String::new(), |cause| format!(": {cause}"));
        let message = format!(
            "the store {} can't be used: {error}{cause}\n    fix: start it, and let this user \
             create tables",
            without_password(&self.store)
        );
        Exit::failed(exit::STORE, message)
    }
}

/// The store can't be one, and which can.
fn refused(why: &str) -> Exit {
    let message = format!(
        "{why}\n    fix: --store postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE or \
         sqlite:///PATH"
    );
    Exit::failed(exit::CONFIG, message)
}

/// The URL without `migrate=off`.
fn with_tables(url: &str) -> String {
    let Some((base, query)) = url.split_once('?') else {
        return url.to_owned();
    };
    let kept: Vec<&str> = query
        .split('&')
        .filter(|option| !option.starts_with("migrate="))
        .collect();
    format!("{base}?{}", kept.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_migrate_parameter_is_removed() {
        let url = "postgres://u@h/d?sslmode=disable&migrate=off&max_connections=2";
        assert_eq!(
            with_tables(url),
            "postgres://u@h/d?sslmode=disable&max_connections=2"
        );
        assert_eq!(with_tables("postgres://u@h/d"), "postgres://u@h/d");
    }
}
