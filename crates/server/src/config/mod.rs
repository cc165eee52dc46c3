//! Configuration: defaults, a TOML file, `SEMEL_*` environment variables and flags. Later sources
//! override earlier ones.
//!
//! | file | is |
//! |---|---|
//! | `tree` | [`Config`], the root of all settings |
//! | `store`, `encryption`, `upstream`, `listener`, `limits`, `admin`, `audit` | settings with their documentation |
//! | `jobs`, `health`, `observability`, `engine`, `identity`, `route` | settings with their documentation |
//! | `policy`, `units` | conversion to the library's types; time spans and sizes |
//! | `fields` | the JSON schema of the settings, and the list of all settings |
//! | `source` | reading the file, the environment and the flags, with the origin of each value |
//! | `check`, `rules`, `nearest` | all findings at once, each with its place and its fix |
//! | `show` | the effective settings, the explanation of a setting, and `docs/config.md` |

mod admin;
mod audit;
mod check;
mod encryption;
mod engine;
mod fields;
mod health;
mod identity;
mod jobs;
mod limits;
mod listener;
mod nearest;
mod observability;
mod policy;
mod route;
mod rules;
mod setting_error;
mod show;
mod source;
mod store;
mod tree;
mod units;
mod upstream;

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// Whether the host of a URL is a loopback address.
pub(crate) fn is_at_loopback(url: &str) -> bool {
    let host = url.parse::<http::Uri>().ok();
    let host = host.and_then(|uri| Some(uri.host()?.to_owned()));
    host.is_some_and(|host| is_loopback(&format!("{host}:0")))
}

/// Whether the host of a URL is this machine, so that traffic to it stays here.
#[must_use]
pub fn is_local(url: &str) -> bool {
    is_at_loopback(url)
}

/// Whether an address is a loopback address.
pub(crate) fn is_loopback(address: &str) -> bool {
    let Ok(mut found) = std::net::ToSocketAddrs::to_socket_addrs(address) else {
        return false;
    };
    found.all(|address| address.ip().to_canonical().is_loopback())
}

pub use admin::{Admin, Api, ApiAccess};
pub use audit::{Audit, AuditNats, AuditPostgres};
pub use encryption::{DataKeyOwners, Encryption};
pub use engine::{Engine, Keys};
pub use fields::{Field, FieldKind, Node, env_name, fields, schema};
pub use health::{Health, SelfCheck};
pub use identity::{Algorithm, Credentials, IdentitySettings, IdentitySource, Jwt, Verify};
pub use jobs::Jobs;
pub use limits::Limits;
pub use listener::{Listener, Tls};
pub use observability::{Log, LogFormat, Metrics, MetricsAccess, Traces};
pub use route::{
    Compare, Crash, Fingerprint, KeyShape, LostAnswer, Mode, OnBusy, Profile, RouteEntry,
    RouteSettings, StoreDown,
};
pub use setting_error::SettingError;
pub use show::{EffectiveSetting, explain, reference, without_password};
pub use source::{Flag, Origin, Sources};
pub use store::Store;
pub use tree::Config;
pub use units::{Size, Span, UnitError};
pub use upstream::{Host, Protocol, Upstream};

/// An error or a warning about the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsFinding {
    /// The path of the setting; empty if it is about the whole configuration.
    pub path: String,
    /// Where the value comes from.
    pub origin: Origin,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub fix: String,
}

impl fmt::Display for SettingsFinding {
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

/// All errors of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Findings(pub Vec<SettingsFinding>);

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        let errors = if count == 1 { "error" } else { "errors" };
        write!(f, "{count} {errors} in the configuration:")?;
        for finding in &self.0 {
            write!(f, "\n- {finding}")?;
        }
        Ok(())
    }
}

/// A valid configuration and the origins of its values.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The effective settings.
    pub config: Config,
    /// Warnings that do not prevent a start.
    pub warnings: Vec<SettingsFinding>,
    sources: Sources,
    effective: Value,
    origins: BTreeMap<String, Origin>,
}

impl Loaded {
    /// Reads the configuration file again, with the same environment and flags.
    ///
    /// # Errors
    /// [`Findings`] lists all errors.
    pub fn reload(&self) -> Result<Self, Findings> {
        load(&self.sources)
    }

    /// The sources of this configuration.
    #[must_use]
    pub const fn sources(&self) -> &Sources {
        &self.sources
    }
}

/// Reads and checks the configuration.
///
/// # Errors
/// [`Findings`] lists all errors.
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
    let raw = source::read(sources, &mut findings);
    if !findings.is_empty() {
        // A file that is only partly read would cause misleading findings.
        findings.dedup();
        return Err(Findings(findings));
    }
    check::check_schema(&raw, &mut findings);
    if !findings.is_empty() {
        return Err(Findings(findings));
    }
    let defaults = serde_json::to_value(Config::default()).unwrap_or_default();
    let mut effective = source::merge(&defaults, &raw.value);
    // A route lists only what differs from the defaults.
    let base = effective["defaults"].clone();
    if let Some(routes) = effective["routes"].as_array_mut() {
        for route in routes {
            *route = source::merge(&base, route);
        }
    }
    let config: Config = match serde_path_to_error::deserialize(&effective) {
        Ok(config) => config,
        Err(error) => {
            let path = error.path().to_string();
            let fix = "see `semel config explain` for valid values";
            let mut finding = check::new_finding(&path, &error.into_inner().to_string(), fix);
            finding.origin = raw.origin(&path);
            return Err(Findings(vec![finding]));
        }
    };
    let rules::RuleFindings { errors, warnings } = rules::check_rules(&config, &raw);
    if !errors.is_empty() {
        return Err(Findings(errors));
    }
    Ok(Loaded {
        config,
        warnings,
        sources: sources.clone(),
        effective,
        origins: raw.origins,
    })
}

#[cfg(test)]
mod tests;
