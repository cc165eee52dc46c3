//! Marks (high-water marks): the last applied sequence number of each session.

use std::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashMap};
use parking_lot::Mutex;

use crate::key::{Epoch, SeqNo, SessionId};

/// The position of a session: everything up to `seqno` of `epoch` was applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Mark {
    /// The producer's epoch.
    pub epoch: Epoch,
    /// The last operation applied in it; 0 before the first.
    pub seqno: SeqNo,
}

impl Mark {
    /// The mark at this place.
    #[must_use]
    pub const fn new(epoch: u64, seqno: u64) -> Self {
        Self {
            epoch: Epoch(epoch),
            seqno: SeqNo(seqno),
        }
    }
}

/// What happens to an operation that comes too early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// It is refused until those before it were applied: none is ever passed over.
    #[default]
    Contiguous,
    /// It is applied, and the numbers that it passes over are reported. Should they come, they come
    /// too late.
    Monotonic,
}

/// What to do with an operation, by its session's mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkCheck {
    /// It is the next one: apply it.
    Next,
    /// Apply it; `missing` operations from `first` on are passed over ([`Order::Monotonic`] only).
    Skips {
        /// The first that is missing.
        first: SeqNo,
        /// How many are.
        missing: u64,
    },
    /// It was applied before, or passed over: skip it.
    Duplicate,
    /// It comes too early: `expected` must come first. Don't apply it, have it sent again.
    Gap {
        /// The one that is waited for.
        expected: SeqNo,
    },
    /// It is from an earlier epoch of the producer: never apply it.
    Stale {
        /// The epoch now.
        current: Epoch,
    },
}

impl MarkCheck {
    /// Whether to apply the operation.
    #[must_use]
    pub const fn applies(self) -> bool {
        matches!(self, Self::Next | Self::Skips { .. })
    }
}

/// What is kept of a session: how far it came, and which lives of its producer are over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The last operation that was applied.
    pub mark: Mark,
    /// Epochs below this one are over; never below the mark's.
    pub fence: Epoch,
}

impl Progress {
    /// What is to be done with the operation at `at`: the one rule, for marks in memory and in a
    /// database.
    #[must_use]
    pub fn check(self, at: Mark, order: Order) -> MarkCheck {
        if at.epoch < self.fence {
            return MarkCheck::Stale {
                current: self.fence,
            };
        }
        // A new life begins its numbers at 1.
        let same = at.epoch == self.mark.epoch;
        let last = if same { self.mark.seqno.0 } else { 0 };
        let Some(ahead) = at.seqno.0.checked_sub(last).filter(|&ahead| ahead > 0) else {
            return MarkCheck::Duplicate;
        };
        match (ahead, order) {
            (1, _) => MarkCheck::Next,
            (_, Order::Contiguous) => MarkCheck::Gap {
                expected: SeqNo(last + 1),
            },
            (_, Order::Monotonic) => MarkCheck::Skips {
                first: SeqNo(last + 1),
                missing: ahead - 1,
            },
        }
    }

    /// After the operation at `to` was applied.
    #[must_use]
    pub fn advanced(self, to: Mark) -> Self {
        Self {
            mark: to,
            fence: self.fence.max(to.epoch),
        }
    }
}

/// The marks of many sessions, for several threads. 56 bytes or so a session, whatever its age and
/// length.
///
/// A session is never forgotten by itself: at the bound new ones are refused, as a forgotten mark
/// would let old operations through. [`retire`](Self::retire) those that are over.
///
/// ```
/// use semel_stream::{Mark, SeqNo, SeqNoTracker, SessionId};
///
/// let tracker = SeqNoTracker::default();
/// let session = SessionId::named("sensor-7");
/// assert!(tracker.should_apply(session, SeqNo(1)));
/// tracker.advance(session, Mark::new(0, 1))?;
/// assert!(!tracker.should_apply(session, SeqNo(1)));
/// # Ok::<(), semel_stream::MarkError>(())
/// ```
#[derive(Debug)]
pub struct SeqNoTracker {
    shards: Box<[Shard]>,
    order: Order,
    most_in_shard: usize,
    hasher: DefaultHashBuilder,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<Sessions>);

type Sessions = HashMap<SessionId, Progress>;

const SHARDS: usize = 16;

/// How many sessions a tracker has room for unless it is told.
pub const DEFAULT_SESSIONS: usize = 1_000_000;

impl Default for SeqNoTracker {
    fn default() -> Self {
        Self::new(DEFAULT_SESSIONS, Order::default())
    }
}

