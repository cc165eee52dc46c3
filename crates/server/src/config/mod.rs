//! Configuration: defaults, a TOML file, `SEMEL_*` variables, flags; the later wins.
//!
//! | file | is |
//! |---|---|
//! | `tree`, `route`, `seen`, `kept`, `jobs`, `limits`, `whose`, `units` | the settings as types, with their documentation |
//! | `fields` | the schema made of them: what everything else goes by |
//! | `source` | who said what, and where |
//! | `check`, `rules` | everything that is wrong with it at once, each with its place and what to do |
//! | `show` | the settings in force, one setting explained, and `docs/config.md` |

mod check;
mod fields;
mod jobs;
mod kept;
mod limits;
mod route;
mod rules;
mod seen;
mod show;
mod source;
mod tree;
mod units;
mod whose;

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// Whether a URL's host is this machine.
pub(crate) fn is_at_loopback(url: &str) -> bool {
    let host = url.parse::<http::Uri>().ok();
    let host = host.and_then(|uri| Some(uri.host()?.to_owned()));
    host.is_some_and(|host| is_loopback(&format!("{host}:0")))
}

/// Whether a URL's host is this machine: what goes there stays here.
#[must_use]
pub fn is_local(url: &str) -> bool {
    is_at_loopback(url)
}

/// Whether an address is one of this machine alone.
pub(crate) fn is_loopback(address: &str) -> bool {
    let Ok(mut found) = std::net::ToSocketAddrs::to_socket_addrs(address) else {
        return false;
    };
    found.all(|address| address.ip().to_canonical().is_loopback())
}

pub use fields::{Field, Kind, Node, env_name, fields, schema};
pub use jobs::Jobs;
pub use kept::{Audit, AuditNats, AuditPostgres};
pub use limits::Limits;
pub use route::{
    Compare, Crash, Fingerprint, LostAnswer, Mode, OnBusy, Profile, RouteEntry, RouteSettings,
    StoreDown,
};
pub use seen::{Log, LogFormat, Metrics, MetricsAccess, Traces};
pub use show::{Shown, explain, reference, without_password};
pub use source::{Flag, Origin, Sources};
pub use tree::{
    Admin, Api, ApiAccess, Config, Engine, Health, Host, Keys, Listener, Protocol, SelfCheck,
    Store, Tls, Upstream,
};
pub use units::{Size, Span, UnitError};
pub use whose::{Algorithm, Credentials, From, Jwt, Verify, Whose};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The setting, or nothing where it is about the whole.
    pub path: String,
    /// Who said it.
    pub origin: Origin,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub fix: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.origin, self.path.as_str()) {
            (Origin::Default, "") => {}
            (Origin::Default, path) => write!(f, "{path}: ")?,
            (origin, "") => write!(f, "{origin}: ")?,
            (origin, path) => write!(f, "{path} ({origin}): ")?,
        }
        write!(f, "{}\n    fix: {}", self.message, self.fix)
    }
}

/// Everything that is wrong, at once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Findings(pub Vec<Finding>);

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        let things = if count == 1 { "thing is" } else { "things are" };
        write!(f, "{count} {things} wrong with the configuration:")?;
        for finding in &self.0 {
            write!(f, "\n- {finding}")?;
        }
        Ok(())
    }
}

/// A configuration, and where it came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings in force.
    pub config: Config,
    /// What isn't wrong, but worth knowing.
    pub warnings: Vec<Finding>,
    sources: Sources,
    effective: Value,
    origins: BTreeMap<String, Origin>,
}

impl Loaded {
    /// Reads the same sources again: the file, that is, as the others don't change while a process runs.
    ///
    /// # Errors
    /// [`Findings`], with everything that is wrong.
    pub fn again(&self) -> Result<Self, Findings> {
        load(&self.sources)
    }

    /// The sources.
    #[must_use]
    pub const fn sources(&self) -> &Sources {
        &self.sources
    }
}

/// Reads and checks everything.
///
/// # Errors
/// [`Findings`], with everything that is wrong.
///
/// ```
/// use semel_server::config::{Flag, Sources, load};
///
/// let flag = |name: &str, path: &str, value: &str| Flag {
///     name: name.into(),
///     path: path.into(),
///     value: value.into(),
/// };
/// let flags = vec![
///     flag("--upstream", "upstream.urls", "http://127.0.0.1:3000"),
///     flag("--store", "store.url", "memory://"),
/// ];
/// let loaded = load(&Sources { flags, ..Sources::default() })?;
/// assert_eq!(loaded.config.listener.address, "127.0.0.1:8080");
/// # Ok::<(), semel_server::config::Findings>(())
/// ```
pub fn load(sources: &Sources) -> Result<Loaded, Findings> {
    let mut findings = Vec::new();
    let said = source::read(sources, &mut findings);
    if !findings.is_empty() {
        // Half a file would be found wrong in ways that it isn't.
        findings.dedup();
        return Err(Findings(findings));
    }
    check::against_schema(&said, &mut findings);
    if !findings.is_empty() {
        return Err(Findings(findings));
    }
    let defaults = serde_json::to_value(Config::default()).unwrap_or_default();
    let mut effective = source::merged(&defaults, &said.value);
    // A route says only what is different.
    let base = effective["defaults"].clone();
    if let Some(routes) = effective["routes"].as_array_mut() {
        for route in routes {
            *route = source::merged(&base, route);
        }
    }
    let config: Config = match serde_path_to_error::deserialize(&effective) {
        Ok(config) => config,
        Err(error) => {
            let path = error.path().to_string();
            let fix = "see `semel config explain` for what it takes";
            let mut finding = check::missing(&path, &error.into_inner().to_string(), fix);
            finding.origin = said.origin(&path);
            return Err(Findings(vec![finding]));
        }
    };
    let rules::Judged { wrong, warnings } = rules::judge(&config, &said);
    if !wrong.is_empty() {
        return Err(Findings(wrong));
    }
    Ok(Loaded {
        config,
        warnings,
        sources: sources.clone(),
        effective,
        origins: said.origins,
    })
}

#[cfg(test)]
mod tests;
