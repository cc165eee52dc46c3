//! [`Mirror`]: records in two stores at once, for a live migration from one to the other (dual
//! writes).
//!
//! A fleet changes its store without downtime in four rollouts: old; old and new; new and old; new.
//! During each rollout, nodes of two neighbouring configurations serve at the same time, and the
//! rules hold throughout:
//!
//! - A lease is won only if *both* stores grant it, so it also excludes nodes that ask only one of
//!   them.
//! - An answer in either store ends the operation: if the other store lacks it, it is written
//!   there.
//! - The first store is settled first. It is the one that nodes of the neighbouring rollout ask
//!   too.
//!
//! If an owner crashes between the two settlements, the next claim through a mirror, or the
//! comparison of the stores at the end of the migration, completes the second one.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use semel_core::claim::{
    Busy, Claim, Claimed, Grant, Renewed, Resolution, Resolved, Restored, Settled, Settlement,
};
use semel_core::diagnosis::Finding;
use semel_core::env::BoxFuture;
use semel_core::error::{Certainty, StoreError};
use semel_core::identity::Identity;
use semel_core::record::{Fence, Record, State};
use semel_core::store::{Capabilities, Store, StoreAdmin, StoreResult, Wake};

/// Two stores that keep the same records.
#[derive(Clone)]
pub struct Mirror {
    first: Arc<dyn StoreAdmin>,
    second: Arc<dyn StoreAdmin>,
}

impl Mirror {
    /// A mirror that asks and settles `first` before `second`, and shows operators the records of
    /// `first`.
    #[must_use]
    pub fn new(first: Arc<dyn StoreAdmin>, second: Arc<dyn StoreAdmin>) -> Self {
        Self { first, second }
    }

    async fn claim_both(&self, ask: &Claim) -> StoreResult<Claimed> {
        let grant = match self.first.claim(ask).await? {
            Claimed::Won(grant) => grant,
            Claimed::InDoubt(doubt)
                if self.resolve_from_second(&ask.identity, doubt.fence).await? =>
            {
                return self.first.claim(ask).await;
            }
            other => return Ok(other),
        };
        let other = match self.second.claim(ask).await {
            Ok(other) => other,
            Err(error) => return Err(self.undo(&grant, error).await),
        };
        match other {
            Claimed::Won(twin) if grant.attempt > 1 => return self.take_over(grant, &twin).await,
            Claimed::Won(twin) => return Ok(Claimed::Won(with_twin(grant, &twin))),
            Claimed::Replay(replay) => {
                let settlement = match replay.state {
                    State::Failed => Settlement::Fail(Arc::clone(&replay.answer)),
                    _ => Settlement::Complete(Arc::clone(&replay.answer)),
                };
                self.first
                    .settle(&grant, &settlement)
                    .await
                    .map_err(unknown)?;
                return Ok(Claimed::Replay(replay));
            }
            Claimed::InDoubt(mut doubt) => {
                self.first
                    .settle(&grant, &Settlement::Doubt)
                    .await
                    .map_err(unknown)?;
                doubt.fence = grant.fence;
                return Ok(Claimed::InDoubt(doubt));
            }
            Claimed::Busy(_) | Claimed::Mismatch(_) => {}
        }
        // No effect was started under the lease, so it is released. A lease that was taken over
        // lapses instead, because it has to keep its attempts and checkpoint.
        if grant.attempt == 1 {
            self.first
                .settle(&grant, &Settlement::Release)
                .await
                .map_err(unknown)?;
        }
        Ok(other)
    }

    /// Both stores have granted the lease. The first may have granted it to an earlier sending of
    /// the same claim, which the second refused. That lease counts from then, while its owner
    /// counts from now (P30), so it is renewed.
    async fn take_over(&self, grant: Grant, twin: &Grant) -> StoreResult<Claimed> {
        if self.first.renew(&grant, None).await.map_err(unknown)? == Renewed::Held {
            return Ok(Claimed::Won(with_twin(grant, twin)));
        }
        if twin.attempt == 1 {
            let given_back = self.second.settle(twin, &Settlement::Release).await;
            given_back.map_err(unknown)?;
        }
        Ok(Claimed::Busy(Busy {
            since: Duration::ZERO,
            attempt: grant.attempt,
            retry_after: Duration::ZERO,
        }))
    }

    /// The second store failed. If it certainly didn't take the claim, the first one releases it,
    /// and nothing has changed. Otherwise a retry of the same claim finds it in both.
    async fn undo(&self, grant: &Grant, error: StoreError) -> StoreError {
        if error.certainty == Certainty::Unknown || grant.attempt > 1 {
            return unknown(error);
        }
        match self.first.settle(grant, &Settlement::Release).await {
            Ok(_) => error,
            Err(_) => unknown(error),
        }
    }

    /// Resolves a doubt in the first store with the settlement that the second one has. Returns
    /// whether it did.
    async fn resolve_from_second(&self, identity: &Identity, fence: Fence) -> StoreResult<bool> {
        let (Some(doubtful), Some(known)) = (
            self.first.read(identity).await?,
            self.second.read(identity).await?,
        ) else {
            return Ok(false);
        };
        let same_run = doubtful.token == known.token && doubtful.fingerprint == known.fingerprint;
        // Its answer is settled again, so it has to be there.
        let known = known.into_readable()?;
        let resolution = match (known.state, known.answer) {
            (State::Completed, Some(answer)) if same_run => Resolution::Complete(answer),
            (State::Failed, Some(answer)) if same_run => Resolution::Fail(answer),
            _ => return Ok(false),
        };
        let resolved = self.first.resolve(identity, fence, &resolution).await?;
        Ok(resolved == Resolved::Done)
    }

