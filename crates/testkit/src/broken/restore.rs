//! Restoring a record of another store, with a bug.

use semel_core::protocol::{self, Decision};
use semel_core::{Fence, Identity, Record, Restored, State, StoreResult, Timestamp};

use super::claims::round_trip;
use super::{BrokenStore, Bug};

impl BrokenStore {
    pub(super) async fn restored(
        &self,
        identity: &Identity,
        record: &Record,
    ) -> StoreResult<Restored> {
        let decide = |found: Option<&Record>, now| restore(self.shared.bug, found, record, now);
        if !self.has(Bug::RestoreLooksFirst) {
            return self.step(identity, decide);
        }
        let found = self.load(&self.shared.kept.lock(), identity)?;
        let decision = decide(found.as_ref(), self.now());
        round_trip().await;
        if let Some(record) = &decision.write {
            self.save(&mut self.shared.kept.lock(), identity, record)?;
        }
        Ok(decision.answer)
    }
}

fn restore(
    bug: Option<Bug>,
    found: Option<&Record>,
    record: &Record,
    now: Timestamp,
) -> Decision<Restored> {
    let released = |found: &Record| found.state == State::Released && !found.is_expired(now);
    let is = |wanted| bug == Some(wanted);
    let found = found.filter(|_| !is(Bug::RestoreOverwrites));
    let mut decision = protocol::restore(found, record, now);
    if is(Bug::RestoreLeavesReleased) && found.is_some_and(released) {
        return Decision {
            answer: Restored::Kept,
            write: None,
        };
    }
    if is(Bug::ResentRestoreIsKept) && decision.write.is_none() {
        decision.answer = Restored::Kept;
    }
    if is(Bug::RestoreRevives) && record.is_expired(now) {
        decision = Decision {
            answer: Restored::Written,
            write: Some(Record {
                written_at: now,
                ..record.clone()
            }),
        };
    }
    if let Some(write) = &mut decision.write {
        if is(Bug::RestoreForgetsTheFirstTime) {
            write.created_at = now;
        }
        if is(Bug::RestoreRestartsTheRetention) {
            write.written_at = now;
        }
        if is(Bug::RestoredFenceGoesBack) {
            write.fence = Fence(record.fence.0.min(write.fence.0));
        }
    }
    decision
}
