//! Operator actions on a record: resolve a doubt, take away a lease, reset the key.
//!
//! Each is fenced (optimistic concurrency): it applies only to the state that the operator looked
//! at. Each is reported like any other step. None needs the content of a record, so they work on
//! records whose encryption key is gone.

use std::sync::Arc;

use super::request::Subject;
use super::{Engine, apart};
use crate::claim::{Grant, Resolution, Resolved, Settled, Settlement};
use crate::error::StoreError;
use crate::event::{Step, StoreCall};
use crate::identity::Identity;
use crate::record::{CrashPolicy, Fence, Record, State};
use crate::store::StoreAdmin;

/// The result of an operator's action.
#[derive(Clone, Debug)]
pub enum OperatorOutcome {
    /// The action was applied.
    Done {
        /// The record before the action.
        before: Box<Record>,
        /// The state after the action.
        state: State,
    },
    /// The key has no record.
    Absent,
    /// The record differs from the one that the operator looked at. Nothing was changed.
    MovedOn(Box<Record>),
}

/// The state to leave a record in when its lease is taken away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unlock {
    /// As the stored crash policy treats a failed owner: released under `takeover`, in doubt under
    /// `hold` (P36).
    #[default]
    ByPolicy,
    /// Free to claim: the operator knows that the effect did not happen, or may happen again.
    Release,
    /// In doubt: the operator doesn't know whether the effect happened.
    Doubt,
}

impl Engine {
    /// Ends a doubt (P19), fenced by the doubt's own fence.
    ///
    /// # Errors
    /// [`StoreError`] if the store gave no answer; calling again is safe.
    pub async fn resolve(
        &self,
        identity: &Identity,
        fence: Fence,
        resolution: &Resolution,
    ) -> Result<OperatorOutcome, StoreError> {
        let engine = &self.shared;
        let Some(before) = engine.inspect(identity).await? else {
            return Ok(OperatorOutcome::Absent);
        };
        let before = Box::new(before);
        let subject = Subject::from_record(&before, *identity);
        let call = engine.store.resolve(identity, fence, resolution);
        match engine.call(&subject, StoreCall::Resolve, call).await? {
            Resolved::NotInDoubt => Ok(OperatorOutcome::MovedOn(before)),
            Resolved::Done => {
                self.forget(identity);
                let state = Settlement::from(resolution.clone()).state();
                engine.emit(&subject, Step::Resolved { state, fence });
                Ok(OperatorOutcome::Done { before, state })
            }
        }
    }

    /// Takes a lease away from an owner that is gone or stuck, by settling it in the owner's name.
    ///
    /// If the owner is alive after all, its renewals and its settlement are Lost from then on (P14,
    /// P16), but its effect goes on: after a release the effect may happen twice.
    ///
    /// # Errors
    /// As [`Engine::resolve`].
    pub async fn unlock(
        &self,
        identity: &Identity,
        fence: Fence,
        to: Unlock,
    ) -> Result<OperatorOutcome, StoreError> {
        let engine = &self.shared;
        let Some(before) = engine.inspect(identity).await? else {
            return Ok(OperatorOutcome::Absent);
        };
        let before = Box::new(before);
        if before.state != State::Running || before.fence != fence {
            return Ok(OperatorOutcome::MovedOn(before));
        }
        let settlement = match (to, before.crash) {
            (Unlock::Release, _) | (Unlock::ByPolicy, CrashPolicy::Takeover) => Settlement::Release,
            (Unlock::Doubt, _) | (Unlock::ByPolicy, CrashPolicy::Hold) => Settlement::Doubt,
        };
        let subject = Subject::from_record(&before, *identity);
        // Forget before the call, so that the lease answers no other caller meanwhile. Forget again
        // at the end, even if this future is dropped, because the run may have been registered
        // meanwhile.
        self.forget(identity);
        let _at_the_end = ForgetGuard(self, identity);
        let grant = Grant::from_record(*identity, &before);
        let call = engine.store.settle(&grant, &settlement);
        match engine.call(&subject, StoreCall::Settle, call).await? {
            Settled::Lost => Ok(OperatorOutcome::MovedOn(before)),
            Settled::Done => {
                let state = settlement.state();
                engine.emit(&subject, Step::Unlocked { state, fence });
                Ok(OperatorOutcome::Done { before, state })
            }
        }
    }

    /// Resets a key in any state, if its fence is still the one that the operator looked at: the
    /// next claim runs the effect. `store` is this engine's store, with its operator interface.
    ///
    /// The fence is compared by a read right before the deletion. The deletion itself isn't fenced:
    /// an owner that takes over between the two loses its record, and its settlement will be Lost
    /// (P16). This process drops its cached answer, even if the deletion's reply is lost. Other
    /// processes may keep theirs for as long as P38 allows.
    ///
    /// # Errors
    /// As [`Engine::resolve`].
    pub async fn reset(
        &self,
        store: &Arc<dyn StoreAdmin>,
        identity: &Identity,
        fence: Fence,
    ) -> Result<OperatorOutcome, StoreError> {
        let engine = &self.shared;
        // Even if this future is dropped: the record may be gone although no reply came.
        let _at_the_end = ForgetGuard(self, identity);
        let Some(before) = engine.inspect(identity).await? else {
            return Ok(OperatorOutcome::Absent);
        };
        let before = Box::new(before);
        if before.fence != fence {
            return Ok(OperatorOutcome::MovedOn(before));
        }
        // Forget before the call as well, so that no cached answer is given while the deletion is
        // in flight.
        self.forget(identity);
        let subject = Subject::from_record(&before, *identity);
        // Its answer first: once the record is gone, nothing names it any more (P50).
        if let Some(answer) = apart::place_of(&engine.secret, &before) {
            let call = store.delete(&answer);
            engine.call(&subject, StoreCall::Delete, call).await?;
        }
        let call = store.delete(identity);
        engine.call(&subject, StoreCall::Delete, call).await?;
        engine.emit(&subject, Step::Deleted);
        let state = State::Released;
        Ok(OperatorOutcome::Done { before, state })
    }
}

/// Forgets a record when dropped.
struct ForgetGuard<'a>(&'a Engine, &'a Identity);

impl Drop for ForgetGuard<'_> {
    fn drop(&mut self) {
        self.0.forget(self.1);
    }
}
