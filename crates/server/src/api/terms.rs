//! What a caller may ask for of the policy, and how far.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use semel::{CrashPolicy, OnBusy, Policy};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::wire::{Failure, present, whole_or_none};

/// How operations over the protocol API are treated, and what callers may change.
#[derive(Clone, Debug)]
pub struct ApiConfig {
    /// For scopes that have no policy of their own; `None` takes the [`semel::Semel`]'s.
    pub policy: Option<Arc<Policy>>,
    /// Policies by scope. A scope that is `hold` here stays so, whatever a caller asks for.
    pub scopes: BTreeMap<String, Arc<Policy>>,
    /// The shortest lease that a caller may ask for. 100 ms.
    pub min_lease: Duration,
    /// The longest lease that a caller may ask for. 1 h.
    pub max_lease: Duration,
    /// The longest retention that a caller may ask for. 30 days.
    pub max_retention: Duration,
    /// The longest that a call waits for another's run; a caller who asks for more gets this. 60 s.
    pub max_wait: Duration,
    /// The largest request taken. 2 MiB.
    pub max_request_bytes: usize,
    /// How long a request's body may take to arrive. 30 s.
    pub patience: Duration,
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
            patience: Duration::from_secs(30),
        }
    }
}

/// What becomes of the key should its owner vanish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Crash {
    /// The next caller runs it again: at least once.
    Takeover,
    /// In doubt until resolved: at most once.
    Hold,
}

impl From<CrashPolicy> for Crash {
    fn from(policy: CrashPolicy) -> Self {
        match policy {
            CrashPolicy::Takeover => Self::Takeover,
            CrashPolicy::Hold => Self::Hold,
        }
    }
}

/// What to do while another runs the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Busy {
    /// Wait for its answer.
    Wait,
    /// Be told at once.
    Refuse,
}

/// Changes to the policy for one claim, within what the server allows. What is left out is the server's choice.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Overrides {
    /// How long the owner may be silent before it counts as gone.
    #[serde(default, deserialize_with = "whole_or_none")]
    #[schema(nullable = false, minimum = 10, maximum = 86_400_000)]
    lease_ms: Option<u64>,
    /// How long the record lives after it was last written.
    #[serde(default, deserialize_with = "whole_or_none")]
    #[schema(nullable = false, minimum = 10, maximum = 315_360_000_000u64)]
    retention_ms: Option<u64>,
    /// Decided by the first claim, and stored. `takeover` is refused where the server says `hold`.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    crash: Option<Crash>,
    /// What to do while another runs the same key.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    on_busy: Option<Busy>,
    /// How long to wait at most; the server may wait less.
    #[serde(default, deserialize_with = "whole_or_none")]
    #[schema(nullable = false, minimum = 0, maximum = 86_400_000)]
    wait_ms: Option<u64>,
}

const DAY_MS: u64 = 86_400_000;

impl ApiConfig {
    /// The policy for one claim.
    pub(crate) fn policy_for(
        &self,
        scope: &str,
        default: &Arc<Policy>,
        asked: &Overrides,
    ) -> Result<Arc<Policy>, Failure> {
        let own = self.scopes.get(scope);
        let base = own.or(self.policy.as_ref()).unwrap_or(default);
        let mut policy = (**base).clone();
        if let Some(lease) = bounded("lease_ms", asked.lease_ms, 10, DAY_MS)? {
            within("lease_ms", lease, self.min_lease, self.max_lease)?;
            policy.lease = lease;
            policy.retention = policy.retention.max(lease);
        }
        if let Some(retention) = bounded("retention_ms", asked.retention_ms, 10, 3650 * DAY_MS)? {
            within("retention_ms", retention, policy.lease, self.max_retention)?;
            policy.retention = retention;
        }
        policy.crash = match (asked.crash, policy.crash) {
            (Some(Crash::Takeover), CrashPolicy::Hold) => {
                return Err(Failure::refused(
                    "this scope is held after a crash; a caller can't ask for takeover here",
                ));
            }
            (Some(Crash::Hold), _) => CrashPolicy::Hold,
            (_, crash) => crash,
        };
        let wait = bounded("wait_ms", asked.wait_ms, 0, DAY_MS)?;
        policy.on_busy = match (asked.on_busy, wait, policy.on_busy) {
            (Some(Busy::Refuse), _, _) | (None, None, OnBusy::Refuse) => OnBusy::Refuse,
            (_, Some(wait), _) | (_, None, OnBusy::Wait(wait)) => {
                OnBusy::Wait(wait.min(self.max_wait))
            }
            (Some(Busy::Wait), None, OnBusy::Refuse) => OnBusy::Wait(self.max_wait),
        };
        Ok(Arc::new(policy))
    }
}

fn bounded(
    name: &str,
    millis: Option<u64>,
    least: u64,
    most: u64,
) -> Result<Option<Duration>, Failure> {
    match millis {
        Some(millis) if !(least..=most).contains(&millis) => Err(Failure::invalid(format!(
            "{name} is from {least} to {most}"
        ))),
        millis => Ok(millis.map(Duration::from_millis)),
    }
}

fn within(name: &str, asked: Duration, least: Duration, most: Duration) -> Result<(), Failure> {
    if (least..=most).contains(&asked) {
        return Ok(());
    }
    let (least, most) = (least.as_millis(), most.as_millis());
    let detail = format!("{name} is from {least} to {most} here");
    Err(Failure::refused(detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Result<Arc<Policy>, Failure> {
        let mut config = ApiConfig::default();
        let hold = Policy {
            crash: CrashPolicy::Hold,
            ..Policy::default()
        };
        config.scopes.insert("held".to_owned(), Arc::new(hold));
        let (scope, text) = text.split_once(' ').unwrap();
        let asked = serde_json::from_str(text).unwrap();
        config.policy_for(scope, &Arc::new(Policy::default()), &asked)
    }

    #[test]
    fn a_caller_may_be_more_careful_than_the_server_never_less() {
        assert_eq!(asked("a {}").unwrap().crash, CrashPolicy::Takeover);
        assert_eq!(
            asked(r#"a {"crash":"hold"}"#).unwrap().crash,
            CrashPolicy::Hold
        );
        assert_eq!(asked("held {}").unwrap().crash, CrashPolicy::Hold);
        assert!(asked(r#"held {"crash":"takeover"}"#).is_err());
    }

    #[test]
    fn spans_are_bounded_and_waits_are_cut() {
        assert!(asked(r#"a {"lease_ms":50}"#).is_err());
        assert!(asked(r#"a {"lease_ms":3600001}"#).is_err());
        assert!(
            asked(r#"a {"retention_ms":1000}"#).is_err(),
            "under the lease"
        );
        assert!(asked(r#"a {"retention_ms":2592000001}"#).is_err());
        let long = asked(r#"a {"wait_ms":86400000}"#).unwrap().on_busy;
        assert_eq!(long, OnBusy::Wait(Duration::from_secs(60)));
        let refuse = asked(r#"a {"on_busy":"refuse","wait_ms":5}"#)
            .unwrap()
            .on_busy;
        assert_eq!(refuse, OnBusy::Refuse);
    }
}
