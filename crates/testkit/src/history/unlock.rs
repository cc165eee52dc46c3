//! What an operator's unlock explains: the owner may be at work, and others too.

use super::event::{Call, Ending};
use super::view::{View, Win, between, may_have_happened};

impl View<'_> {
    /// Whether an operator may have taken exactly this lease from its owner, and freed its key, by the time `to` was
    /// answered: by an unlock that releases it, or one that doubts it and a resolution of that doubt that releases it.
    pub(super) fn may_be_unlocked(&self, lease: &Win<'_>, to: &Call) -> bool {
        let unlocked = |unlock: Ending| {
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
                    && (end.fence, end.ending) == (lease.fence, Ending::Released)
                    && may_have_happened(end.call)
                    && between(end.call, lease.call, to)
            })
        };
        unlocked(Ending::Released) || unlocked(Ending::InDoubt) && resolved()
    }
}
