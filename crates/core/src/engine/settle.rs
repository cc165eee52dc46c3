//! The settlement of a run: which one its verdict asks for, and how it reaches the store.

use super::backoff::Backoff;
use super::lease::HeldLease;
use super::response::Verdict;
use crate::claim::{Grant, Settled, Settlement};
use crate::error::{StoreError, StoreErrorKind};
use crate::event::StoreCall;
use crate::record::CrashPolicy;

/// The settlement to write, by verdict and stored policy (P36).
pub(super) fn settlement(verdict: Verdict, crash: CrashPolicy, most: usize) -> Settlement {
    match (verdict, crash) {
        (Verdict::Complete(answer), _) => Settlement::Complete(answer.capped(most).into()),
        (Verdict::Fail(answer), _) => Settlement::Fail(answer.capped(most).into()),
        (Verdict::NoEffect, _) | (Verdict::Retry, CrashPolicy::Takeover) => Settlement::Release,
        (Verdict::Unknown, _) | (Verdict::Retry, CrashPolicy::Hold) => Settlement::Doubt,
    }
}

/// Sends the settlement until it is answered, for at most the span of one lease. Sending it again
/// is safe (P18), and giving up would leave an effect without a record.
pub(super) async fn settle(
    held: &HeldLease,
    grant: &Grant,
    settlement: &Settlement,
) -> Result<Settled, StoreError> {
    let clock = &held.engine.env.clock;
    let mut give_up = None;
    let mut backoff = Backoff::new();
    loop {
        let error = match settle_once(held, grant, settlement).await {
            Ok(settled) => return Ok(settled),
            Err(error) => error,
        };
        let now = clock.now();
        let give_up = *give_up.get_or_insert(now.plus(grant.lease));
        if !is_retryable_settle(held, &error) || now >= give_up {
            return Err(error);
        }
        clock.sleep(backoff.next_pause()).await;
    }
}

/// Whether a settlement that failed with `error` is sent again. Unlike a claim, it is also retried
/// if the store is full, because the effect already ran. A settlement that commits the effect
/// itself leaves no effect behind when it is rejected, so only transient errors and a full store
/// are retried.
pub(super) fn is_retryable_settle(held: &HeldLease, error: &StoreError) -> bool {
    match held.engine.commits {
        true => error.is_transient() || error.kind == StoreErrorKind::Full,
        false => error.kind.is_retried_for_settle(),
    }
}

/// Sends the settlement once.
pub(super) async fn settle_once(
    held: &HeldLease,
    grant: &Grant,
    settlement: &Settlement,
) -> Result<Settled, StoreError> {
    let engine = &held.engine;
    held.end();
    // Where the settlement commits the effect itself, there is no other record to write to.
    let apart = match &held.life {
        Some(life) if !engine.commits => {
            let subject = &held.subject;
            Box::pin(life.keep_apart(engine, subject, grant.fence, settlement)).await?
        }
        _ => None,
    };
    let call = engine
        .store
        .settle(grant, apart.as_ref().unwrap_or(settlement));
    engine.call(&held.subject, StoreCall::Settle, call).await
}
