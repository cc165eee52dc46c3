//! What a bench measured, kept in a file that `plan` reads.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::exit::{self, Exit};

/// Figures measured by `semel bench` on servers that the file names; see there for what they were measured on.
const OURS: &str = include_str!("../../constants.json");

/// By store.
pub(crate) type All = BTreeMap<String, Constants>;

/// What one store can do, on one machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Constants {
    /// The store, as it calls itself.
    pub(crate) server: String,
    /// Where and when, in words.
    pub(crate) measured: String,
    /// How many callers at a time.
    pub(crate) concurrency: u32,
    /// The body of an answer that the rates were measured with.
    pub(crate) body_bytes: u64,
    /// Claimed and settled, per second and primary.
    pub(crate) fresh_per_second: f64,
    /// Replayed from the store, per second and primary.
    pub(crate) replays_per_second: f64,
    /// One claim and its settlement, with nobody else there.
    pub(crate) fresh_alone_ms: f64,
    /// Of a hundred claims and settlements under load, ninety-nine took no longer.
    pub(crate) fresh_p99_ms: f64,
    /// What a record takes besides its body.
    pub(crate) bytes_fixed: f64,
    /// What a byte of a body takes.
    pub(crate) bytes_per_body_byte: f64,
    /// Commands that the server counted for one claim and its settlement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) commands_per_fresh: Option<f64>,
    /// Commands that the server counted for one replay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) commands_per_replay: Option<f64>,
    /// What the server wrote to its log for one claim and its settlement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wal_bytes_per_fresh: Option<f64>,
}

/// The constants of a file, or ours.
pub(crate) fn read(file: Option<&Path>) -> Result<All, Exit> {
    let text = match file {
        None => OURS.to_owned(),
        Some(file) => std::fs::read_to_string(file).map_err(|error| {
            let message = format!("--constants {}: {error}", file.display());
            Exit::failed(exit::CONFIG, message)
        })?,
    };
    serde_json::from_str(&text).map_err(|error| {
        let message = format!("the constants can't be read: {error}\n    fix: take the file that `semel bench --out` wrote");
        Exit::failed(exit::CONFIG, message)
    })
}

/// Those of one store.
pub(crate) fn of<'a>(all: &'a All, store: &str) -> Result<&'a Constants, Exit> {
    let found = all.get(store).filter(|one| {
        let rates = [one.fresh_per_second, one.replays_per_second];
        rates.iter().all(|rate| rate.is_finite() && *rate > 0.0)
    });
    found.ok_or_else(|| {
        let message = format!(
            "the constants have nothing of {store}\n    fix: `semel bench --store {store}://… --out FILE` measures it"
        );
        Exit::failed(exit::CONFIG, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_have_both_stores() {
        let all = read(None).unwrap();
        for store in ["redis", "postgres"] {
            assert!(of(&all, store).unwrap().bytes_fixed > 0.0);
        }
        assert!(of(&all, "memory").is_err());
    }
}
