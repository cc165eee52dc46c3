//! What an operator does to a record: end a doubt, take a lease away, make the key as new.
//!
//! Fenced by what the operator looked at, and reported like any other step.

use std::sync::Arc;

use bytes::Bytes;

use super::request::Subject;
use super::{Engine, Shared};
use crate::claim::{Grant, Resolution, Resolved, Settled, Settlement};
use crate::error::StoreError;
use crate::event::{Step, StoreCall};
use crate::identity::Identity;
use crate::record::{CrashPolicy, Fence, Record, State};
use crate::store::{StoreAdmin, within};

/// What became of an operator's step.
#[derive(Clone, Debug)]
pub enum Operated {
    /// Done: the record before, and what it says now.
    Done {
        /// As it was found.
        before: Box<Record>,
        /// What it says now.
        state: State,
    },
    /// There is no record.
    Absent,
    /// The record is not, or no longer, what the operator looked at. Nothing was changed.
    MovedOn(Box<Record>),
}

/// What a record says after its lease was taken away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unlock {
    /// What the stored crash policy says of an owner that failed: released under `takeover`, in doubt under
    /// `hold` (P36).
    #[default]
    ByPolicy,
    /// Free to claim: the operator knows that the effect did not happen, or may happen again.
    Release,
    /// In doubt.
    Doubt,
}

impl Engine {
    /// Ends a doubt (P19), fenced by the doubt's own fence.
    ///
    /// # Errors
    /// [`StoreError`] where the store gave no answer; asking again is safe.
    pub async fn resolve(
        &self,
        identity: &Identity,
        fence: Fence,
        resolution: &Resolution,
    ) -> Result<Operated, StoreError> {
        let engine = &self.shared;
        let Some(before) = engine.look(identity).await? else {
            return Ok(Operated::Absent);
        };
        let before = Box::new(before);
        let subject = Subject::of(&before, *identity);
        let sent = engine.tick();
        let call = engine.store.resolve(identity, fence, resolution);
        let resolved = within(&*engine.env.clock, engine.config.call_limit, call).await;
        engine.called(&subject, StoreCall::Resolve, sent, resolved.is_ok());
        match resolved
            .inspect_err(|error| engine.store_failed(&subject, StoreCall::Resolve, error))?
        {
            Resolved::NotInDoubt => Ok(Operated::MovedOn(before)),
            Resolved::Done => {
                self.forget(identity);
                let state = Settlement::from(resolution.clone()).state();
                engine.emit(&subject, Step::Resolved { state, fence });
                Ok(Operated::Done { before, state })
            }
        }
    }

    /// Takes a lease away from an owner that is gone or stuck, by settling it in the owner's name.
    ///
    /// Should the owner live after all, its renewals and its settlement are Lost from here on (P14, P16), and
    /// what it has done, or still does, stands: after a release the effect may happen twice.
    ///
    /// # Errors
    /// As [`Engine::resolve`].
    pub async fn unlock(
        &self,
        identity: &Identity,
        fence: Fence,
        to: Unlock,
    ) -> Result<Operated, StoreError> {
        let engine = &self.shared;
        let Some(before) = engine.look(identity).await? else {
            return Ok(Operated::Absent);
        };
        let before = Box::new(before);
        if before.state != State::Running || before.fence != fence {
            return Ok(Operated::MovedOn(before));
        }
        let settlement = match (to, before.crash) {
            (Unlock::Release, _) | (Unlock::ByPolicy, CrashPolicy::Takeover) => Settlement::Release,
            (Unlock::Doubt, _) | (Unlock::ByPolicy, CrashPolicy::Hold) => Settlement::Doubt,
        };
        let subject = Subject::of(&before, *identity);
        // Before, so that nobody is told of the lease while it is taken away; and after, however this ends, as the run may
        // have been made known meanwhile.
        self.forget(identity);
        let _at_the_end = Forget(self, identity);
        match engine.settle_for(&subject, &before, &settlement).await? {
            Settled::Lost => Ok(Operated::MovedOn(before)),
            Settled::Done => {
                let state = settlement.state();
                engine.emit(&subject, Step::Unlocked { state, fence });
                Ok(Operated::Done { before, state })
            }
        }
    }

    /// Makes a key as new, whatever its record says, if its fence is still the one that was looked at: the next claim
    /// runs the effect. `store` is the one behind this engine, with its operator's side.
    ///
    /// The fence is compared with a look right before the deletion. A store's deletion names no fence, so who takes
    /// the key over between the two loses its record all the same: its settlement will be Lost (P16). This process
    /// keeps no copy of the answer, also where the deletion's reply got lost; other processes may, for as long as P38
    /// says.
    ///
    /// # Errors
    /// As [`Engine::resolve`].
    pub async fn reset(
        &self,
        store: &Arc<dyn StoreAdmin>,
        identity: &Identity,
        fence: Fence,
    ) -> Result<Operated, StoreError> {
        let engine = &self.shared;
        // However this ends, or is cut: the record may be gone without anybody having said so.
        let _at_the_end = Forget(self, identity);
        let Some(before) = engine.look(identity).await? else {
            return Ok(Operated::Absent);
        };
        let before = Box::new(before);
        if before.fence != fence {
            return Ok(Operated::MovedOn(before));
        }
        // Before as well: nobody is answered from a copy while the deletion is on its way.
        self.forget(identity);
        let call = store.delete(identity);
        within(&*engine.env.clock, engine.config.call_limit, call).await?;
        engine.emit(&Subject::of(&before, *identity), Step::Deleted);
        let state = State::Released;
        Ok(Operated::Done { before, state })
    }
}

/// Forgets a record when dropped.
struct Forget<'a>(&'a Engine, &'a Identity);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.forget(self.1);
    }
}

impl Shared {
    async fn settle_for(
        &self,
        subject: &Subject,
        record: &Record,
        settlement: &Settlement,
    ) -> Result<Settled, StoreError> {
        let grant = Grant {
            identity: subject.identity,
            fence: record.fence,
            token: record.token,
            attempt: record.attempt,
            checkpoint: Bytes::new(),
            lease: record.lease,
            crash: record.crash,
            memo: Bytes::new(),
        };
        let sent = self.tick();
        let call = self.store.settle(&grant, settlement);
        let settled = within(&*self.env.clock, self.config.call_limit, call).await;
        self.called(subject, StoreCall::Settle, sent, settled.is_ok());
        settled.inspect_err(|error| self.store_failed(subject, StoreCall::Settle, error))
    }
}
