//! The end of a transactional run: its settlement is the commit, and where there is none, what became of it is found out.
//!
//! A transaction may be over before its settlement. Rolled back by the server, as after a deadlock, nothing of it happened:
//! nothing was committed since (see `guard`). Ended by a statement of the effect's own, nobody knows what of it was
//! committed: that is a doubt, and kept outside of the transaction.

use semel_core::store::StoreResult;
use semel_core::{Claim, Claimed, Grant, Settled, Settlement, State};

use super::guard::{Found, Open};
use crate::mysql::error::{My, is_broken, store_error, unexpected};
use crate::mysql::row::Seen;
use crate::mysql::statements::settle;
use crate::sql::records::{self, Statements as _};
use crate::sql::transaction::{Fate, Run, TxError};

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
            // The effect has kept it, and it goes with the effect.
            (Settlement::Release, None) if !unanswered => Ok(Settled::Done),
            (_, None) if !unanswered => self.keep_outside(&ask, settlement).await,
            (_, open) => match (self.undo(open, lease, &ask).await?, settlement) {
                (Fate::Ended, _) => self.keep_doubt(&ask).await,
                (Fate::RolledBack, Settlement::Release) => Ok(Settled::Done),
                (Fate::RolledBack, _) => self.keep_outside(&ask, settlement).await,
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
        // A caller that leaves from here on, as one does whose time is up, has to ask what became of it.
        self.slot.lock().unanswered = true;
        // Before the settlement, which would otherwise be part of another transaction.
        match open.release().await {
            Found::Intact => {}
            Found::RolledBack(error) | Found::Lost(error) if is_broken(&error) => {
                return self.give_up(open, lease, ask, TxError::RolledBack).await;
            }
            Found::RolledBack(error) | Found::Lost(error) => {
                return self
                    .give_up(open, lease, ask, TxError::Refused(error))
                    .await;
            }
            Found::Ended => {
                self.decide(Fate::Ended);
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
            // The engine asks again, and `confirm` finds out.
            Err(error) if is_broken(&error) => Err(store_error(error)),
            Err(error) => {
                let settled = self.confirm(lease, ask, settlement).await?;
                let is_undone = self.fate() == Some(Fate::RolledBack);
                match is_undone {
                    true => Ok(self.refuse(TxError::Refused(error))),
                    false => Ok(settled),
                }
            }
        }
    }

    /// Rolls back, and says why: `why`, unless the effect committed by itself.
    async fn give_up(
        &self,
        open: Open,
        lease: &Grant,
        ask: &Claim,
        why: TxError,
    ) -> StoreResult<Settled> {
        let is_over = open.roll_back().await;
        match self.find_fate(lease, ask, is_over).await? {
            Fate::Ended => self.keep_doubt(ask).await,
            Fate::RolledBack => Ok(self.refuse(why)),
        }
    }

    /// Finds out what became of a commit that was not answered, by claiming again with the same token: that waits for
    /// a transaction that is still on its way.
    async fn confirm(
        &self,
        lease: &Grant,
        ask: &Claim,
        settlement: &Settlement,
    ) -> StoreResult<Settled> {
        if self.fate() == Some(Fate::Ended) {
            return self.keep_doubt(ask).await;
        }
        match records::claim(&*self.store.inner, ask).await? {
            Claimed::Won(grant) if grant.fence == lease.fence => {
                self.decide(Fate::Ended);
                self.keep_doubt(ask).await
            }
            Claimed::Won(grant) => {
                records::settle(&*self.store.inner, &grant, &Settlement::Release).await?;
                self.decide(Fate::RolledBack);
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

    /// Rolls back, before anything else is done: the next claim of this key must not meet what is being rolled back.
    /// → whether that undid all of it.
    async fn undo(&self, open: Option<Open>, lease: &Grant, ask: &Claim) -> StoreResult<Fate> {
        let Some(mut open) = open else {
            return self.find_fate(lease, ask, false).await;
        };
        self.slot.lock().unanswered = true;
        let found = open.release().await;
        let is_over = open.roll_back().await;
        match found {
            Found::Ended => Ok(self.decide(Fate::Ended)),
            Found::Intact | Found::RolledBack(_) if is_over => Ok(self.decide(Fate::RolledBack)),
            _ => self.find_fate(lease, ask, is_over).await,
        }
    }

    /// What became of a transaction that can't be asked any more. Its running record is there for others only if the effect
    /// committed it. Where the transaction may still be on its way (`is_over` is false), a claim with the same token waits
    /// for it.
    async fn find_fate(&self, lease: &Grant, ask: &Claim, is_over: bool) -> StoreResult<Fate> {
        if let Some(known) = self.fate() {
            return Ok(known);
        }
        let seen = self.store.inner.look(&ask.identity).await?;
        if seen.is_some_and(|seen| is_of(&seen, lease)) {
            return Ok(self.decide(Fate::Ended));
        }
        if is_over {
            return Ok(self.decide(Fate::RolledBack));
        }
        match records::claim(&*self.store.inner, ask).await? {
            Claimed::Won(grant) if grant.fence == lease.fence => Ok(self.decide(Fate::Ended)),
            Claimed::Won(grant) => {
                records::settle(&*self.store.inner, &grant, &Settlement::Release).await?;
                Ok(self.decide(Fate::RolledBack))
            }
            Claimed::Busy(_) => {
                let seen = self.store.inner.look(&ask.identity).await?;
                let runs_elsewhere = seen.is_some_and(|seen| {
                    seen.record.state == State::Running && seen.record.token != ask.token
                });
                match runs_elsewhere {
                    true => Ok(self.decide(Fate::RolledBack)),
                    false => Err(unexpected("the transaction is not over yet")),
                }
            }
            // Another was quicker, so the key was free.
            _ => Ok(self.decide(Fate::RolledBack)),
        }
    }

    /// Keeps that nobody knows what of the transaction was committed. Not kept where another has taken over.
    async fn keep_doubt(&self, ask: &Claim) -> StoreResult<Settled> {
        let is_kept = match records::claim(&*self.store.inner, ask).await? {
            Claimed::Won(grant) => {
                records::settle(&*self.store.inner, &grant, &Settlement::Doubt).await?
                    == Settled::Done
            }
            // By an earlier sending, whose reply was lost.
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

    /// Keeps a failure although the transaction is rolled back: by a claim and a settlement of their own.
    async fn keep_outside(&self, ask: &Claim, settlement: &Settlement) -> StoreResult<Settled> {
        match records::claim(&*self.store.inner, ask).await? {
            Claimed::Won(grant) => records::settle(&*self.store.inner, &grant, settlement).await,
            _ => Ok(Settled::Lost),
        }
    }
}

/// Whether it is the record of this very run.
fn is_of(seen: &Seen, lease: &Grant) -> bool {
    seen.record.token == lease.token && seen.record.fence == lease.fence
}
