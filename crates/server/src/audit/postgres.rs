//! [`PostgresSink`]: a copy of the audit trail in a PostgreSQL table with daily partitions.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use semel_core::{BoxFuture, Clock, Tick};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgSslMode};
use sqlx::{AssertSqlSafe, PgConnection};

use super::entry::{ERASED, Entry, OPERATOR_KINDS};
use super::sink::{AuditHistory, Sink};
use crate::config::is_at_loopback;

/// Serializes the sessions that create and drop partitions.
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

/// Entries of operators keep their actor.
const ERASE: &str = "update semel_audit
    set actor = $2, entry = jsonb_set(entry, '{actor}', to_jsonb($2::text)) #- '{chain,salt}'
    where actor = $1 and kind not like 'admin.%' and kind <> all($3)";

const HISTORY: &str = "select entry::text from semel_audit where key_hash = $1 order by at desc, \
    event_id desc limit $2";

/// The partitions after their retention. Their names end with the day, so names sort by day.
const EXPIRED_PARTITIONS: &str = "select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'semel_audit'::regclass
      and c.relname < 'semel_audit_' || to_char((now() - $1 * interval '1 second') at time zone 'UTC', 'YYYYMMDD')";

/// The interval between searches for expired partitions.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// A copy of the trail in PostgreSQL. It connects and creates its table at the first write.
pub struct PostgresSink {
    pool: PgPool,
    clock: Arc<dyn Clock>,
    retention: Duration,
    partitions: Mutex<PartitionState>,
}

#[derive(Default)]
struct PartitionState {
    existing_days: BTreeSet<String>,
    last_sweep: Option<Tick>,
}

impl PostgresSink {
    /// A copy in the database at `url`. Entries are kept for `retention` and up to a day longer.
    ///
    /// # Errors
    /// If `url` is invalid.
    pub fn new(url: &str, retention: Duration, clock: Arc<dyn Clock>) -> Result<Self, sqlx::Error> {
        let mut options: PgConnectOptions = url.parse()?;
        // As for the store: the certificate of a remote server is verified, unless the URL sets
        // `sslmode`.
        let is_explicit = url.contains("sslmode=") || std::env::var_os("PGSSLMODE").is_some();
        if !is_explicit && options.get_socket().is_none() && !is_at_loopback(url) {
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
            partitions: Mutex::default(),
        })
    }

    async fn insert(&self, batch: &[Entry]) -> Result<(), sqlx::Error> {
        let mut transaction = self.pool.begin().await?;
        let days: BTreeSet<String> = batch
            .iter()
            .filter_map(|entry| day_of(&entry.time))
            .collect();
        let fresh: Vec<String> = {
            let partitions = self.partitions.lock();
            days.difference(&partitions.existing_days)
                .cloned()
                .collect()
        };
        if !fresh.is_empty() {
            create_partitions(&mut transaction, &fresh).await?;
        }
        let texts = |of: fn(&Entry) -> &str| -> Vec<String> {
            batch.iter().map(|entry| of(entry).to_owned()).collect()
        };
        let options = |of: fn(&Entry) -> &Option<String>| -> Vec<Option<String>> {
            batch.iter().map(|entry| of(entry).clone()).collect()
        };
        // Strings and JSON values can always be written as JSON.
        let entries: Vec<String> = batch
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
        self.partitions.lock().existing_days.extend(fresh);
        Ok(())
    }

    /// Drops expired partitions, at most once per interval.
    async fn sweep(&self) -> Result<(), sqlx::Error> {
        let now = self.clock.now();
        let is_due = self
            .partitions
            .lock()
            .last_sweep
            .is_none_or(|at| now.since(at) >= SWEEP_INTERVAL);
        if !is_due {
            return Ok(());
        }
        let mut transaction = self.pool.begin().await?;
        sqlx::query(LOCK).execute(&mut *transaction).await?;
        let seconds = self.retention.as_secs_f64();
        let expired: Vec<String> = sqlx::query_scalar(EXPIRED_PARTITIONS)
            .bind(seconds)
            .fetch_all(&mut *transaction)
            .await?;
        for name in &expired {
            // The name comes from the catalogue.
            let drop = format!("drop table if exists \"{}\"", name.replace('"', "\"\""));
            sqlx::query(AssertSqlSafe(drop))
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await?;
        let mut partitions = self.partitions.lock();
        partitions.last_sweep = Some(now);
        if !expired.is_empty() {
            // Late entries of a dropped day need their partition again.
            partitions.existing_days.clear();
        }
        Ok(())
    }
}

/// The day of an entry's time, such as `20261115`.
fn day_of(time: &str) -> Option<String> {
    let day: String = time.get(..10)?.split('-').collect();
    (day.len() == 8 && day.bytes().all(|byte| byte.is_ascii_digit())).then_some(day)
}

/// Creates the table and a partition for each day.
async fn create_partitions(
    connection: &mut PgConnection,
    days: &[String],
) -> Result<(), sqlx::Error> {
    sqlx::query(LOCK).execute(&mut *connection).await?;
    sqlx::query(TABLE).execute(&mut *connection).await?;
    sqlx::query(INDEX).execute(&mut *connection).await?;
    for day in days {
        // `day_of` ensures that the day has digits only.
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

    fn write<'a>(&'a self, batch: &'a [Entry]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let written = self.insert(batch).await;
            if written.is_err() {
                // Somebody may have dropped the table, so create it again next time.
                self.partitions.lock().existing_days.clear();
            }
            written.map_err(io::Error::other)?;
            self.sweep().await.map_err(io::Error::other)
        })
    }

    fn erase<'a>(&'a self, actor: &'a str) -> BoxFuture<'a, io::Result<u64>> {
        Box::pin(async move {
            let table: Option<String> =
                sqlx::query_scalar("select to_regclass('semel_audit')::text")
                    .fetch_one(&self.pool)
                    .await
                    .map_err(io::Error::other)?;
            if table.is_none() {
                return Ok(0);
            }
            let erased = sqlx::query(ERASE)
                .bind(actor)
                .bind(ERASED)
                .bind(OPERATOR_KINDS.map(str::to_owned).to_vec())
                .execute(&self.pool)
                .await;
            Ok(erased.map_err(io::Error::other)?.rows_affected())
        })
    }

    fn history<'a>(&'a self, id: &'a str, most: usize) -> BoxFuture<'a, io::Result<AuditHistory>> {
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
            Ok(AuditHistory { entries, complete })
        })
    }
}
