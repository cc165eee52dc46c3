//! Health checks of the server for `semel doctor`. Never on the hot path.

use semel_core::Timestamp;
use semel_core::diagnosis::{Finding, Severity};
use semel_core::store::StoreResult;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::BEGIN;
use super::Inner;
use super::error::unexpected;

/// The share of dead rows from which on vacuuming lags.
const BLOATED: f64 = 0.4;
/// Fewer dead rows than this are harmless.
const FEW: i64 = 10_000;
/// From this share of updates that left their page on, an index or a full page is in the way.
const COLD: f64 = 0.3;

const SETTINGS: &str = "SELECT current_setting('fsync'), current_setting('synchronous_commit'), \
     current_setting('synchronous_standby_names'), current_setting('autovacuum'), \
     current_setting('max_connections'), (SELECT count(*) FROM pg_stat_replication)::text, \
     semel.now_us()::text";

const TABLES: &str = "SELECT coalesce(sum(n_live_tup), 0)::bigint::text, coalesce(sum(n_dead_tup), 0)::bigint::text, \
     coalesce(sum(n_tup_upd), 0)::bigint::text, coalesce(sum(n_tup_hot_upd), 0)::bigint::text \
     FROM pg_stat_user_tables WHERE schemaname = 'semel' AND relname LIKE 'records\\_%'";

const INDEXES: &str = "SELECT count(*) FILTER (WHERE i.indisprimary AND i.indisvalid)::text, \
     count(*) FILTER (WHERE NOT i.indisprimary)::text, count(DISTINCT c.oid)::text \
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     LEFT JOIN pg_index i ON i.indrelid = c.oid \
     WHERE n.nspname = 'semel' AND c.relname LIKE 'records\\_%' AND c.relkind = 'r'";

/// Looked for in a sample, so that the question stays cheap on a large table.
const OVERDUE: &str = "SELECT count(*)::text, count(*) FILTER \
     (WHERE written_us + retention_ms * 1000 < semel.now_us() - 3600000000)::text \
     FROM (SELECT written_us, retention_ms FROM semel.records LIMIT 10000) AS sample";

impl Inner {
    pub(super) async fn diagnose(&self) -> StoreResult<Vec<Finding>> {
        let began = self.link.clock().now();
        let settings = self.texts::<7>(SETTINGS).await?;
        let took = self.link.clock().now().since(began);
        let here = self.link.clock().wall();
        let [
            fsync,
            commit,
            standbys,
            autovacuum,
            connections,
            replicas,
            now,
        ] = settings;
        let server = Timestamp::from_micros(now.parse().map_err(|_| unexpected("no time"))?);
        let apart = here.since(server).max(server.since(here));
        let tables = self.texts::<4>(TABLES).await?.map(|text| number(&text));
        let indexes = self.texts::<3>(INDEXES).await?.map(|text| number(&text));
        let overdue = self.texts::<2>(OVERDUE).await?.map(|text| number(&text));
        Ok(vec![
            Finding::good("version", self.server.clone()),
            persistence(&fsync, &commit),
            replication(number(&replicas), &standbys),
            self.connections(number(&connections)),
            bloat(tables, &autovacuum),
            updates(tables, indexes),
            sweeping(overdue),
            Finding::clock(apart, took),
        ])
    }

    async fn texts<const N: usize>(&self, question: &str) -> StoreResult<[String; N]> {
        let mut session = self.link.session(BEGIN).await?;
        let rows = session.script(question).await?;
        session.commit().await?;
        let row: &PgRow = rows.first().ok_or_else(|| unexpected("no row"))?;
        Ok(std::array::from_fn(|index| {
            row.try_get(index).unwrap_or_default()
        }))
    }

    fn connections(&self, most: i64) -> Finding {
        let ours = i64::from(self.link.most_connections());
        let found = format!("this process takes up to {ours} of the server's {most}");
        // A few processes like this one have to fit.
        if ours.saturating_mul(4) <= most {
            return Finding::good("connections", found);
        }
        let fix = "a few processes of ours use the server up: ?max_connections=NUMBER in the store's URL, or a pooler \
                   with ?pooler=transaction";
        Finding::bad("connections", Severity::Warning, found, fix)
    }
}

