//! The end of a transactional run: its settlement is the commit. If there is none, this finds out
//! the outcome.
//!
//! A transaction may end before its settlement. If the server rolled it back, as after a deadlock,
//! nothing happened and nothing was committed since (see `guard`). If the effect ended it with a
//! statement of its own, it is unknown what was committed: that is a doubt, which is recorded
//! outside of the transaction.

use semel_core::store::StoreResult;
use semel_core::{Claim, Claimed, Grant, Settled, Settlement, State};

use super::guard::{Open, TransactionState};
use crate::mysql::error::{My, is_broken, store_error, unexpected};
use crate::mysql::row::RowRecord;
use crate::mysql::statements::settle;
use crate::sql::records::{self, Statements as _};
use crate::sql::transaction::{Run, TxError, TxOutcome};

impl Run<My> {
    pub(super) async fn settle_here(
        &self,
        lease: &Grant,
        settlement: &Settlement,
    ) -> StoreResult<Settled> {
        let (open, ask, unanswered) = {
            let mut slot = self.slot.lock();
            (slot.open.take(), slot.ask.clone(), slot.unanswered)
        };
        let Some(ask) = ask else {
            return Ok(Settled::Lost);
        };
        match (settlement, open) {
            (Settlement::Complete(_), Some(open)) => {
                self.commit(open, lease, &ask, settlement).await
            }
            (Settlement::Complete(_), None) if unanswered => {
                self.confirm(lease, &ask, settlement).await
            }
            (Settlement::Complete(_), None) => Ok(self.refuse(TxError::Kept)),
            // The effect still holds the transaction, which ends with it.
            (Settlement::Release, None) if !unanswered => Ok(Settled::Done),
            (_, None) if !unanswered => self.keep_outside(&ask, settlement).await,
            (_, open) => match (self.undo(open, lease, &ask).await?, settlement) {
                (TxOutcome::Ended, _) => self.keep_doubt(&ask).await,
                (TxOutcome::RolledBack, Settlement::Release) => Ok(Settled::Done),
                (TxOutcome::RolledBack, _) => self.keep_outside(&ask, settlement).await,
            },
        }
    }

    async fn commit(
        &self,
        mut open: Open,
        lease: &Grant,
        ask: &Claim,
        settlement: &Settlement,
    ) -> StoreResult<Settled> {
        self.store
            .inner
            .takes(settlement.answer().map(|answer| &**answer))?;
        // A caller that is cancelled from here on, for example by a timeout, has to find out the
        // outcome.
        self.slot.lock().unanswered = true;
        // Checked before the settlement, which would otherwise be part of another transaction.
        match open.release().await {
            TransactionState::Intact => {}
            TransactionState::RolledBack(error) | TransactionState::Lost(error)
                if is_broken(&error) =>
            {
                return self.give_up(open, lease, ask, TxError::RolledBack).await;
            }
            TransactionState::RolledBack(error) | TransactionState::Lost(error) => {
                return self
                    .give_up(open, lease, ask, TxError::Refused(error))
                    .await;
            }
            TransactionState::Ended => {
                self.decide(TxOutcome::Ended);
                return self.give_up(open, lease, ask, TxError::Ended).await;
            }
        }
        let statement = settle(&self.store.inner.sql.settle, lease, settlement);
        let why = match statement.execute(open.connection_mut()).await {
            Ok(done) if done.rows_affected() > 0 => None,
            Ok(_) => Some(TxError::RolledBack),
            Err(error) if is_broken(&error) => Some(TxError::RolledBack),
            Err(error) => Some(TxError::Refused(error)),
        };
        if let Some(why) = why {
            return self.give_up(open, lease, ask, why).await;
        }
        match open.commit().await {
            Ok(()) => Ok(Settled::Done),
            // The engine retries, and `confirm` finds out.
            Err(error) if is_broken(&error) => Err(store_error(error)),
            Err(error) => {
                let settled = self.confirm(lease, ask, settlement).await?;
                let is_undone = self.fate() == Some(TxOutcome::RolledBack);
                match is_undone {
                    true => Ok(self.refuse(TxError::Refused(error))),
                    false => Ok(settled),
                }
            }
        }
    }

    /// Rolls back, and records the reason: `why`, unless the effect committed on its own.
    async fn give_up(
        &self,
        open: Open,
        lease: &Grant,
        ask: &Claim,
        why: TxError,
    ) -> StoreResult<Settled> {
        let is_over = open.roll_back().await;
        match self.find_fate(lease, ask, is_over).await? {
            TxOutcome::Ended => self.keep_doubt(ask).await,
            TxOutcome::RolledBack => Ok(self.refuse(why)),
        }
    }

