//! The history of one key, indexed for the rules.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::clocks::Clocks;
use super::event::{CallRecord, CallReply, CallRequest, EffectRecord, History, KeyEnding};
use super::violation::Violation;

/// Which keys anybody ever tried to end in which way.
pub(super) struct Endings<'h>(HashMap<KeyEnding, BTreeSet<&'h str>>);

impl<'h> Endings<'h> {
    pub(super) fn of(history: &'h History) -> Self {
        let mut endings: HashMap<_, BTreeSet<_>> = HashMap::new();
        for call in &history.calls {
            if let CallRequest::Settle { ending, .. } | CallRequest::Resolve { ending, .. } =
                call.ask
            {
                endings.entry(ending).or_default().insert(&*call.key);
            }
        }
        Self(endings)
    }

    /// Whether another key than `key` was ended so.
    pub(super) fn elsewhere(&self, ending: KeyEnding, key: &str) -> bool {
        self.0
            .get(&ending)
            .is_some_and(|keys| keys.iter().any(|other| *other != key))
    }
}

/// What happened to one key.
pub(super) struct View<'h> {
    pub(super) key: &'h str,
    /// By start.
    pub(super) calls: Vec<&'h CallRecord>,
    pub(super) effects: Vec<&'h EffectRecord>,
    /// Every claim that was told it won, by fence, then by start.
    pub(super) wins: Vec<Win<'h>>,
    /// How far the clocks may be apart.
    pub(super) slack: u64,
    /// For how long an end may be put off.
    pub(super) margin: u64,
}

/// A claim that was told it won.
#[derive(Clone, Copy)]
pub(super) struct Win<'h> {
    pub(super) call: &'h CallRecord,
    pub(super) fence: u64,
    pub(super) token: u128,
    pub(super) attempt: u16,
    pub(super) payload: u64,
    pub(super) hold: bool,
    pub(super) lease: u64,
    pub(super) retention: u64,
}

/// A settlement or a resolution.
#[derive(Clone, Copy)]
pub(super) struct End<'h> {
    pub(super) call: &'h CallRecord,
    pub(super) fence: u64,
    /// `None` for a resolution.
    pub(super) token: Option<u128>,
    pub(super) ending: KeyEnding,
}

impl<'h> View<'h> {
    /// One view per key.
    pub(super) fn each(history: &'h History, clocks: Clocks) -> Vec<Self> {
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let (slack, margin) = (micros(clocks.slack), micros(clocks.margin));
        let mut views: BTreeMap<&str, Self> = BTreeMap::new();
        let empty = |key| Self {
            key,
            calls: vec![],
            effects: vec![],
            wins: vec![],
            slack,
            margin,
        };
        for call in &history.calls {
            views
                .entry(&call.key)
                .or_insert_with(|| empty(&call.key))
                .calls
                .push(call);
        }
        for effect in &history.effects {
            views
                .entry(&effect.key)
                .or_insert_with(|| empty(&effect.key))
                .effects
                .push(effect);
        }
        let mut views: Vec<_> = views.into_values().collect();
        for view in &mut views {
            view.calls.sort_by_key(|call| call.start);
            view.wins = view.calls.iter().filter_map(|call| win(call)).collect();
            view.wins.sort_by_key(|win| (win.fence, win.call.start));
        }
        views
    }

