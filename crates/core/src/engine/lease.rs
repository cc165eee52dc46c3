//! [`Lease`]: what an effect holds while it runs.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;

use super::Shared;
use super::answer::Verdict;
use super::request::Subject;
use crate::claim::{Busy, Grant, Renewed};
use crate::clock::Tick;
use crate::error::StoreError;
use crate::event::{Step, StoreCall};
use crate::fingerprint::Fingerprint;
use crate::record::{Body, CrashPolicy, Fence, Record};
use crate::store::within;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The right to run, as the effect sees it. Cheap to clone.
///
/// The engine renews it while the effect runs. An effect that takes several steps should look at
/// [`Lease::is_lost`] before each one that can't be undone.
#[derive(Clone)]
pub struct Lease {
    pub(super) held: Arc<Held>,
}

pub(super) struct Held {
    pub(super) engine: Arc<Shared>,
    pub(super) subject: Subject,
    /// Of the payload that it runs for; `None` where nobody here knows it.
    pub(super) fingerprint: Option<Fingerprint>,
    /// `None` where the effect runs unprotected.
    pub(super) grant: Option<Grant>,
    began: Tick,
    // Microseconds on our monotonic clock; moved on by each renewal.
    deadline: AtomicU64,
    ended: AtomicBool,
    lost: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

/// The lease isn't ours any more, or the store couldn't say: stop before the next step.
#[derive(Debug, thiserror::Error)]
#[error("the lease is lost; stop before the next step that can't be undone")]
pub struct LeaseLost {
    /// What the store said, where it said anything.
    #[source]
    pub source: Option<StoreError>,
}

impl Lease {
    /// The fence: pass it to whatever can refuse an older one. `None` where the effect runs
    /// unprotected (mode `off` or `observe`, or fail-open).
    #[must_use]
    pub fn fence(&self) -> Option<Fence> {
        self.held.grant.as_ref().map(|grant| grant.fence)
    }

    /// What becomes of the key should this process vanish: the policy that its record was made under, which today's
    /// settings don't change. `None` where the effect runs unprotected.
    #[must_use]
    pub fn crash(&self) -> Option<CrashPolicy> {
        self.held.grant.as_ref().map(|grant| grant.crash)
    }

    /// 1, or more where earlier owners vanished.
    #[must_use]
    pub fn attempt(&self) -> u16 {
        self.held.grant.as_ref().map_or(1, |grant| grant.attempt)
    }

    /// What the last owner kept with [`Lease::checkpoint`], if it vanished after that.
    #[must_use]
    pub fn last_checkpoint(&self) -> Option<&Bytes> {
        let grant = self.held.grant.as_ref()?;
        (!grant.checkpoint.is_empty()).then_some(&grant.checkpoint)
    }

    /// A key for a system further down the road: the same for this operation and `step` on every
    /// attempt, and for nothing else.
    #[must_use]
    pub fn derive_key(&self, step: &str) -> String {
        self.held
            .subject
            .identity
            .derive_key(&self.held.engine.secret, step)
    }

    /// Keeps progress in the record, for whoever runs next should this process vanish. Renews the
    /// lease as well. At most [`Record::MAX_CHECKPOINT_BYTES`]; an empty one takes the last back.
    ///
    /// # Errors
    /// [`LeaseLost`] where the lease is another's by now, or the store gave no answer: then whether the
    /// checkpoint was kept is not known.
    ///
    /// # Panics
    /// Where the checkpoint is larger than the bound: that is a mistake in the program.
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

    /// Completes when the lease is lost: for an effect that can stop half-way.
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

    /// How long this owner may still start things, by its own clock. The engine's renewals extend it.
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

/// How much of a lease its owner doesn't use, so that it stops before the store lets another in.
pub(super) fn margin(lease: Duration) -> Duration {
    lease / 10
}

impl Held {
    /// `sent` is when the call that got or renewed the lease was first sent (P30).
    pub(super) fn new(
        engine: Arc<Shared>,
        subject: Subject,
        fingerprint: Option<Fingerprint>,
        grant: Option<Grant>,
        sent: Tick,
    ) -> Arc<Self> {
        let held = Self {
            engine,
            subject,
            fingerprint,
            grant,
            began: sent,
            deadline: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            wakers: Mutex::new(Vec::new()),
        };
        held.extend(sent);
        Arc::new(held)
    }

    fn extend(&self, sent: Tick) {
        let lease = self
            .grant
            .as_ref()
            .map_or(Duration::ZERO, |grant| grant.lease);
        let deadline = sent.plus(lease - margin(lease)).since_origin().as_micros();
        let deadline = u64::try_from(deadline).unwrap_or(u64::MAX);
        self.deadline.fetch_max(deadline, Ordering::SeqCst);
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

    /// What the store would tell another, as long as that is certain: before our deadline nobody can have
    /// taken over (I5), and we have not settled.
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

    /// Sends one renewal, and moves the deadline or raises the alarm by its answer.
    pub(super) async fn renew(
        &self,
        grant: &Grant,
        checkpoint: Option<&Bytes>,
    ) -> Result<Renewed, StoreError> {
        let engine = &self.engine;
        let sent = engine.env.clock.now();
        let call = engine.store.renew(grant, checkpoint);
        let answer = within(&*engine.env.clock, engine.config.call_limit, call).await;
        engine.called(&self.subject, StoreCall::Renew, sent, answer.is_ok());
        match &answer {
            Ok(Renewed::Held) => {
                self.extend(sent);
                engine.emit(&self.subject, Step::Renewed { fence: grant.fence });
            }
            // A settlement that is on its way, or done, makes a renewal lose. That is no alarm.
            Ok(Renewed::Lost) if self.has_ended() => {}
            Ok(Renewed::Lost) => self.lose(grant.fence),
            Err(error) => engine.store_failed(&self.subject, StoreCall::Renew, error),
        }
        answer
    }

    /// Tells of an answer whose body will be left out (P27).
    pub(super) fn tell_if_oversized(&self, verdict: &Verdict, most: usize) {
        let (Verdict::Complete(answer) | Verdict::Fail(answer)) = verdict else {
            return;
        };
        let bytes = match &answer.body {
            Body::Kept(body) if body.len() > most => body.len() as u64,
            // Left out by the door already.
            Body::Omitted { bytes } => *bytes,
            Body::Kept(_) | Body::Elsewhere { .. } => return,
        };
        self.engine
            .emit(&self.subject, Step::Oversized { bytes, most });
    }

    /// Tells the effect, once, that the lease is lost (P32).
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