fn persistence(fsync: &str, commit: &str) -> Finding {
    let found = format!("fsync {fsync}, synchronous_commit {commit}");
    if fsync == "off" || commit == "off" {
        let fix = "a crash forgets what was done, and retries then act again: set both to on";
        return Finding::bad("persistence", Severity::Broken, found, fix);
    }
    Finding::good("persistence", found)
}

fn replication(replicas: i64, standbys: &str) -> Finding {
    let count = match replicas {
        0 => "no replica".to_owned(),
        1 => "1 replica".to_owned(),
        many => format!("{many} replicas"),
    };
    match (replicas, standbys.is_empty()) {
        (0, true) => {
            let fix = "nothing takes over when the server is lost: a synchronous replica";
            Finding::bad("replication", Severity::Note, count, fix)
        }
        (_, true) => {
            let fix = "a failover forgets what had not reached the replica, and retries then act again: set \
                       synchronous_standby_names";
            let found = format!("{count}, not waited for");
            Finding::bad("replication", Severity::Warning, found, fix)
        }
        (0, false) => {
            let fix = "every commit waits for a replica that isn't there: look after it";
            Finding::bad("replication", Severity::Broken, count, fix)
        }
        _ => Finding::good("replication", format!("{count}, waited for")),
    }
}

fn bloat([live, dead, ..]: [i64; 4], autovacuum: &str) -> Finding {
    let found = format!("{live} live rows, {dead} dead");
    if autovacuum != "on" {
        let fix = "dead rows are never removed, and claims get slower: autovacuum = on";
        return Finding::bad("bloat", Severity::Broken, found, fix);
    }
    if dead < FEW || share(dead, live + dead) < BLOATED {
        return Finding::good("bloat", found);
    }
    let fix = "vacuuming lags behind: ALTER TABLE … SET (autovacuum_vacuum_scale_factor = 0.02) on the partitions of \
               semel.records, and look for transactions that stay open";
    Finding::bad("bloat", Severity::Warning, found, fix)
}

fn updates([_, _, updates, hot]: [i64; 4], [primary, other, tables]: [i64; 3]) -> Finding {
    if primary < tables {
        let fix = "without its primary key a table lets a key be claimed twice: REINDEX, or create it anew";
        let found = format!("{primary} of {tables} partitions have a valid primary key");
        return Finding::bad("indexes", Severity::Broken, found, fix);
    }
    let cold = updates - hot;
    let found = format!(
        "{other} indexes beside the primary keys; {cold} of {updates} updates left their page"
    );
    if other > 0 {
        let fix = "an index of your own on semel.records makes every settlement write all indexes: drop it, and query \
                   semel.readable or a replica";
        return Finding::bad("indexes", Severity::Warning, found, fix);
    }
    if updates > FEW && share(cold, updates) > COLD {
        let fix = "settlements don't stay within their page: fillfactor of the partitions of semel.records to 90, then \
                   VACUUM FULL when it suits";
        return Finding::bad("indexes", Severity::Warning, found, fix);
    }
    Finding::good("indexes", "the primary keys, and no other")
}

fn sweeping([looked_at, overdue]: [i64; 2]) -> Finding {
    let found = format!("{overdue} of {looked_at} records looked at expired more than an hour ago");
    if overdue < FEW / 10 || share(overdue, looked_at) < BLOATED {
        return Finding::good("sweeping", found);
    }
    let fix = "they are treated as absent, but take room: keep a process running that sweeps, or run `semel gc`";
    Finding::bad("sweeping", Severity::Warning, found, fix)
}

fn number(text: &str) -> i64 {
    text.parse().unwrap_or(0)
}

fn share(part: i64, whole: i64) -> f64 {
    part as f64 / whole.max(1) as f64
}
