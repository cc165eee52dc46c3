//! The possible states of one key, and their changes by a call: the protocol with times known only
//! within limits.

use semel_core::claim::{Claimed, Renewed, Resolved, Settled};
use semel_core::{Fence, Record, State, Timestamp, Token, protocol};

use super::super::event::{CallRecord, CallReply, CallRequest, KeyEnding, KeyStanding};
use super::super::view::until;
use super::state::{
    KeyState, Terrain, WRITTEN, checkpoint_of, mark_of, progress, resolution, settlement,
};

/// What a store may hold for a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Expired or not.
    pub(super) record: Option<KeyState>,
    /// The largest fence that anybody was told.
    floor: u64,
    /// What was held before, the oldest first. Kept only where it may come back.
    before: Vec<Option<KeyState>>,
}

impl Key {
    /// What may be held after `call`, where its answer can be given now.
    pub(super) fn after(&self, call: &CallRecord, terrain: &Terrain) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for found in self.readings(call) {
            for elapsed in elapsed(found.as_ref(), call, terrain) {
                let moment = Moment {
                    call,
                    terrain,
                    found,
                    elapsed,
                    floor: self.floor,
                };
                if let Some((record, floor)) = moment.decide() {
                    let next = self.with(record, floor, terrain);
                    if !all.contains(&next) {
                        all.push(next);
                    }
                }
            }
        }
        all
    }

    /// What may be held after writes were lost. The fences that were told stay told.
    pub(super) fn after_loss(&self) -> Vec<Self> {
        let earlier = self.before.iter().enumerate();
        let mut all: Vec<Self> = Vec::new();
        for (count, record) in earlier {
            let record = *record;
            if record != self.record && all.iter().all(|other| other.record != record) {
                let before = self.before[..count].to_vec();
                all.push(Self {
                    record,
                    floor: self.floor,
                    before,
                });
            }
        }
        all
    }

    fn with(&self, record: Option<KeyState>, floor: u64, terrain: &Terrain) -> Self {
        let mut before = self.before.clone();
        if terrain.keeps_past && record != self.record {
            before.push(self.record);
        }
        Self {
            record,
            floor,
            before,
        }
    }

    /// A fence that nobody was told may be the one that the call names, or another.
    fn readings(&self, call: &CallRecord) -> Vec<Option<KeyState>> {
        let mut readings = vec![self.record];
        if let Some(state) = self.record.filter(|state| state.fence.is_none())
            && let Some(fence) = named(call).filter(|fence| *fence > self.floor)
        {
            readings.push(Some(KeyState {
                fence: Some(fence),
                ..state
            }));
        }
        readings
    }
}

/// The fence that a call or its answer names.
const fn named(call: &CallRecord) -> Option<u64> {
    match (&call.ask, &call.reply) {
        (
            CallRequest::Renew { fence, .. }
            | CallRequest::Settle { fence, .. }
            | CallRequest::Resolve { fence, .. },
            _,
        )
        | (_, CallReply::Won { fence, .. } | CallReply::InDoubt { fence })
        | (_, CallReply::Seen(Some(KeyStanding { fence, .. }))) => Some(*fence),
        _ => None,
    }
}

/// Times since the last write at which the call may have been decided, one for each thing that time
/// can change: the shortest, and each end of a span that is between it and the longest.
fn elapsed(found: Option<&KeyState>, call: &CallRecord, terrain: &Terrain) -> Vec<u64> {
    let Some(state) = found else { return vec![0] };
    let (first, last) = state.written;
    let latest = latest(call);
    // What was written later than this can't be found yet.
    if !terrain.is_set_back && latest.saturating_add(terrain.slack) < first {
        return Vec::new();
    }
    let slack = terrain.slack;
    let least = call.began.saturating_sub(last).saturating_sub(slack);
    let most = latest.saturating_sub(first).saturating_add(slack);
    let mut times = vec![least];
    times.extend(
        [state.lease, state.retention]
            .into_iter()
            .filter(|end| (least + 1..=most).contains(end)),
    );
    // An end that is put off: decided as just before it.
    times.extend(
        [state.lease, state.retention]
            .into_iter()
            .filter(|end| *end > 0 && (*end..end.saturating_add(terrain.margin)).contains(&least))
            .map(|end| end - 1),
    );
    times
}

/// The latest time at which a call can have been decided.
fn latest(call: &CallRecord) -> u64 {
    let is_open = until(call) == u64::MAX;
    call.ended.filter(|_| !is_open).unwrap_or(u64::MAX)
}

/// One call at one time on what it finds.
struct Moment<'m> {
    call: &'m CallRecord,
    terrain: &'m Terrain,
    found: Option<KeyState>,
    elapsed: u64,
    floor: u64,
}

type NextState = (Option<KeyState>, u64);