impl SeqNoTracker {
    /// Room for about `sessions` (in sixteen parts of equal size, which sessions fall into by
    /// chance).
    #[must_use]
    pub fn new(sessions: usize, order: Order) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            order,
            most_in_shard: sessions.div_ceil(SHARDS),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// What the mark says about an operation. Changes nothing.
    #[must_use]
    pub fn check(&self, session: SessionId, at: Mark) -> MarkCheck {
        self.progress(session).check(at, self.order)
    }

    /// Whether an operation of the session's present epoch is past its mark: later than all that
    /// was applied in it. An epoch is present from its fence on, and begins at number 1.
    #[must_use]
    pub fn should_apply(&self, session: SessionId, seqno: SeqNo) -> bool {
        let progress = self.progress(session);
        let at = Mark {
            epoch: progress.fence,
            seqno,
        };
        progress.check(at, Order::Monotonic).applies()
    }

    /// Where the session is; at 0 of epoch 0 if it was never seen.
    #[must_use]
    pub fn progress(&self, session: SessionId) -> Progress {
        let shard = self.shard(session).lock();
        shard.get(&session).copied().unwrap_or_default()
    }

    /// Moves the mark to an operation that was applied.
    ///
    /// # Errors
    /// [`MarkError::Behind`] if that would move it back or leave it where it is,
    /// [`MarkError::Full`] if the session is new and there is no room. Nothing is changed then.
    pub fn advance(&self, session: SessionId, to: Mark) -> Result<(), MarkError> {
        self.change(session, |progress| {
            let moves = to > progress.mark && to.epoch >= progress.fence;
            moves.then(|| progress.advanced(to))
        })
        .map(drop)
    }

    /// Ends all epochs before `epoch`: what of them is still in flight is refused from now on. →
    /// the last operation that was applied, from which a restarted producer goes on. Asked again,
    /// it says the same again.
    ///
    /// # Errors
    /// [`MarkError::Behind`] if a later epoch has begun, [`MarkError::Full`] if there is no room.
    pub fn fence(&self, session: SessionId, epoch: Epoch) -> Result<Mark, MarkError> {
        let changed = self.change(session, |progress| {
            let fence = (epoch >= progress.fence).then_some(epoch)?;
            Some(Progress { fence, ..progress })
        });
        changed.map(|progress| progress.mark)
    }

    fn change(
        &self,
        session: SessionId,
        to: impl FnOnce(Progress) -> Option<Progress>,
    ) -> Result<Progress, MarkError> {
        let mut shard = self.shard(session).lock();
        let room = shard.len() < self.most_in_shard;
        let known = shard.get_mut(&session);
        let next = to(known.as_deref().copied().unwrap_or_default()).ok_or(MarkError::Behind)?;
        match known {
            Some(progress) => *progress = next,
            None if !room => return Err(MarkError::Full),
            None => {
                shard.insert(session, next);
            }
        }
        Ok(next)
    }

    /// Takes over what was kept of a session elsewhere, whatever is here: for recovery, before
    /// anything is applied.
    pub(crate) fn restore(&self, session: SessionId, progress: Progress) {
        self.shard(session).lock().insert(session, progress);
    }

    /// Whether the session is known, or there is room for it.
    #[must_use]
    pub fn has_room(&self, session: SessionId) -> bool {
        let shard = self.shard(session).lock();
        shard.len() < self.most_in_shard || shard.contains_key(&session)
    }

    /// Forgets a session that will never send again. Returns where it was.
    pub fn retire(&self, session: SessionId) -> Option<Progress> {
        self.shard(session).lock().remove(&session)
    }

    /// How many sessions have a mark.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().len()).sum()
    }

    /// Whether no session has a mark.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is kept of every session, in no order.
    #[must_use]
    pub fn all(&self) -> Vec<(SessionId, Progress)> {
        let mut all = Vec::with_capacity(self.len());
        for shard in &self.shards {
            all.extend(
                shard
                    .0
                    .lock()
                    .iter()
                    .map(|(session, kept)| (*session, *kept)),
            );
        }
        all
    }

    fn shard(&self, session: SessionId) -> &Mutex<Sessions> {
        let hash = self.hasher.hash_one(session);
        let at = ((hash & 0xffff_ffff) * SHARDS as u64) >> 32;
        &self.shards[usize::try_from(at).unwrap_or_default()].0
    }
}

