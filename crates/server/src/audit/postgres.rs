//! [`PostgresSink`]: a copy of the audit trail in a table, one partition a day.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use semel_core::{BoxFuture, Clock, Tick};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgSslMode};
use sqlx::{AssertSqlSafe, PgConnection};

use super::entry::{ERASED, Entry, OPERATORS};
use super::sink::{History, Sink};
use crate::config::is_at_loopback;

/// Only one session at a time makes and drops tables of the trail.
const LOCK: &str = "select pg_advisory_xact_lock(7305094513)";

const TABLE: &str = "create table if not exists semel_audit (
    event_id text not null, at timestamptz not null, kind text not null,
    environment text not null, tenant text not null, scope text not null,
    key_hash text, actor text, entry jsonb not null,
    primary key (event_id, at)
) partition by range (at)";

const INDEX: &str = "create index if not exists semel_audit_key on semel_audit (key_hash, at)";

const INSERT: &str = "insert into semel_audit
    select id, at::timestamptz, kind, environment, tenant, scope, key_hash, actor, entry::jsonb
    from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[])
        as e(id, at, kind, environment, tenant, scope, key_hash, actor, entry)
    on conflict do nothing";

/// What an operator did keeps its actor.
const ERASE: &str = "update semel_audit
    set actor = $2, entry = jsonb_set(entry, '{actor}', to_jsonb($2::text)) #- '{chain,salt}'
    where actor = $1 and kind not like 'admin.%' and kind <> all($3)";

const HISTORY: &str = "select entry::text from semel_audit where key_hash = $1 order by at desc, event_id desc limit $2";

/// Partitions whose last entry is past the retention: named by their day, so that names compare as days do.
const PAST: &str = "select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'semel_audit'::regclass
      and c.relname < 'semel_audit_' || to_char((now() - $1 * interval '1 second') at time zone 'UTC', 'YYYYMMDD')";

/// How often partitions past the retention are looked for.
const SWEEP: Duration = Duration::from_secs(60 * 60);

/// A copy of the trail in PostgreSQL. Connects when it is first written to, and makes its table then.
pub struct PostgresSink {
    pool: PgPool,
    clock: Arc<dyn Clock>,
    retention: Duration,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    days: BTreeSet<String>,
    swept: Option<Tick>,
}

impl PostgresSink {
    /// A copy in the database at `url`, of entries no older than `retention` and a day.
    ///
    /// # Errors
    /// Where `url` is none.
    pub fn new(url: &str, retention: Duration, clock: Arc<dyn Clock>) -> Result<Self, sqlx::Error> {
        let mut options: PgConnectOptions = url.parse()?;
        // As for the store: a server elsewhere shows who it is, unless said otherwise.
        let is_said = url.contains("sslmode=") || std::env::var_os("PGSSLMODE").is_some();
        if !is_said && options.get_socket().is_none() && !is_at_loopback(url) {
            options = options.ssl_mode(PgSslMode::VerifyFull);
        }
        let pool = PgPoolOptions::new()
            .max_connections(2)
            .acquire_timeout(Duration::from_secs(5))
            .connect_lazy_with(options.application_name("semel-audit"));
        Ok(Self {
            pool,
            clock,
            retention,
            known: Mutex::default(),
        })
    }

    async fn insert(&self, lot: &[Entry]) -> Result<(), sqlx::Error> {
        let mut transaction = self.pool.begin().await?;
        let days: BTreeSet<String> = lot.iter().filter_map(|entry| day_of(&entry.time)).collect();
        let fresh: Vec<String> = {
            let known = self.known.lock();
            days.difference(&known.days).cloned().collect()
        };
        if !fresh.is_empty() {
            prepare(&mut transaction, &fresh).await?;
        }
        let texts = |of: fn(&Entry) -> &str| -> Vec<String> {
            lot.iter().map(|entry| of(entry).to_owned()).collect()
        };
        let options = |of: fn(&Entry) -> &Option<String>| -> Vec<Option<String>> {
            lot.iter().map(|entry| of(entry).clone()).collect()
        };
        // An entry is made of strings and JSON values, which can always be written as JSON.
        let entries: Vec<String> = lot
            .iter()
            .map(|entry| serde_json::to_string(entry).unwrap_or_default())
            .collect();
        sqlx::query(INSERT)
            .bind(texts(|entry| &entry.event_id))
            .bind(texts(|entry| &entry.time))
            .bind(texts(|entry| &entry.kind))
            .bind(texts(|entry| &entry.environment))
            .bind(texts(|entry| &entry.tenant))
            .bind(texts(|entry| &entry.scope))
            .bind(options(|entry| &entry.id))
            .bind(options(|entry| &entry.actor))
            .bind(entries)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        self.known.lock().days.extend(fresh);
        Ok(())
    }

