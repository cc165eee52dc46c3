//! Health checks of the server for `semel doctor`. Never on the hot path.

use semel_core::Timestamp;
use semel_core::diagnosis::{Finding, Severity};
use semel_core::store::StoreResult;
use sqlx::Row as _;

use super::Inner;
use super::error::unexpected;
use super::health::is_durable;
use super::sql::NOW;

/// The share of expired rows from which on sweeping lags.
const MANY: f64 = 0.4;
/// Fewer expired rows than this are harmless.
const FEW: i64 = 1_000;
/// The default size limit of an answer, plus a margin.
const USUAL_ANSWER: i64 = 2 * 1024 * 1024;

impl Inner {
    pub(super) async fn diagnose(&self) -> StoreResult<Vec<Finding>> {
        let settings = format!(
            "SELECT CAST(@@GLOBAL.innodb_flush_log_at_trx_commit AS CHAR), CAST(@@GLOBAL.sync_binlog AS CHAR), \
             CAST(@@GLOBAL.log_bin + 0 AS CHAR), CAST(@@GLOBAL.read_only + 0 AS CHAR), \
             CAST(@@GLOBAL.max_connections AS CHAR), CAST(@@GLOBAL.max_allowed_packet AS CHAR), CAST({NOW} AS CHAR)"
        );
        let began = self.link.clock().now();
        let [
            flush,
            sync_binlog,
            log_bin,
            read_only,
            connections,
            packet,
            now,
        ] = self.texts(&settings).await?;
        let took = self.link.clock().now().since(began);
        let here = self.link.clock().wall();
        let server = Timestamp::from_micros(now.parse().map_err(|_| unexpected("no time"))?);
        let apart = here.since(server).max(server.since(here));
        let tables = "SELECT COALESCE(MAX(engine), ''), CAST(COUNT(*) AS CHAR), \
                      CAST((SELECT COUNT(DISTINCT index_name) FROM information_schema.statistics \
                      WHERE table_schema = DATABASE() AND table_name = 'semel_records' AND index_name <> 'PRIMARY') \
                      AS CHAR), CAST((SELECT COUNT(*) FROM information_schema.statistics \
                      WHERE table_schema = DATABASE() AND table_name = 'semel_records' AND index_name = 'PRIMARY' \
                      AND column_name = 'address') AS CHAR) \
                      FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'semel_records'";
        let tables = self.texts::<4>(tables).await?;
        let overdue = format!(
            "SELECT CAST(COUNT(*) AS CHAR), CAST(COALESCE(SUM(written_us + retention_ms * 1000 < {NOW} - 3600000000), \
             0) AS CHAR) FROM (SELECT written_us, retention_ms FROM semel_records LIMIT 10000) looked_at"
        );
        let overdue = self.texts::<2>(&overdue).await?.map(|text| number(&text));
        Ok(vec![
            Finding::good("version", self.server.clone()),
            persistence(&flush, &sync_binlog, &log_bin),
            writable(&read_only),
            self.connections(number(&connections)),
            packets(number(&packet)),
            table(&tables),
            sweeping(overdue),
            Finding::clock(apart, took),
        ])
    }

    async fn texts<const N: usize>(&self, question: &str) -> StoreResult<[String; N]> {
        let mut session = self.link.session(None).await?;
        let rows = session.script(question).await?;
        session.give_back();
        let row = rows.first().ok_or_else(|| unexpected("no row"))?;
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
        let fix =
            "a few processes of ours use the server up: ?max_connections=NUMBER in the store's URL";
        Finding::bad("connections", Severity::Warning, found, fix)
    }
}

fn persistence(flush: &str, sync_binlog: &str, log_bin: &str) -> Finding {
    let has_binlog = log_bin == "1";
    let found = if has_binlog {
        format!("innodb_flush_log_at_trx_commit {flush}, sync_binlog {sync_binlog}")
    } else {
        format!("innodb_flush_log_at_trx_commit {flush}, no binary log")
    };
    if !is_durable(flush) {
        let fix = "a crash forgets what was done, and retries then act again: set innodb_flush_log_at_trx_commit to 1";
        return Finding::bad("persistence", Severity::Broken, found, fix);
    }
    if has_binlog && sync_binlog != "1" {
        let fix = "when the machine loses power the binary log loses its end, and after that the server rolls back what \
                   is missing there, acknowledged or not: set sync_binlog to 1";
        return Finding::bad("persistence", Severity::Warning, found, fix);
    }
    Finding::good("persistence", found)
}

fn writable(read_only: &str) -> Finding {
    if read_only == "0" {
        return Finding::good("writable", "the server takes writes");
    }
    let fix = "nothing can be claimed: connect to the primary, or set read_only to 0";
    Finding::bad("writable", Severity::Broken, "read_only is on", fix)
}

fn packets(most: i64) -> Finding {
    let found = format!("statements of up to {} KiB", most / 1024);
    if most >= USUAL_ANSWER {
        return Finding::good("packets", found);
    }
    let fix = "answers of 1 MiB, which are kept by default, can't be settled: set max_allowed_packet to 16M";
    Finding::bad("packets", Severity::Warning, found, fix)
}

fn table([engine, tables, others, primary]: &[String; 4]) -> Finding {
    if number(tables) != 1 || number(primary) != 1 {
        let fix = "without its primary key the table lets a key be claimed twice: ALTER TABLE semel_records ADD PRIMARY \
                   KEY (address)";
        return Finding::bad(
            "table",
            Severity::Broken,
            "semel_records has no primary key",
            fix,
        );
    }
    if engine != "InnoDB" {
        let fix = "only InnoDB keeps what is written through a crash: ALTER TABLE semel_records ENGINE = InnoDB";
        let found = format!("semel_records is kept by {engine}");
        return Finding::bad("table", Severity::Broken, found, fix);
    }
    if number(others) > 0 {
        let found = format!("{others} indexes beside the primary key");
        let fix = "an index of your own on semel_records makes every settlement slower: drop it, and query a replica";
        return Finding::bad("table", Severity::Warning, found, fix);
    }
    Finding::good("table", "InnoDB, the primary key and no other index")
}

fn sweeping([looked_at, overdue]: [i64; 2]) -> Finding {
    let found = format!("{overdue} of {looked_at} records looked at expired more than an hour ago");
    if overdue < FEW || overdue as f64 / (looked_at.max(1) as f64) < MANY {
        return Finding::good("sweeping", found);
    }
    let fix = "they are treated as absent, but take room: keep a process running that sweeps, or run `semel gc`";
    Finding::bad("sweeping", Severity::Warning, found, fix)
}

fn number(text: &str) -> i64 {
    text.parse().unwrap_or(0)
}
