//! The end of a transactional run: its settlement is the commit, and where there is none, what
//! became of it is found out.
//!
//! A transaction may be over before its settlement: the effect sent a `COMMIT` or `ROLLBACK` of its
//! own. Then nobody knows what of it was committed, and the doubt is kept outside of it. A
//! transaction that is still the claim's own is rolled back as one, so that nothing of it happened.

use semel_core::store::StoreResult;
use semel_core::{Claim, Claimed, Grant, Settled, Settlement, State};
use sqlx::Error;
use sqlx::types::Uuid;

use super::Transaction;
use crate::postgres::error::{Pg, is_broken, store_error, unexpected};
use crate::postgres::row::uuid;
use crate::postgres::statements::settle;
use crate::sql::records::{self, Statements as _};
use crate::sql::transaction::{Run, TxError, TxOutcome};

impl Run<Pg> {
    pub(super) async fn settle_here(
        &self,
        lease: &Grant,
        settlement: &Settlement,
    ) -> StoreResult<Settled> {
        let (open, ask, unanswered, fate) = {
            let mut slot = self.slot.lock();
            (
                slot.open.take(),
                slot.ask.clone(),
                slot.unanswered,
                slot.fate,
            )
        };
        let Some(ask) = ask else {
            return Ok(Settled::Lost);
        };
        if fate == Some(TxOutcome::Ended) {
            return self.keep_doubt(&ask).await;
        }
        match (settlement, open) {
            (Settlement::Complete(_), Some(tx)) => self.commit(tx, lease, &ask, settlement).await,
            (Settlement::Complete(_), None) if unanswered => self.confirm(&ask, settlement).await,
            (Settlement::Complete(_), None) => Ok(self.refuse(TxError::Kept)),
            (_, open) => {
                let fate = match fate {
                    Some(fate) => fate,
                    None => self.undo(open, &ask).await?,
                };
                match (fate, settlement) {
                    (TxOutcome::Ended, _) => self.keep_doubt(&ask).await,
                    (TxOutcome::RolledBack, Settlement::Release) => Ok(Settled::Done),
                    (TxOutcome::RolledBack, _) => self.keep_outside(&ask, settlement).await,
                }
            }
        }
    }

    async fn commit(
        &self,
        mut tx: Transaction,
        lease: &Grant,
        ask: &Claim,
        settlement: &Settlement,
    ) -> StoreResult<Settled> {
        // A caller that leaves from here on, as one does whose time is up, has to ask what became
        // of it.
        self.slot.lock().unanswered = true;
        let statement = settle(&self.store.inner.sql.settle_inside, lease, settlement, None);
        match statement.fetch_optional(&mut *tx).await {
            Ok(Some(_)) => {}
            Ok(None) => {
                roll_back(tx).await;
                self.decide(TxOutcome::Ended);
                return self.keep_doubt(ask).await;
            }
            Err(error) => {
                roll_back(tx).await;
                return match self.find_fate(ask).await? {
                    TxOutcome::Ended => self.keep_doubt(ask).await,
                    TxOutcome::RolledBack => Ok(self.refuse(why(error))),
                };
            }
        }
        match tx.commit().await {
            Ok(()) => Ok(Settled::Done),
            // The engine asks again, and `confirm` finds out.
            Err(error) if is_broken(&error) => Err(store_error(error)),
            Err(error) => Ok(self.refuse(TxError::Refused(error))),
        }
    }

    /// Finds out what became of a commit that was not answered, by claiming again with the same
    /// token. One that is still in flight is no answer yet: the engine asks again.
    async fn confirm(&self, ask: &Claim, settlement: &Settlement) -> StoreResult<Settled> {
        if self.find_fate(ask).await? == TxOutcome::Ended {
            return self.keep_doubt(ask).await;
        }
        match self.claim_outside(ask).await? {
            Claimed::Won(grant) => {
                records::settle(&*self.store.inner, &grant, &Settlement::Release).await?;
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

    /// Rolls back, before anything else is done: the next claim of this key must not meet what is
    /// being rolled back. → whether the transaction was still the claim's own.
    async fn undo(&self, open: Option<Transaction>, ask: &Claim) -> StoreResult<TxOutcome> {
        let Some(mut tx) = open else {
            return self.find_fate(ask).await;
        };
        let address = ask.identity.address();
        let statement = self.store.inner.sql.is_own.at(&address);
        let statement = statement
            .bind(Uuid::from_bytes(address))
            .bind(uuid(ask.token));
        let own = statement.fetch_optional(&mut *tx).await;
        roll_back(tx).await;
        match own {
            Ok(Some(_)) => Ok(self.decide(TxOutcome::RolledBack)),
            Ok(None) => Ok(self.decide(TxOutcome::Ended)),
            // Aborted by an error, or the connection is gone: the transaction itself can't be
            // asked.
            Err(_) => self.find_fate(ask).await,
        }
    }

    /// The outcome of a transaction that can't be asked any more. A running record under the run's
    /// own token is committed by nobody but the effect.
    async fn find_fate(&self, ask: &Claim) -> StoreResult<TxOutcome> {
        if let Some(known) = self.fate() {
            return Ok(known);
        }
        let seen = self.store.inner.look(&ask.identity).await?;
        let is_committed = seen.is_some_and(|seen| {
            seen.record.token == ask.token && seen.record.state == State::Running
        });
        Ok(match is_committed {
            true => self.decide(TxOutcome::Ended),
            false => self.decide(TxOutcome::RolledBack),
        })
    }

    /// Keeps that nobody knows what of the transaction was committed. Not kept if another has taken
    /// over.
    async fn keep_doubt(&self, ask: &Claim) -> StoreResult<Settled> {
        if self.keep_outside(ask, &Settlement::Doubt).await? == Settled::Done {
            return Ok(self.refuse(TxError::Ended));
        }
        Ok(Settled::Lost)
    }

    /// A claim outside of the transaction, once that is over.
    async fn claim_outside(&self, ask: &Claim) -> StoreResult<Claimed> {
        let claimed = records::try_claim(&*self.store.inner, ask).await?;
        claimed.ok_or_else(|| unexpected("the transaction is not over yet"))
    }

    /// Keeps a failure although the transaction is rolled back: by a claim and a settlement of
    /// their own.
    async fn keep_outside(&self, ask: &Claim, settlement: &Settlement) -> StoreResult<Settled> {
        match self.claim_outside(ask).await? {
            Claimed::Won(grant) => records::settle(&*self.store.inner, &grant, settlement).await,
            _ => Ok(Settled::Lost),
        }
    }
}

/// Why a transaction can't be committed.
fn why(error: Error) -> TxError {
    match is_broken(&error) {
        true => TxError::RolledBack,
        false => TxError::Refused(error),
    }
}

/// An error means that the connection is gone, and the transaction with it.
async fn roll_back(tx: Transaction) {
    let _ = tx.rollback().await;
}
