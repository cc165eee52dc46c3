//! [`Hints`]: what a server declares about a tool in its annotations.

use crate::members::Members;

/// The hints of a tool. Missing hints have the defaults of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hints {
    pub(crate) read_only: bool,
    pub(crate) idempotent: bool,
    pub(crate) destructive: bool,
}

impl Default for Hints {
    fn default() -> Self {
        Self {
            read_only: false,
            idempotent: false,
            destructive: true,
        }
    }
}

impl Hints {
    pub(crate) fn from_tool(tool: &Members) -> Self {
        let hints = tool.object("annotations").unwrap_or_default();
        let or = |name, otherwise| hints.read::<bool>(name).unwrap_or(otherwise);
        Self {
            read_only: or("readOnlyHint", false),
            idempotent: or("idempotentHint", false),
            destructive: or("destructiveHint", true),
        }
    }
}