    /// The first win of each fence, by fence.
    pub(super) fn leases(&self) -> Vec<Win<'h>> {
        let mut leases = self.wins.clone();
        leases.dedup_by_key(|win| win.fence);
        leases
    }

    /// Every settlement and resolution.
    pub(super) fn ends(&self) -> impl Iterator<Item = End<'h>> {
        self.calls.iter().filter_map(|call| match call.ask {
            CallRequest::Settle {
                fence,
                token,
                ending,
            } => Some(End {
                call,
                fence,
                token: Some(token),
                ending,
            }),
            CallRequest::Resolve { fence, ending } => Some(End {
                call,
                fence,
                token: None,
                ending,
            }),
            _ => None,
        })
    }

    /// Whether the record may have been deleted after `from` was sent and before `to` was answered.
    pub(super) fn may_be_deleted(&self, from: &CallRecord, to: &CallRecord) -> bool {
        let deletes = self
            .calls
            .iter()
            .filter(|call| call.ask == CallRequest::Delete);
        let mut others = deletes.filter(|call| !std::ptr::eq(**call, to));
        others.any(|call| may_have_happened(call) && between(call, from, to))
    }

    /// Whether the key may have been given back between `from` and `to`: by a settlement or a
    /// resolution of a fence from `fence` on.
    pub(super) fn may_be_released(&self, fence: u64, from: &CallRecord, to: &CallRecord) -> bool {
        self.ends().any(|end| {
            let releases = end.ending == KeyEnding::Released && end.fence >= fence;
            releases && may_have_happened(end.call) && between(end.call, from, to)
        })
    }

    /// Whether the record that `lease` wrote may have expired by the time `to` was answered.
    pub(super) fn may_be_expired(&self, lease: &Win<'_>, to: &CallRecord) -> bool {
        let written = self.last_written(lease, to);
        let ended = to.ended.unwrap_or(u64::MAX);
        ended.saturating_add(self.slack) >= written.saturating_add(lease.retention)
    }

    /// Whether `lease` may have lapsed by the time `to` was answered.
    pub(super) fn may_be_lapsed(&self, lease: &Win<'_>, to: &CallRecord) -> bool {
        let written = self.last_written(lease, to);
        let ended = to.ended.unwrap_or(u64::MAX);
        ended.saturating_add(self.slack) >= written.saturating_add(lease.lease)
    }

    /// The earliest that the last write under `lease` can have been. Settlements are left out: one
    /// that was sent before may have been written then.
    fn last_written(&self, lease: &Win<'_>, to: &CallRecord) -> u64 {
        let renewals = self.calls.iter().filter(|call| match call.ask {
            CallRequest::Renew { fence, .. } => {
                fence == lease.fence && call.reply == CallReply::Held && is_before(call, to)
            }
            _ => false,
        });
        renewals
            .map(|call| call.began)
            .fold(self.first_sent(lease), u64::max)
    }

    /// When the claim that won `lease` was first sent: a copy whose reply was lost may have won it.
    pub(super) fn first_sent(&self, lease: &Win<'_>) -> u64 {
        let copies = self.calls.iter().filter(|call| match call.ask {
            CallRequest::Claim { token, .. } => token == lease.token && until(call) == u64::MAX,
            _ => false,
        });
        copies
            .map(|call| call.began)
            .fold(lease.call.began, u64::min)
    }

    /// Whether a claim other than those of `token` may have won between `from` and `to`.
    pub(super) fn may_be_anothers(&self, token: u128, from: &CallRecord, to: &CallRecord) -> bool {
        self.calls.iter().any(|call| match call.ask {
            CallRequest::Claim { token: other, .. } => {
                other != token && may_have_happened(call) && between(call, from, to)
            }
            _ => false,
        })
    }

    /// Whether any claim may have won while one of these calls, or the time between them, went by.
    pub(super) fn may_be_claimed(&self, one: &CallRecord, other: &CallRecord) -> bool {
        let from = one.start.min(other.start);
        let to = until(one).max(until(other));
        self.calls.iter().any(|call| {
            let claim = matches!(call.ask, CallRequest::Claim { .. }) && may_have_happened(call);
            claim && until(call) > from && call.start < to
        })
    }

    /// Whether some call was surely sent after another was answered, and earlier by the clock.
    pub(super) fn is_set_back(&self) -> bool {
        let mut by_end: Vec<_> = self
            .calls
            .iter()
            .filter(|call| call.end.is_some())
            .collect();
        by_end.sort_by_key(|call| call.end);
        let (mut ended, mut latest) = (by_end.into_iter().peekable(), 0);
        self.calls.iter().any(|call| {
            while let Some(earlier) = ended.next_if(|earlier| earlier.end < Some(call.start)) {
                latest = latest.max(earlier.ended.unwrap_or(0));
            }
            call.began.saturating_add(self.slack) < latest
        })
    }

    pub(super) fn violation(
        &self,
        invariant: &'static str,
        sentence: String,
        calls: &[&CallRecord],
    ) -> Violation {
        let calls = calls.iter().map(|call| (*call).clone()).collect();
        Violation {
            invariant,
            key: self.key.to_owned(),
            sentence,
            calls,
            effects: Vec::new(),
        }
    }
}

fn win(call: &CallRecord) -> Option<Win<'_>> {
    let CallRequest::Claim {
        payload,
        hold,
        lease,
        retention,
        ..
    } = call.ask
    else {
        return None;
    };
    let CallReply::Won {
        fence,
        token,
        attempt,
        ..
    } = call.reply
    else {
        return None;
    };
    Some(Win {
        call,
        fence,
        token,
        attempt,
        payload,
        hold,
        lease,
        retention,
    })
}

/// Whether `first` was answered before `second` was sent.
pub(super) fn is_before(first: &CallRecord, second: &CallRecord) -> bool {
    until(first) < second.start
}

/// Whether `call` can have taken effect after `from` was sent and before `to` was answered.
pub(super) fn between(call: &CallRecord, from: &CallRecord, to: &CallRecord) -> bool {
    until(call) > from.start && call.start < until(to)
}

/// When a call's effect is surely over: a call of unknown outcome may arrive at any time.
pub(super) fn until(call: &CallRecord) -> u64 {
    match call.reply {
        CallReply::Unanswered | CallReply::Failed { definite: false } => u64::MAX,
        _ => call.end.unwrap_or(u64::MAX),
    }
}

/// Whether a call that asks for a change may have made it.
pub(super) fn may_have_happened(call: &CallRecord) -> bool {
    matches!(
        call.reply,
        CallReply::Won { .. }
            | CallReply::Held
            | CallReply::Done
            | CallReply::Deleted(_)
            | CallReply::Unanswered
            | CallReply::Failed { definite: false }
    )
}
