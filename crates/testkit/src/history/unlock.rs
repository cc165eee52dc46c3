//! What an operator's unlock explains: the old owner may still run beside a new one.

use super::event::{CallRecord, KeyEnding};
use super::view::{View, Win, between, may_have_happened};

impl View<'_> {
    /// Whether an operator may have taken exactly this lease from its owner, and freed its key, by
    /// the time `to` was answered: by an unlock that releases it, or one that doubts it and a
    /// resolution of that doubt that releases it.
    pub(super) fn may_be_unlocked(&self, lease: &Win<'_>, to: &CallRecord) -> bool {
        let unlocked = |unlock: KeyEnding| {
            self.ends().any(|end| {
                let is_unlock = end.token.is_some() && end.call.is_operators();
                is_unlock
                    && (end.fence, end.ending) == (lease.fence, unlock)
                    && may_have_happened(end.call)
                    && between(end.call, lease.call, to)
            })
        };
        let resolved = || {
            self.ends().any(|end| {
                end.token.is_none()
                    && (end.fence, end.ending) == (lease.fence, KeyEnding::Released)
                    && may_have_happened(end.call)
                    && between(end.call, lease.call, to)
            })
        };
        unlocked(KeyEnding::Released) || unlocked(KeyEnding::InDoubt) && resolved()
    }
}
