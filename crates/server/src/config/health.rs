//! The settings of the health probes and of the self-check.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::units::{Span, seconds};

/// Health probes and the self-check.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Health {
    /// What happens if the self-check fails. The self-check runs one operation twice and verifies
    /// that the second is a replay.
    pub self_check: SelfCheck,
    /// How often to repeat the self-check.
    pub self_check_every: Span,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            self_check: SelfCheck::Fail,
            self_check_every: seconds(30),
        }
    }
}

/// What happens if the self-check fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SelfCheck {
    /// The process does not start. Later, it is not ready.
    Fail,
    /// The log and `/readyz` report it, and the process continues.
    Warn,
    /// There is no self-check.
    Off,
}
