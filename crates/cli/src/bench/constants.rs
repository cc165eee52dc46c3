//! The figures that `semel bench` measures, stored in a file that `semel plan` reads.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::exit::{self, Exit};

/// Built-in figures. The file says what each was measured on.
const OURS: &str = include_str!("../../constants.json");

/// Figures by store.
pub(crate) type ConstantsByStore = BTreeMap<String, Constants>;

/// What one store can do on one machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Constants {
    /// The store's name and version.
    pub(crate) server: String,
    /// Where and when the figures were measured.
    pub(crate) measured: String,
    /// The number of concurrent callers.
    pub(crate) concurrency: u32,
    /// The body size that the rates were measured with.
    pub(crate) body_bytes: u64,
    /// Claims with settlement per second and primary.
    pub(crate) fresh_per_second: f64,
    /// Replays from the store per second and primary.
    pub(crate) replays_per_second: f64,
    /// The time of one claim with settlement, without other load.
    pub(crate) fresh_alone_ms: f64,
    /// The 99th percentile of a claim with settlement, under load.
    pub(crate) fresh_p99_ms: f64,
    /// Bytes of a record besides its body.
    pub(crate) bytes_fixed: f64,
    /// Bytes for each byte of a body.
    pub(crate) bytes_per_body_byte: f64,
    /// Commands that the server counted for one claim with settlement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) commands_per_fresh: Option<f64>,
    /// Commands that the server counted for one replay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) commands_per_replay: Option<f64>,
    /// Bytes that the server logged for one claim with settlement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wal_bytes_per_fresh: Option<f64>,
}

/// Reads the figures of a file, or the built-in ones.
pub(crate) fn read(file: Option<&Path>) -> Result<ConstantsByStore, Exit> {
    let text = match file {
        None => OURS.to_owned(),
        Some(file) => std::fs::read_to_string(file).map_err(|error| {
            let message = format!("--constants {}: {error}", file.display());
            Exit::failed(exit::CONFIG, message)
        })?,
    };
    serde_json::from_str(&text).map_err(|error| {
        let message = format!(
            "the constants can't be read: {error}\n    fix: use a file that \
                               `semel bench --out` wrote"
        );
        Exit::failed(exit::CONFIG, message)
    })
}

/// The figures of one store.
pub(crate) fn for_store<'a>(all: &'a ConstantsByStore, store: &str) -> Result<&'a Constants, Exit> {
    let found = all.get(store).filter(|one| {
        let rates = [one.fresh_per_second, one.replays_per_second];
        rates.iter().all(|rate| rate.is_finite() && *rate > 0.0)
    });
    found.ok_or_else(|| {
        let message = format!(
            "the file has no figures for {store}\n    fix: `semel bench --store {store}://… \
             --out FILE` measures them"
        );
        Exit::failed(exit::CONFIG, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_constants_have_both_stores() {
        let all = read(None).unwrap();
        for store in ["redis", "postgres"] {
            assert!(for_store(&all, store).unwrap().bytes_fixed > 0.0);
        }
        assert!(for_store(&all, "memory").is_err());
    }
}
