//! [`Lease`]: the right to run that an effect holds, with its fence, checkpoint and deadline.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;

use super::Shared;
use super::apart::AnswerLife;
use super::request::Subject;
use super::response::Verdict;
use crate::claim::{Busy, Grant, Renewed};
use crate::clock::Tick;
use crate::error::StoreError;
use crate::event::{Step, StoreCall};
use crate::fingerprint::Fingerprint;
use crate::record::{AnswerBody, CrashPolicy, Fence, Record};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The lease as the effect sees it: its right to run. Cheap to clone.
///
/// The engine renews it while the effect runs. An effect of several steps should check
/// [`Lease::is_lost`] before each step that can't be undone.
#[derive(Clone)]
pub struct Lease {
    pub(super) held: Arc<HeldLease>,
}

/// The state of one lease, shared by the effect, its renewals and its settlement.
pub(super) struct HeldLease {
    pub(super) engine: Arc<Shared>,
    pub(super) subject: Subject,
    /// The fingerprint of the payload that it runs for; `None` if this process doesn't know it.
    pub(super) fingerprint: Option<Fingerprint>,
    /// `None` if the effect runs unprotected.
    pub(super) grant: Option<Grant>,
    /// How long its answer lives, if that is shorter than the record does.
    pub(super) life: Option<AnswerLife>,
    began: Tick,
    /// Microseconds on this process's monotonic clock. Each renewal extends it.
    deadline: AtomicU64,
    ended: AtomicBool,
    lost: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

/// The lease belongs to another owner, or the store couldn't confirm it: stop before the next step.
#[derive(Debug, thiserror::Error)]
#[error("the lease is lost; stop before the next step that can't be undone")]
#[non_exhaustive]
pub struct LeaseLost {
    /// The store's error, if the call failed.
    #[source]
    pub source: Option<StoreError>,
}

impl Lease {
    /// The fencing token: pass it to systems that can reject an older one. `None` if the effect
    /// runs unprotected (mode `off` or `observe`, or fail-open).
    #[must_use]
    pub fn fence(&self) -> Option<Fence> {
        self.held.grant.as_ref().map(|grant| grant.fence)
    }

    /// What happens to the key if this process crashes: the policy stored with the first claim,
    /// which later settings don't change. `None` if the effect runs unprotected.
    #[must_use]
    pub fn crash(&self) -> Option<CrashPolicy> {
        self.held.grant.as_ref().map(|grant| grant.crash)
    }

    /// The number of this run: 1, or more if earlier owners crashed.
    #[must_use]
    pub fn attempt(&self) -> u16 {
        self.held.grant.as_ref().map_or(1, |grant| grant.attempt)
    }

    /// The progress that a crashed owner kept with [`Lease::checkpoint`].
    #[must_use]
    pub fn last_checkpoint(&self) -> Option<&Bytes> {
        let grant = self.held.grant.as_ref()?;
        (!grant.checkpoint.is_empty()).then_some(&grant.checkpoint)
    }

    /// An idempotency key for a downstream system: the same for this operation and `step` on every
    /// attempt, and different for everything else.
    #[must_use]
    pub fn derive_key(&self, step: &str) -> String {
        self.held
            .subject
            .identity
            .derive_key(&self.held.engine.secret, step)
    }

    /// Keeps progress in the record for the next owner, should this process crash. Renews the lease
    /// as well. At most
    /// [`Record::MAX_CHECKPOINT_BYTES`]; an empty checkpoint removes the last one.
    ///
    /// # Errors
    /// [`LeaseLost`] if the lease belongs to another owner by now, or if the store gave no answer:
    /// whether the checkpoint was kept is unknown then.
    ///
    /// # Panics
    /// If the checkpoint is larger than the bound, which is a mistake in the program.
    pub async fn checkpoint(&self, progress: impl Into<Bytes>) -> Result<(), LeaseLost> {
        let progress = progress.into();
        assert!(
            progress.len() <= Record::MAX_CHECKPOINT_BYTES,
            "the checkpoint is too large"
        );
        let Some(grant) = &self.held.grant else {
            return Ok(());
        };
        match self.held.renew(grant, Some(&progress)).await {
            Ok(Renewed::Held) => Ok(()),
            Ok(Renewed::Lost) => Err(LeaseLost { source: None }),
            Err(source) => Err(LeaseLost {
                source: Some(source),
            }),
        }
    }

    /// Whether the lease is known to be lost, or its deadline has passed unrenewed.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.held.lost.load(Ordering::SeqCst)
            || self.held.grant.is_some() && self.remaining().is_zero()
    }

