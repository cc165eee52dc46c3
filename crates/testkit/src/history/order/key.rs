//! What a store may hold for one key, and what becomes of it with a call: the protocol, with the times known only within limits.

use semel_core::claim::{Claimed, Renewed, Resolved, Settled};
use semel_core::{Fence, Record, State, Timestamp, Token, protocol};

use super::super::event::{Ask, Call, Ending, Reply, Stand};
use super::super::view::until;
use super::held::{
    Held, Terrain, WRITTEN, checkpoint_of, mark_of, progress, resolution, settlement,
};

/// What a store may hold for a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Expired or not.
    pub(super) record: Option<Held>,
    /// The largest fence that anybody was told.
    floor: u64,
    /// What was held before, the oldest first. Kept only where it may come back.
    before: Vec<Option<Held>>,
}

impl Key {
    /// What may be held after `call`, where its answer can be given now.
    pub(super) fn after(&self, call: &Call, terrain: &Terrain) -> Vec<Self> {
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

    fn with(&self, record: Option<Held>, floor: u64, terrain: &Terrain) -> Self {
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
    fn readings(&self, call: &Call) -> Vec<Option<Held>> {
        let mut readings = vec![self.record];
        if let Some(held) = self.record.filter(|held| held.fence.is_none())
            && let Some(fence) = named(call).filter(|fence| *fence > self.floor)
        {
            readings.push(Some(Held {
                fence: Some(fence),
                ..held
            }));
        }
        readings
    }
}

/// The fence that a call or its answer names.
const fn named(call: &Call) -> Option<u64> {
    match (&call.ask, &call.reply) {
        (Ask::Renew { fence, .. } | Ask::Settle { fence, .. } | Ask::Resolve { fence, .. }, _)
        | (_, Reply::Won { fence, .. } | Reply::InDoubt { fence })
        | (_, Reply::Seen(Some(Stand { fence, .. }))) => Some(*fence),
        _ => None,
    }
}

/// Times since the last write at which the call may have been decided, one for each thing that time can change: the
/// shortest, and each end of a span that is between it and the longest.
fn elapsed(found: Option<&Held>, call: &Call, terrain: &Terrain) -> Vec<u64> {
    let Some(held) = found else { return vec![0] };
    let (first, last) = held.written;
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
        [held.lease, held.retention]
            .into_iter()
            .filter(|end| (least + 1..=most).contains(end)),
    );
    // An end that is put off: decided as just before it.
    times.extend(
        [held.lease, held.retention]
            .into_iter()
            .filter(|end| *end > 0 && (*end..end.saturating_add(terrain.margin)).contains(&least))
            .map(|end| end - 1),
    );
    times
}

/// The latest time at which a call can have been decided.
fn latest(call: &Call) -> u64 {
    let is_open = until(call) == u64::MAX;
    call.ended.filter(|_| !is_open).unwrap_or(u64::MAX)
}

/// One call at one time on what it finds.
struct Moment<'m> {
    call: &'m Call,
    terrain: &'m Terrain,
    found: Option<Held>,
    elapsed: u64,
    floor: u64,
}

type After = (Option<Held>, u64);