    /// Drops what is past the retention, now and then.
    async fn sweep(&self) -> Result<(), sqlx::Error> {
        let now = self.clock.now();
        let is_due = self
            .known
            .lock()
            .swept
            .is_none_or(|at| now.since(at) >= SWEEP);
        if !is_due {
            return Ok(());
        }
        let mut transaction = self.pool.begin().await?;
        sqlx::query(LOCK).execute(&mut *transaction).await?;
        let seconds = self.retention.as_secs_f64();
        let past: Vec<String> = sqlx::query_scalar(PAST)
            .bind(seconds)
            .fetch_all(&mut *transaction)
            .await?;
        for name in &past {
            // A name that the catalogue gave, of the form that we made.
            let drop = format!("drop table if exists \"{}\"", name.replace('"', "\"\""));
            sqlx::query(AssertSqlSafe(drop))
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await?;
        let mut known = self.known.lock();
        known.swept = Some(now);
        if !past.is_empty() {
            // Late entries of such a day need their partition again.
            known.days.clear();
        }
        Ok(())
    }
}

/// `20261115`, of a time as entries have it.
fn day_of(time: &str) -> Option<String> {
    let day: String = time.get(..10)?.split('-').collect();
    (day.len() == 8 && day.bytes().all(|byte| byte.is_ascii_digit())).then_some(day)
}

/// The table, and a partition for each of these days.
async fn prepare(connection: &mut PgConnection, days: &[String]) -> Result<(), sqlx::Error> {
    sqlx::query(LOCK).execute(&mut *connection).await?;
    sqlx::query(TABLE).execute(&mut *connection).await?;
    sqlx::query(INDEX).execute(&mut *connection).await?;
    for day in days {
        // Digits, as `day_of` has checked.
        let partition = format!(
            "create table if not exists semel_audit_{day} partition of semel_audit
             for values from ('{day} 00:00:00+00'::timestamptz) to ('{day} 00:00:00+00'::timestamptz + interval '24 hours')"
        );
        sqlx::query(AssertSqlSafe(partition))
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

impl Sink for PostgresSink {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn write<'a>(&'a self, lot: &'a [Entry]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let written = self.insert(lot).await;
            if written.is_err() {
                // The table may have been dropped by somebody: make sure of it next time.
                self.known.lock().days.clear();
            }
            written.map_err(io::Error::other)?;
            self.sweep().await.map_err(io::Error::other)
        })
    }

    fn erase<'a>(&'a self, actor: &'a str) -> BoxFuture<'a, io::Result<u64>> {
        Box::pin(async move {
            let is_there: Option<String> =
                sqlx::query_scalar("select to_regclass('semel_audit')::text")
                    .fetch_one(&self.pool)
                    .await
                    .map_err(io::Error::other)?;
            if is_there.is_none() {
                return Ok(0);
            }
            let erased = sqlx::query(ERASE)
                .bind(actor)
                .bind(ERASED)
                .bind(OPERATORS.map(str::to_owned).to_vec())
                .execute(&self.pool)
                .await;
            Ok(erased.map_err(io::Error::other)?.rows_affected())
        })
    }

    fn history<'a>(&'a self, id: &'a str, most: usize) -> BoxFuture<'a, io::Result<History>> {
        Box::pin(async move {
            let limit = i64::try_from(most).unwrap_or(i64::MAX);
            let lines: Vec<String> = sqlx::query_scalar(HISTORY)
                .bind(id)
                .bind(limit)
                .fetch_all(&self.pool)
                .await
                .map_err(io::Error::other)?;
            let read = |line: &String| serde_json::from_str(line).ok();
            let entries: Vec<Entry> = lines.iter().rev().filter_map(read).collect();
            let complete = entries.len() < most;
            Ok(History { entries, complete })
        })
    }
}