    /// Completes when the lease is lost, for an effect that can stop halfway.
    pub async fn lost(&self) {
        poll_fn(|cx| {
            let mut wakers = self.held.wakers.lock();
            if self.held.lost.load(Ordering::SeqCst) {
                return Poll::Ready(());
            }
            if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                wakers.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// How long this owner may still start steps, by its own clock. The engine's renewals extend
    /// it.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let identity = self.held.subject.identity;
        write!(
            f,
            "Lease({identity}, fence {:?}, attempt {})",
            self.fence(),
            self.attempt()
        )
    }
}

/// The safety margin at the end of a lease: the owner stops before the store lets another one in.
pub(super) fn margin(lease: Duration) -> Duration {
    lease / 10
}

/// When the owner has to stop, in microseconds on this process's monotonic clock.
fn deadline(sent: Tick, lease: Duration) -> u64 {
    sent.plus(lease - margin(lease)).as_micros()
}

impl HeldLease {
    /// `sent` is when the call that got or renewed the lease was first sent (P30).
    pub(super) fn new(
        engine: Arc<Shared>,
        subject: Subject,
        fingerprint: Option<Fingerprint>,
        grant: Option<Grant>,
        life: Option<AnswerLife>,
        sent: Tick,
    ) -> Arc<Self> {
        let lease = grant.as_ref().map_or(Duration::ZERO, |grant| grant.lease);
        // Made in place, because it is large.
        Arc::new(Self {
            engine,
            subject,
            fingerprint,
            grant,
            life,
            began: sent,
            deadline: AtomicU64::new(deadline(sent, lease)),
            ended: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            wakers: Mutex::new(Vec::new()),
        })
    }

    /// When the claim was sent that got the lease.
    pub(super) const fn began(&self) -> Tick {
        self.began
    }

    fn extend(&self, sent: Tick, lease: Duration) {
        self.deadline
            .fetch_max(deadline(sent, lease), Ordering::SeqCst);
    }

    pub(super) fn remaining(&self) -> Duration {
        match self.grant {
            Some(_) => self.deadline().since(self.engine.env.clock.now()),
            None => Duration::MAX,
        }
    }

    pub(super) fn deadline(&self) -> Tick {
        Tick::new(Duration::from_micros(self.deadline.load(Ordering::SeqCst)))
    }

    /// The store's answer to another claim of the key. `None` once that is uncertain: after the
    /// deadline another owner may have taken over (I5), and a settlement ends the run.
    pub(super) fn busy(&self, now: Tick) -> Option<Busy> {
        let grant = self.grant.as_ref()?;
        let left = self.deadline().since(now);
        if left.is_zero() || self.has_ended() || self.lost.load(Ordering::SeqCst) {
            return None;
        }
        Some(Busy {
            since: now.since(self.began),
            attempt: grant.attempt,
            retry_after: left + margin(grant.lease),
        })
    }

    /// Sends one renewal. Extends the deadline, or marks the lease as lost, by its answer.
    pub(super) async fn renew(
        &self,
        grant: &Grant,
        checkpoint: Option<&Bytes>,
    ) -> Result<Renewed, StoreError> {
        let engine = &self.engine;
        let sent = engine.env.clock.now();
        let call = engine.store.renew(grant, checkpoint);
        let renewal = engine.call_sent_at(sent, &self.subject, StoreCall::Renew, call);
        let answer = renewal.await;
        match &answer {
            Ok(Renewed::Held) => {
                self.extend(sent, grant.lease);
                engine.emit(&self.subject, Step::Renewed { fence: grant.fence });
            }
            Ok(Renewed::Lost) if !self.has_ended() => self.lose(grant.fence),
            // A settlement that is in flight, or done, makes a renewal lose: that is expected.
            Ok(Renewed::Lost) | Err(_) => {}
        }
        answer
    }

    /// Reports an answer whose body will be left out of the record (P27).
    pub(super) fn report_if_oversized(&self, verdict: &Verdict, most: usize) {
        let (Verdict::Complete(answer) | Verdict::Fail(answer)) = verdict else {
            return;
        };
        let bytes = match &answer.body {
            AnswerBody::Kept(body) if body.len() > most => body.len() as u64,
            // The door has left it out already.
            AnswerBody::Omitted { bytes } => *bytes,
            AnswerBody::Kept(_) | AnswerBody::External { .. } => return,
        };
        self.engine
            .emit(&self.subject, Step::Oversized { bytes, most });
    }

    /// Marks the lease as lost, and wakes the effect if it waits for that (P32).
    pub(super) fn lose(&self, fence: Fence) {
        let wakers = {
            let mut wakers = self.wakers.lock();
            if self.lost.swap(true, Ordering::SeqCst) {
                return;
            }
            std::mem::take(&mut *wakers)
        };
        self.engine.emit(&self.subject, Step::LeaseLost { fence });
        for waker in wakers {
            waker.wake();
        }
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}