    /// The lease as each store granted it. If its memo is lost, the fence comes from the second
    /// store's record. If that has another owner, the lease is lost there.
    async fn both(&self, lease: &Grant) -> StoreResult<(Grant, Grant)> {
        if let Some(both) = split(lease) {
            return Ok(both);
        }
        let twin = self.second.read(&lease.identity).await?;
        let twin = twin.filter(|record| record.token == lease.token);
        let fence = twin.map_or(lease.fence, |record| record.fence);
        let bare = |fence| lease.clone().with_fence(fence).with_memo(Bytes::new());
        Ok((bare(lease.fence), bare(fence)))
    }

    async fn settle_both(&self, lease: &Grant, how: &Settlement) -> StoreResult<Settled> {
        let (mine, twin) = self.both(lease).await?;
        if self.first.settle(&mine, how).await? == Settled::Lost {
            return Ok(Settled::Lost);
        }
        // If the second store has another owner by now, that owner has the lease in one store only,
        // and learns that from the first one.
        self.second.settle(&twin, how).await.map_err(unknown)?;
        Ok(Settled::Done)
    }

    async fn renew_both(&self, lease: &Grant, checkpoint: Option<&Bytes>) -> StoreResult<Renewed> {
        let (mine, twin) = self.both(lease).await?;
        if self.first.renew(&mine, checkpoint).await? == Renewed::Lost {
            return Ok(Renewed::Lost);
        }
        self.second.renew(&twin, checkpoint).await.map_err(unknown)
    }

    async fn resolve_both(
        &self,
        identity: &Identity,
        fence: Fence,
        resolution: &Resolution,
    ) -> StoreResult<Resolved> {
        let resolved = self.first.resolve(identity, fence, resolution).await?;
        if resolved == Resolved::Done
            && let Some(twin) = self.second.read(identity).await.map_err(unknown)?
        {
            self.second
                .resolve(identity, twin.fence, resolution)
                .await
                .map_err(unknown)?;
        }
        Ok(resolved)
    }
}

/// Marks the error as uncertain: the first store was already changed.
const fn unknown(mut error: StoreError) -> StoreError {
    error.certainty = Certainty::Unknown;
    error
}

/// The first store's lease, with the second's in its memo.
fn with_twin(grant: Grant, twin: &Grant) -> Grant {
    let mut memo = BytesMut::with_capacity(12 + grant.memo.len() + twin.memo.len());
    memo.put_u64_le(twin.fence.0);
    memo.put_u32_le(u32::try_from(grant.memo.len()).unwrap_or(u32::MAX));
    memo.put_slice(&grant.memo);
    memo.put_slice(&twin.memo);
    let grant = grant.with_memo(memo.freeze());
    if grant.checkpoint.is_empty() {
        grant.with_checkpoint(twin.checkpoint.clone())
    } else {
        grant
    }
}

fn split(lease: &Grant) -> Option<(Grant, Grant)> {
    let mut memo = lease.memo.clone();
    let fence = Fence(memo.try_get_u64_le().ok()?);
    let length = usize::try_from(memo.try_get_u32_le().ok()?).ok()?;
    let mine = (length <= memo.len()).then(|| memo.split_to(length))?;
    let of = |fence, memo| lease.clone().with_fence(fence).with_memo(memo);
    Some((of(lease.fence, mine), of(fence, memo)))
}

impl Store for Mirror {
    fn capabilities(&self) -> Capabilities {
        let (first, second) = (self.first.capabilities(), self.second.capabilities());
        first
            .with_durable(first.durable && second.durable)
            .with_shared(first.shared && second.shared)
            // A node that uses only the second store sends no wake-ups here.
            .with_wake(match first.wake {
                Wake::Exact if second.shared => Wake::Hint,
                wake => wake,
            })
            .with_max_answer_bytes(first.max_answer_bytes.min(second.max_answer_bytes))
    }

    semel_core::forward_store!(|self| async => claim: claim_both, renew: renew_both, settle: settle_both, resolve: resolve_both);
    semel_core::forward_store!(|self| self.first => read, watch);
}

impl StoreAdmin for Mirror {
    fn delete<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<bool>> {
        Box::pin(async move {
            // The second store first: if the call is cancelled between the two, the first still has
            // the answer.
            let there = self.second.delete(identity).await?;
            Ok(self.first.delete(identity).await.map_err(unknown)? || there)
        })
    }

    fn restore<'a>(
        &'a self,
        identity: &'a Identity,
        record: &'a Record,
    ) -> BoxFuture<'a, StoreResult<Restored>> {
        Box::pin(async move {
            let restored = self.first.restore(identity, record).await?;
            if restored == Restored::Written {
                self.second
                    .restore(identity, record)
                    .await
                    .map_err(unknown)?;
            }
            Ok(restored)
        })
    }

    fn sweep(&self, most: usize) -> BoxFuture<'_, StoreResult<usize>> {
        Box::pin(async move {
            self.second.sweep(most).await?;
            self.first.sweep(most).await
        })
    }

    fn diagnose(&self) -> BoxFuture<'_, StoreResult<Vec<Finding>>> {
        Box::pin(async move {
            let mut findings = self.first.diagnose().await?;
            findings.extend(self.second.diagnose().await?);
            Ok(findings)
        })
    }

    semel_core::forward_store!(|self| self.first => list, expired, now, stats, connections);
}

impl std::fmt::Debug for Mirror {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = (
            self.first.capabilities().name,
            self.second.capabilities().name,
        );
        write!(f, "Mirror({}, {})", names.0, names.1)
    }
}