impl Moment<'_> {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(WRITTEN.saturating_add(self.elapsed))
    }

    fn is_untold(&self) -> bool {
        matches!(
            self.call.reply,
            CallReply::Unanswered | CallReply::Failed { .. }
        )
    }

    /// When a write by this call may have been.
    fn window(&self) -> (u64, u64) {
        let first = self.found.map_or(0, |state| state.written.0);
        let least = first
            .saturating_add(self.elapsed)
            .saturating_sub(self.terrain.slack);
        let latest = latest(self.call);
        (self.call.began.max(least.min(latest)), latest)
    }

    /// What is held afterwards, if the call can be answered so.
    fn decide(&self) -> Option<NextState> {
        let found = self.found.map(|state| self.terrain.record(&state));
        let found = found.as_ref();
        match &self.call.ask {
            CallRequest::Claim { .. } => self.claim(found),
            CallRequest::Renew {
                fence,
                token,
                checkpoint,
            } => {
                let (fence, token) = (Fence(*fence), Token(*token));
                let checkpoint = checkpoint.map(progress);
                let decision =
                    protocol::renew(found, fence, token, checkpoint.as_ref(), self.now());
                let reply = match decision.answer {
                    Renewed::Held => CallReply::Held,
                    Renewed::Lost => CallReply::Lost,
                };
                self.wrote(&reply, decision.write)
            }
            CallRequest::Settle {
                fence,
                token,
                ending,
            } => {
                let (fence, token) = (Fence(*fence), Token(*token));
                let decision =
                    protocol::settle(found, fence, token, &settlement(*ending), self.now());
                let reply = match decision.answer {
                    Settled::Done => CallReply::Done,
                    Settled::Lost => CallReply::Lost,
                };
                self.wrote(&reply, decision.write)
            }
            CallRequest::Resolve { fence, ending } => {
                let resolution = resolution(*ending)?;
                let decision = protocol::resolve(found, Fence(*fence), &resolution, self.now());
                let reply = match decision.answer {
                    Resolved::Done => CallReply::Done,
                    Resolved::NotInDoubt => CallReply::NotInDoubt,
                };
                self.wrote(&reply, decision.write)
            }
            CallRequest::Delete => {
                let is_live = found.is_some_and(|record| !record.is_expired(self.now()));
                let fits = self.is_untold() || self.call.reply == CallReply::Deleted(is_live);
                fits.then_some((None, self.floor))
            }
            CallRequest::Read => {
                let live = self
                    .found
                    .filter(|_| found.is_some_and(|record| !record.is_expired(self.now())));
                let fits = match self.call.reply {
                    CallReply::Seen(None) => live.is_none(),
                    CallReply::Seen(Some(stand)) => live.is_some_and(|state| {
                        state.fence == Some(stand.fence) && state.ending() == stand.ending
                    }),
                    _ => self.is_untold(),
                };
                fits.then(|| self.kept(None))
            }
        }
    }

    /// The record as found, or as written; and the largest fence that anybody was told.
    fn kept(&self, write: Option<Record>) -> NextState {
        let written = write.map(|record| {
            let state = KeyState::of(&record, self.window());
            // The protocol gave a record whose fence is not known the number 0.
            KeyState {
                fence: self.found.and_then(|found| found.fence),
                ..state
            }
        });
        let state = written.or(self.found);
        let known = state.and_then(|state| state.fence).unwrap_or(0);
        (state, self.floor.max(known))
    }

    fn wrote(&self, reply: &CallReply, write: Option<Record>) -> Option<NextState> {
        let fits = self.is_untold() || self.call.reply == *reply;
        fits.then(|| self.kept(write))
    }

    fn claim(&self, found: Option<&Record>) -> Option<NextState> {
        let decision = protocol::claim(found, &self.terrain.claim(&self.call.ask)?, self.now());
        let is_new = decision.write.is_some();
        match (&decision.answer, &self.call.reply) {
            (Claimed::Won(_), _) if self.is_untold() && is_new => {
                let record = decision.write.map(|record| KeyState {
                    fence: None,
                    ..KeyState::of(&record, self.window())
                });
                Some((record, self.floor))
            }
            (
                Claimed::Won(grant),
                CallReply::Won {
                    fence,
                    token,
                    attempt,
                    own,
                    checkpoint,
                },
            ) => {
                let is_askers = grant.token.0 == *token && grant.attempt == *attempt && *own;
                let is_askers = is_askers && checkpoint_of(&grant.checkpoint) == *checkpoint;
                if !is_new {
                    let is_same = self.found.is_some_and(|state| state.fence == Some(*fence));
                    return (is_askers && is_same).then(|| self.kept(None));
                }
                let record = decision.write.map(|record| KeyState {
                    fence: Some(*fence),
                    ..KeyState::of(&record, self.window())
                });
                (is_askers && *fence > self.floor).then_some((record, *fence))
            }
            (Claimed::Busy(_), CallReply::Busy | CallReply::Overtaken)
            | (Claimed::Mismatch(_), CallReply::Mismatch) => Some(self.kept(None)),
            (Claimed::Replay(replay), CallReply::Replay(ending)) => {
                let mark = mark_of(&replay.answer);
                let shown = match replay.state {
                    State::Failed => KeyEnding::Failed(mark),
                    _ => KeyEnding::Completed(mark),
                };
                (shown == *ending).then(|| self.kept(None))
            }
            (Claimed::InDoubt(_), CallReply::InDoubt { fence }) => {
                let is_same = self.found.is_some_and(|state| state.fence == Some(*fence));
                is_same.then(|| self.kept(decision.write))
            }
            _ if self.is_untold() => Some(self.kept(decision.write)),
            _ => None,
        }
    }
}