impl Moment<'_> {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(WRITTEN.saturating_add(self.elapsed))
    }

    fn is_untold(&self) -> bool {
        matches!(self.call.reply, Reply::Unanswered | Reply::Failed { .. })
    }

    /// When a write by this call may have been.
    fn window(&self) -> (u64, u64) {
        let first = self.found.map_or(0, |held| held.written.0);
        let least = first
            .saturating_add(self.elapsed)
            .saturating_sub(self.terrain.slack);
        let latest = latest(self.call);
        (self.call.began.max(least.min(latest)), latest)
    }

    /// What is held afterwards, if the call can be answered so.
    fn decide(&self) -> Option<After> {
        let found = self.found.map(|held| self.terrain.record(&held));
        let found = found.as_ref();
        match &self.call.ask {
            Ask::Claim { .. } => self.claim(found),
            Ask::Renew {
                fence,
                token,
                checkpoint,
            } => {
                let (fence, token) = (Fence(*fence), Token(*token));
                let checkpoint = checkpoint.map(progress);
                let decision =
                    protocol::renew(found, fence, token, checkpoint.as_ref(), self.now());
                let reply = match decision.answer {
                    Renewed::Held => Reply::Held,
                    Renewed::Lost => Reply::Lost,
                };
                self.wrote(&reply, decision.write)
            }
            Ask::Settle {
                fence,
                token,
                ending,
            } => {
                let (fence, token) = (Fence(*fence), Token(*token));
                let decision =
                    protocol::settle(found, fence, token, &settlement(*ending), self.now());
                let reply = match decision.answer {
                    Settled::Done => Reply::Done,
                    Settled::Lost => Reply::Lost,
                };
                self.wrote(&reply, decision.write)
            }
            Ask::Resolve { fence, ending } => {
                let resolution = resolution(*ending)?;
                let decision = protocol::resolve(found, Fence(*fence), &resolution, self.now());
                let reply = match decision.answer {
                    Resolved::Done => Reply::Done,
                    Resolved::NotInDoubt => Reply::NotInDoubt,
                };
                self.wrote(&reply, decision.write)
            }
            Ask::Delete => {
                let is_live = found.is_some_and(|record| !record.is_expired(self.now()));
                let fits = self.is_untold() || self.call.reply == Reply::Deleted(is_live);
                fits.then_some((None, self.floor))
            }
            Ask::Read => {
                let live = self
                    .found
                    .filter(|_| found.is_some_and(|record| !record.is_expired(self.now())));
                let fits = match self.call.reply {
                    Reply::Seen(None) => live.is_none(),
                    Reply::Seen(Some(stand)) => live.is_some_and(|held| {
                        held.fence == Some(stand.fence) && held.ending() == stand.ending
                    }),
                    _ => self.is_untold(),
                };
                fits.then(|| self.kept(None))
            }
        }
    }

    /// The record as found, or as written; and the largest fence that anybody was told.
    fn kept(&self, write: Option<Record>) -> After {
        let written = write.map(|record| {
            let held = Held::of(&record, self.window());
            // The protocol gave a record whose fence is not known the number 0.
            Held {
                fence: self.found.and_then(|found| found.fence),
                ..held
            }
        });
        let held = written.or(self.found);
        let known = held.and_then(|held| held.fence).unwrap_or(0);
        (held, self.floor.max(known))
    }

    fn wrote(&self, reply: &Reply, write: Option<Record>) -> Option<After> {
        let fits = self.is_untold() || self.call.reply == *reply;
        fits.then(|| self.kept(write))
    }

    fn claim(&self, found: Option<&Record>) -> Option<After> {
        let decision = protocol::claim(found, &self.terrain.claim(&self.call.ask)?, self.now());
        let is_new = decision.write.is_some();
        match (&decision.answer, &self.call.reply) {
            (Claimed::Won(_), _) if self.is_untold() && is_new => {
                let record = decision.write.map(|record| Held {
                    fence: None,
                    ..Held::of(&record, self.window())
                });
                Some((record, self.floor))
            }
            (
                Claimed::Won(grant),
                Reply::Won {
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
                    let is_same = self.found.is_some_and(|held| held.fence == Some(*fence));
                    return (is_askers && is_same).then(|| self.kept(None));
                }
                let record = decision.write.map(|record| Held {
                    fence: Some(*fence),
                    ..Held::of(&record, self.window())
                });
                (is_askers && *fence > self.floor).then_some((record, *fence))
            }
            (Claimed::Busy(_), Reply::Busy) | (Claimed::Mismatch, Reply::Mismatch) => {
                Some(self.kept(None))
            }
            (Claimed::Replay(replay), Reply::Replay(ending)) => {
                let mark = mark_of(&replay.answer);
                let shown = match replay.state {
                    State::Failed => Ending::Failed(mark),
                    _ => Ending::Completed(mark),
                };
                (shown == *ending).then(|| self.kept(None))
            }
            (Claimed::InDoubt(_), Reply::InDoubt { fence }) => {
                let is_same = self.found.is_some_and(|held| held.fence == Some(*fence));
                is_same.then(|| self.kept(decision.write))
            }
            _ if self.is_untold() => Some(self.kept(decision.write)),
            _ => None,
        }
    }
}
