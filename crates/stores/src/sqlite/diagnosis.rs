//! Health checks of the file for `semel doctor`. Never on the hot path.

use semel_core::Timestamp;
use semel_core::diagnosis::{Finding, Severity};
use semel_core::store::StoreResult;

use super::Inner;
use super::change::signed;

/// From this size on, something keeps the write-ahead log from being brought into the file.
const LARGE_LOG: u64 = 64 * 1024 * 1024;
/// A file larger than this is not read through.
const CHECK_AT_MOST: u64 = 256 * 1024 * 1024;
/// So many expired records that nobody swept are nobody's trouble.
const FEW: usize = 10_000;
/// Fences are times: how far one may be ahead of the clock before that tells something.
const AHEAD: i64 = 60_000_000;

impl Inner {
    pub(super) async fn diagnose(&self) -> StoreResult<Vec<Finding>> {
        let version = self.reader.text("SELECT sqlite_version()").await?;
        let journal = self.reader.text("PRAGMA journal_mode").await?;
        let synchronous = self
            .reader
            .number("SELECT synchronous * ? FROM pragma_synchronous", 1)
            .await?;
        let newest = "SELECT max((SELECT floor FROM fences), coalesce((SELECT max(fence) FROM \
                      (SELECT fence FROM records ORDER BY rowid DESC LIMIT 1000)), ?))";
        let newest = self.reader.number(newest, 0).await?;
        Ok(vec![
            Finding::good("version", format!("SQLite {version}")),
            persistence(&journal, synchronous),
            self.permissions()?,
            self.integrity().await?,
            self.log(),
            self.sweeping().await?,
            clock(newest, self.clock.wall()),
        ])
    }

    fn permissions(&self) -> StoreResult<Finding> {
        let (is_open, mode) = self.place.permissions()?;
        let found = format!("the file has {mode}");
        if is_open {
            let fix = "other users of this host may read answers, or change them: chmod 600 on the file and on its \
                       -wal and -shm";
            return Ok(Finding::bad("permissions", Severity::Warning, found, fix));
        }
        Ok(Finding::good("permissions", found))
    }

    async fn integrity(&self) -> StoreResult<Finding> {
        let bytes = std::fs::metadata(self.place.path()).map_or(0, |found| found.len());
        if bytes > CHECK_AT_MOST {
            let found = format!("{} MiB, too much to read through here", bytes >> 20);
            let fix = "when it suits, and on a copy if there is load: PRAGMA quick_check";
            return Ok(Finding::bad("integrity", Severity::Note, found, fix));
        }
        if self.reader.text("PRAGMA quick_check(1)").await? == "ok" {
            return Ok(Finding::good("integrity", "no damage found"));
        }
        let fix = "restore the file from a backup; a damaged index lets a key be claimed twice";
        Ok(Finding::bad(
            "integrity",
            Severity::Broken,
            "the file is damaged",
            fix,
        ))
    }

    fn log(&self) -> Finding {
        let mut path = self.place.path().as_os_str().to_owned();
        path.push("-wal");
        let bytes = std::fs::metadata(path).map_or(0, |found| found.len());
        let found = format!("{} KiB in the write-ahead log", bytes / 1024);
        if bytes < LARGE_LOG {
            return Finding::good("log", found);
        }
        let fix = "a reader that stays open keeps it from being brought into the file, and reads get slower: look for a \
                   shell or a backup that has a transaction open";
        Finding::bad("log", Severity::Warning, found, fix)
    }

    async fn sweeping(&self) -> StoreResult<Finding> {
        let expired = self.expired(FEW).await?;
        let found = format!("{expired} expired records are still there");
        if expired < FEW {
            return Ok(Finding::good("sweeping", found));
        }
        let fix = "they are treated as absent, but take room: keep a process running that sweeps, or run `semel gc`";
        Ok(Finding::bad(
            "sweeping",
            Severity::Warning,
            format!("at least {found}"),
            fix,
        ))
    }
}

fn persistence(journal: &str, synchronous: i64) -> Finding {
    let found = format!("journal_mode {journal}, synchronous {synchronous}");
    // 2 is FULL, 3 is EXTRA.
    if journal != "wal" || synchronous < 2 {
        let fix = "a loss of power forgets what was done, and retries then act again: has another program changed the \
                   file's journal_mode?";
        return Finding::bad("persistence", Severity::Broken, found, fix);
    }
    Finding::good("persistence", found)
}

/// The clock is the host's own. One that was set back makes leases last longer than they should.
fn clock(newest: i64, now: Timestamp) -> Finding {
    let ahead = newest.saturating_sub(signed(now.as_micros()));
    if ahead < AHEAD {
        return Finding::good("clock", "this host's own, and not behind the records");
    }
    let found = format!(
        "records were written up to {} s in the future",
        ahead / 1_000_000
    );
    let fix = "the host's clock was set back: leases and retentions last longer by as much; run a time service such as \
               chrony";
    Finding::bad("clock", Severity::Warning, found, fix)
}
