//! The options of the store's URL.

use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use semel_core::StoreError;
use semel_core::store::StoreResult;
use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};

use super::error::unfit;

/// How long a call waits for another process's write to end, unless the URL says otherwise.
const BUSY: Duration = Duration::from_secs(4);
const BUSY_AT_MOST: Duration = Duration::from_secs(60);

/// To how many bytes the write-ahead log is cut back when it begins anew; it stays as large as it
/// ever was otherwise.
const LOG_AT_MOST: &str = "33554432";

/// A parsed URL.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) path: PathBuf,
    pub(super) migrate: bool,
    pub(super) busy: Duration,
}

impl Options {
    pub(super) fn parse(url: &str) -> StoreResult<Self> {
        let rest = url.strip_prefix("sqlite://").unwrap_or_default();
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = percent_decode_str(path).decode_utf8();
        let path = path.map_err(|_| refused("its path isn't UTF-8"))?;
        if path.is_empty() || path.ends_with('/') {
            return Err(refused(
                "it names no file; sqlite:///var/lib/semel/keys.db does",
            ));
        }
        if path.contains(":memory:") {
            return Err(refused("for records in memory there is memory://"));
        }
        let mut options = Self {
            path: PathBuf::from(path.as_ref()),
            migrate: true,
            busy: BUSY,
        };
        for option in query.split('&').filter(|option| !option.is_empty()) {
            options.take(option)?;
        }
        Ok(options)
    }

    fn take(&mut self, option: &str) -> StoreResult<()> {
        match option.split_once('=') {
            Some(("migrate", value @ ("on" | "off"))) => self.migrate = value == "on",
            Some(("busy_ms", number)) => {
                let busy = number.parse().map(Duration::from_millis).ok();
                let busy = busy.filter(|busy| *busy <= BUSY_AT_MOST);
                self.busy = busy.ok_or_else(|| refused("busy_ms is a number up to 60000"))?;
            }
            _ => {
                return Err(refused(
                    "an option isn't known; there are busy_ms and migrate=off",
                ));
            }
        }
        Ok(())
    }

    /// How every connection is opened. What was committed is on the disk (`FULL`).
    pub(super) fn connect(&self) -> SqliteConnectOptions {
        SqliteConnectOptions::new()
            .filename(&self.path)
            .busy_timeout(self.busy)
            .synchronous(SqliteSynchronous::Full)
            .pragma("journal_size_limit", LOG_AT_MOST)
    }
}

fn refused(said: &'static str) -> StoreError {
    unfit(format!("the store's URL can't be used: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_may_be_relative_and_hold_any_character() {
        let absolute = Options::parse("sqlite:///var/lib/semel/keys.db").unwrap();
        assert_eq!(absolute.path, PathBuf::from("/var/lib/semel/keys.db"));
        let relative = Options::parse("sqlite://agent.db?busy_ms=250&migrate=off").unwrap();
        assert_eq!(relative.path, PathBuf::from("agent.db"));
        assert_eq!(relative.busy, Duration::from_millis(250));
        assert!(!relative.migrate);
        let spaced = Options::parse("sqlite:///a%20b/what%3F.db").unwrap();
        assert_eq!(spaced.path, PathBuf::from("/a b/what?.db"));
    }

    #[test]
    fn invalid_urls_are_rejected_with_advice() {
        for (url, hint) in [
            ("sqlite://", "names no file"),
            ("sqlite:///var/lib/", "names no file"),
            ("sqlite://:memory:", "memory://"),
            ("sqlite:///a.db?mode=ro", "isn't known"),
            ("sqlite:///a.db?busy_ms=x", "busy_ms"),
            ("sqlite:///a.db?busy_ms=900000", "busy_ms"),
        ] {
            let error = Options::parse(url).expect_err(url);
            let said = std::error::Error::source(&error).unwrap().to_string();
            assert!(said.contains(hint), "{url}: {said}");
        }
    }
}
