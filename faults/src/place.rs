//! [`WorkerPlace`]: where the workers of a run live.

use std::path::PathBuf;
use std::sync::Arc;

use semel::core::StoreAdmin;

/// Where workers run.
#[derive(Clone)]
pub(crate) enum WorkerPlace {
    /// In processes with their own connection to the store; some have another clock.
    Processes {
        urls: Vec<String>,
        skew: Option<PathBuf>,
    },
    /// In processes that share one clock, which these variables set.
    OneClock {
        url: String,
        environment: Vec<(&'static str, String)>,
    },
    /// In processes on separate machines, which are network namespaces.
    Machines {
        url: String,
        namespaces: Vec<String>,
    },
    /// In threads of the harness, on a store in memory.
    Threads(Arc<dyn StoreAdmin>),
}
