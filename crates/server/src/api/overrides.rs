//! Overrides of the policy by callers of the protocol API, and their limits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use semel::{CrashPolicy, OnBusy, Policy};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::config::{self, Crash};

use crate::web::{Failure, deserialize_optional_whole, deserialize_present};

/// The policies of the protocol API, and the limits of overrides.
#[derive(Clone, Debug)]
pub struct ApiConfig {
    /// The policy of scopes without their own; `None` means that of [`semel::Semel`].
    pub policy: Option<Arc<Policy>>,
    /// Policies by scope. Callers cannot override `hold`.
    pub scopes: BTreeMap<String, Arc<Policy>>,
    /// The shortest lease that a caller may set. Default: 100 ms.
    pub min_lease: Duration,
    /// The longest lease that a caller may set. Default: 1 h.
    pub max_lease: Duration,
    /// The longest retention that a caller may set. Default: 30 days.
    pub max_retention: Duration,
    /// The longest wait of a call. Longer waits are shortened to it. Default: 60 s.
    pub max_wait: Duration,
    /// The largest accepted request. Default: 2 MiB.
    pub max_request_bytes: usize,
    /// How long a request's body may take to arrive. Default: 30 s.
    pub body_timeout: Duration,
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self {
            policy: None,
            scopes: BTreeMap::new(),
            min_lease: Duration::from_millis(100),
            max_lease: Duration::from_secs(60 * 60),
            max_retention: Duration::from_secs(30 * 24 * 60 * 60),
            max_wait: Duration::from_secs(60),
            max_request_bytes: 2 * 1024 * 1024,
            body_timeout: Duration::from_secs(30),
        }
    }
}

/// Overrides of the policy for one claim, within the limits of the server.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Overrides {
    /// How long the owner may be silent before it counts as crashed.
    #[serde(default, deserialize_with = "deserialize_optional_whole")]
    #[schema(nullable = false, minimum = 10, maximum = 86_400_000)]
    lease_ms: Option<u64>,
    /// How long the record is kept after its last change.
    #[serde(default, deserialize_with = "deserialize_optional_whole")]
    #[schema(nullable = false, minimum = 10, maximum = 315_360_000_000u64)]
    retention_ms: Option<u64>,
    /// The crash policy, which the first claim of a key sets. `takeover` is refused if the server
    /// sets `hold`.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(nullable = false)]
    crash: Option<Crash>,
    /// What the claim does while the key is running.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(nullable = false)]
    on_busy: Option<config::OnBusy>,
    /// The maximum wait. The server may wait less.
    #[serde(default, deserialize_with = "deserialize_optional_whole")]
    #[schema(nullable = false, minimum = 0, maximum = 86_400_000)]
    wait_ms: Option<u64>,
}

const DAY_MS: u64 = 86_400_000;

impl ApiConfig {
    /// The policy of a scope, without overrides.
    pub(crate) fn base_policy<'a>(
        &'a self,
        scope: &str,
        default: &'a Arc<Policy>,
    ) -> &'a Arc<Policy> {
        let own = self.scopes.get(scope);
        own.or(self.policy.as_ref()).unwrap_or(default)
    }

    /// The policy for one claim.
    pub(crate) fn policy_for(
        &self,
        scope: &str,
        default: &Arc<Policy>,
        overrides: &Overrides,
    ) -> Result<Arc<Policy>, Failure> {
        let mut policy = (**self.base_policy(scope, default)).clone();
        if let Some(lease) = read_millis("lease_ms", overrides.lease_ms, 10, DAY_MS)? {
            check_range("lease_ms", lease, self.min_lease, self.max_lease)?;
            policy.lease = lease;
            policy.retention = policy.retention.max(lease);
        }
        if let Some(retention) =
            read_millis("retention_ms", overrides.retention_ms, 10, 3650 * DAY_MS)?
        {
            check_range("retention_ms", retention, policy.lease, self.max_retention)?;
            policy.retention = retention;
        }
        policy.crash = match (overrides.crash, policy.crash) {
            (Some(Crash::Takeover), CrashPolicy::Hold) => {
                return Err(Failure::refused(
                    "this scope has the crash policy hold, and callers cannot override it with \
                     takeover",
                ));
            }
            (Some(Crash::Hold), _) => CrashPolicy::Hold,
            (_, crash) => crash,
        };
        let wait = read_millis("wait_ms", overrides.wait_ms, 0, DAY_MS)?;
        policy.on_busy = match (overrides.on_busy, wait, policy.on_busy) {
            (Some(config::OnBusy::Refuse), _, _) => OnBusy::Refuse,
            (_, Some(wait), _) | (_, None, OnBusy::Wait(wait)) => {
                OnBusy::Wait(wait.min(self.max_wait))
            }
            (Some(config::OnBusy::Wait), None, _) => OnBusy::Wait(self.max_wait),
            (None, None, on_busy) => on_busy,
        };
        Ok(Arc::new(policy))
    }
}

fn read_millis(
    name: &str,
    millis: Option<u64>,
    least: u64,
    most: u64,
) -> Result<Option<Duration>, Failure> {
    match millis {
        Some(millis) if !(least..=most).contains(&millis) => Err(Failure::invalid(format!(
            "{name} must be from {least} to {most}"
        ))),
        millis => Ok(millis.map(Duration::from_millis)),
    }
}

fn check_range(
    name: &str,
    asked: Duration,
    least: Duration,
    most: Duration,
) -> Result<(), Failure> {
    if (least..=most).contains(&asked) {
        return Ok(());
    }
    let (least, most) = (least.as_millis(), most.as_millis());
    let detail = format!("{name} must be from {least} to {most} here");
    Err(Failure::refused(detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy_with(text: &str) -> Result<Arc<Policy>, Failure> {
        let mut config = ApiConfig::default();
        let hold = Policy::default().with_crash(CrashPolicy::Hold);
        config.scopes.insert("held".to_owned(), Arc::new(hold));
        let (scope, text) = text.split_once(' ').unwrap();
        let asked = serde_json::from_str(text).unwrap();
        config.policy_for(scope, &Arc::new(Policy::default()), &asked)
    }

    #[test]
    fn callers_may_tighten_the_crash_policy_only() {
        assert_eq!(policy_with("a {}").unwrap().crash, CrashPolicy::Takeover);
        assert_eq!(
            policy_with(r#"a {"crash":"hold"}"#).unwrap().crash,
            CrashPolicy::Hold
        );
        assert_eq!(policy_with("held {}").unwrap().crash, CrashPolicy::Hold);
        assert!(policy_with(r#"held {"crash":"takeover"}"#).is_err());
    }

    #[test]
    fn overrides_are_limited_and_waits_are_shortened() {
        assert!(policy_with(r#"a {"lease_ms":50}"#).is_err());
        assert!(policy_with(r#"a {"lease_ms":3600001}"#).is_err());
        assert!(
            policy_with(r#"a {"retention_ms":1000}"#).is_err(),
            "under the lease"
        );
        assert!(policy_with(r#"a {"retention_ms":2592000001}"#).is_err());
        let long = policy_with(r#"a {"wait_ms":86400000}"#).unwrap().on_busy;
        assert_eq!(long, OnBusy::Wait(Duration::from_secs(60)));
        let refuse = policy_with(r#"a {"on_busy":"refuse","wait_ms":5}"#)
            .unwrap()
            .on_busy;
        assert_eq!(refuse, OnBusy::Refuse);
    }
}
