//! [`StartError`]: why the process cannot start, with a fix.

use semel::OpenError;

use crate::config::{Findings, SettingError};
use crate::stack::StackError;
use crate::tls::TlsError;

/// The process cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration has errors.
    #[error(transparent)]
    Config(#[from] Findings),
    /// A setting names a file or URL that is unusable.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The process cannot listen for signals.
    #[error("signals can't be received: {0}")]
    Signals(std::io::Error),
    /// The settings cannot be put to work.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The TLS settings are unusable.
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    /// The store cannot be opened.
    #[error("the store {url} can't be opened: {source}\n    fix: {fix}")]
    Store {
        /// The URL without its password.
        url: String,
        /// What to do.
        fix: &'static str,
        /// The cause.
        source: Box<OpenError>,
    },
    /// The job queue cannot be opened.
    #[error("jobs: {0}\n    fix: see docs/jobs.md, or remove jobs.enabled")]
    Jobs(#[from] semel_jobs::Error),
    /// The process cannot listen on an address.
    #[error("{setting}: can't listen on {address}: {source}\n    fix: {fix}")]
    Listen {
        /// The setting with the address.
        setting: &'static str,
        /// The address.
        address: String,
        /// What to do.
        fix: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The self-check failed.
    #[error(
        "the self-check failed: {0}\n    fix: check the store; or set health.self_check = \"warn\" \
         to start anyway"
    )]
    SelfCheck(String),
}