/// Why a mark was not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MarkError {
    /// Marks only grow.
    #[error("the session's mark is at this position or beyond it; marks only grow")]
    Behind,
    /// The bound on sessions is reached.
    #[error("the bound on sessions is reached; retire ended sessions, or raise the bound")]
    Full,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i15_the_table_of_the_rule() {
        use Order::{Contiguous, Monotonic};
        let gap = |n| MarkCheck::Gap { expected: SeqNo(n) };
        let skips = |first, missing| MarkCheck::Skips {
            first: SeqNo(first),
            missing,
        };
        let stale = MarkCheck::Stale { current: Epoch(1) };
        let table = [
            // epoch, number → with every number in turn, with numbers that only grow; the mark is
            // at 5 of epoch 1
            ((0, 6), stale, stale),
            ((1, 0), MarkCheck::Duplicate, MarkCheck::Duplicate),
            ((1, 4), MarkCheck::Duplicate, MarkCheck::Duplicate),
            ((1, 5), MarkCheck::Duplicate, MarkCheck::Duplicate),
            ((1, 6), MarkCheck::Next, MarkCheck::Next),
            ((1, 7), gap(6), skips(6, 1)),
            ((1, u64::MAX), gap(6), skips(6, u64::MAX - 6)),
            ((2, 0), MarkCheck::Duplicate, MarkCheck::Duplicate),
            ((2, 1), MarkCheck::Next, MarkCheck::Next),
            ((2, 3), gap(1), skips(1, 2)),
        ];
        for ((epoch, seqno), contiguous, monotonic) in table {
            let at = Mark::new(epoch, seqno);
            let progress = Progress::default().advanced(Mark::new(1, 5));
            assert_eq!(progress.check(at, Contiguous), contiguous, "{at:?}");
            assert_eq!(progress.check(at, Monotonic), monotonic, "{at:?}");
        }
    }

    #[test]
    fn a_mark_never_moves_back() {
        let tracker = SeqNoTracker::default();
        let session = SessionId::named("a");
        tracker.advance(session, Mark::new(1, 3)).unwrap();
        for behind in [Mark::new(1, 3), Mark::new(1, 2), Mark::new(0, 9)] {
            assert_eq!(tracker.advance(session, behind), Err(MarkError::Behind));
        }
        assert_eq!(tracker.progress(session).mark, Mark::new(1, 3));
    }

    #[test]
    fn a_fence_ends_earlier_epochs_and_says_how_far_they_came() {
        let tracker = SeqNoTracker::default();
        let session = SessionId::named("a");
        tracker.advance(session, Mark::new(1, 3)).unwrap();
        // The answer is lost twice; the producer asks again, and restarts.
        for epoch in [2, 2, 3] {
            assert_eq!(tracker.fence(session, Epoch(epoch)), Ok(Mark::new(1, 3)));
        }
        assert_eq!(tracker.fence(session, Epoch(2)), Err(MarkError::Behind));
        let stale = MarkCheck::Stale { current: Epoch(3) };
        assert_eq!(tracker.check(session, Mark::new(1, 4)), stale);
        assert_eq!(tracker.check(session, Mark::new(2, 1)), stale);
        assert_eq!(tracker.check(session, Mark::new(3, 1)), MarkCheck::Next);
        assert_eq!(
            tracker.advance(session, Mark::new(2, 1)),
            Err(MarkError::Behind)
        );
    }

    #[test]
    fn after_a_fence_the_new_epoch_starts_at_its_first_number() {
        let tracker = SeqNoTracker::default();
        let session = SessionId::named("a");
        tracker.advance(session, Mark::new(1, 3)).unwrap();
        let should_apply = |seqno| tracker.should_apply(session, SeqNo(seqno));
        assert!(!should_apply(3) && should_apply(4));
        tracker.fence(session, Epoch(2)).unwrap();
        assert!(!should_apply(0) && should_apply(1));
        tracker.advance(session, Mark::new(2, 1)).unwrap();
        assert!(!should_apply(1) && should_apply(2));
    }

    #[test]
    fn a_full_tracker_refuses_new_sessions_and_serves_the_old() {
        let tracker = SeqNoTracker::new(SHARDS, Order::Contiguous);
        let sessions: Vec<_> = (0..100)
            .map(|n| SessionId::named(&format!("{n}")))
            .collect();
        let one = Mark::new(0, 1);
        let (taken, refused): (Vec<&SessionId>, Vec<&SessionId>) = sessions
            .iter()
            .partition(|session| tracker.advance(**session, one).is_ok());
        assert_eq!(tracker.len(), taken.len());
        assert!(taken.len() <= SHARDS && !refused.is_empty());
        assert_eq!(tracker.advance(*refused[0], one), Err(MarkError::Full));
        assert!(!tracker.has_room(*refused[0]) && tracker.has_room(*taken[0]));
        tracker.advance(*taken[0], Mark::new(0, 2)).unwrap();
    }
}