    /// Finds out the outcome of a commit without an answer, by claiming again with the same token:
    /// that waits for a transaction that is still open.
    async fn confirm(
        &self,
        lease: &Grant,
        ask: &Claim,
        settlement: &Settlement,
    ) -> StoreResult<Settled> {
        if self.fate() == Some(TxOutcome::Ended) {
            return self.keep_doubt(ask).await;
        }
        match records::claim(&*self.store.inner, ask).await? {
            Claimed::Won(grant) if grant.fence == lease.fence => {
                self.decide(TxOutcome::Ended);
                self.keep_doubt(ask).await
            }
            Claimed::Won(grant) => {
                records::settle(&*self.store.inner, &grant, &Settlement::Release).await?;
                self.decide(TxOutcome::RolledBack);
                Ok(self.refuse(TxError::RolledBack))
            }
            Claimed::Replay(replay) if settlement.answer() == Some(&replay.answer) => {
                let seen = self.store.inner.look(&ask.identity).await?;
                let is_ours = seen.is_some_and(|seen| seen.record.token == ask.token);
                Ok(if is_ours {
                    Settled::Done
                } else {
                    Settled::Lost
                })
            }
            _ => Ok(Settled::Lost),
        }
    }

    /// Rolls back before anything else: the next claim of this key must not meet the writes that
    /// are being rolled back. Returns whether that undid all of them.
    async fn undo(&self, open: Option<Open>, lease: &Grant, ask: &Claim) -> StoreResult<TxOutcome> {
        let Some(mut open) = open else {
            return self.find_fate(lease, ask, false).await;
        };
        self.slot.lock().unanswered = true;
        let found = open.release().await;
        let is_over = open.roll_back().await;
        match found {
            TransactionState::Ended => Ok(self.decide(TxOutcome::Ended)),
            TransactionState::Intact if is_over => Ok(self.decide(TxOutcome::RolledBack)),
            // The session looks the same after a deadlock and after a COMMIT and START TRANSACTION
            // of the effect. The record tells them apart.
            _ => self.find_fate(lease, ask, is_over).await,
        }
    }

    /// The outcome of a transaction that can't be asked any more. Its running record is there for
    /// others only if the effect committed it. Where the transaction may still be in flight
    /// (`is_over` is false), a claim with the same token waits for it.
    async fn find_fate(&self, lease: &Grant, ask: &Claim, is_over: bool) -> StoreResult<TxOutcome> {
        if let Some(known) = self.fate() {
            return Ok(known);
        }
        let seen = self.store.inner.look(&ask.identity).await?;
        if seen.is_some_and(|seen| belongs_to_run(&seen, lease)) {
            return Ok(self.decide(TxOutcome::Ended));
        }
        if is_over {
            return Ok(self.decide(TxOutcome::RolledBack));
        }
        match records::claim(&*self.store.inner, ask).await? {
            Claimed::Won(grant) if grant.fence == lease.fence => Ok(self.decide(TxOutcome::Ended)),
            Claimed::Won(grant) => {
                records::settle(&*self.store.inner, &grant, &Settlement::Release).await?;
                Ok(self.decide(TxOutcome::RolledBack))
            }
            Claimed::Busy(_) => {
                let seen = self.store.inner.look(&ask.identity).await?;
                let runs_elsewhere = seen.is_some_and(|seen| {
                    seen.record.state == State::Running && seen.record.token != ask.token
                });
                match runs_elsewhere {
                    true => Ok(self.decide(TxOutcome::RolledBack)),
                    false => Err(unexpected("the transaction is not over yet")),
                }
            }
            // Another claim won, so the key was free.
            _ => Ok(self.decide(TxOutcome::RolledBack)),
        }
    }

    /// Keeps that nobody knows what of the transaction was committed. Not kept if another has taken
    /// over.
    async fn keep_doubt(&self, ask: &Claim) -> StoreResult<Settled> {
        let is_kept = match records::claim(&*self.store.inner, ask).await? {
            Claimed::Won(grant) => {
                records::settle(&*self.store.inner, &grant, &Settlement::Doubt).await?
                    == Settled::Done
            }
            // An earlier attempt has recorded it, and its reply was lost.
            Claimed::InDoubt(_) => {
                let seen = self.store.inner.look(&ask.identity).await?;
                seen.is_some_and(|seen| seen.record.token == ask.token)
            }
            _ => false,
        };
        Ok(match is_kept {
            true => self.refuse(TxError::Ended),
            false => Settled::Lost,
        })
    }

    /// Keeps a failure although the transaction is rolled back: by a claim and a settlement of
    /// their own.
    async fn keep_outside(&self, ask: &Claim, settlement: &Settlement) -> StoreResult<Settled> {
        match records::claim(&*self.store.inner, ask).await? {
            Claimed::Won(grant) => records::settle(&*self.store.inner, &grant, settlement).await,
            _ => Ok(Settled::Lost),
        }
    }
}

/// Whether the record belongs to this run.
fn belongs_to_run(seen: &RowRecord, lease: &Grant) -> bool {
    seen.record.token == lease.token && seen.record.fence == lease.fence
}
