//! Releases an orphaned claim: one that timed out, was given up, and may still have won its lease.

use std::sync::Arc;

use super::Shared;
use super::backoff::Backoff;
use super::lease::HeldLease;
use super::request::Request;
use super::settle::settle;
use crate::claim::{Claim, Grant, Settlement};
use crate::event::StoreCall;
use crate::record::{Record, State, Token};

/// Starts a background task that looks up whether the claim has won, and releases the lease if it
/// has: no effect was started under it (P36). A process that shuts down doesn't wait for this task;
/// the lease then lapses on its own.
pub(super) fn release_later(engine: &Arc<Shared>, request: &Request, claim: &Claim) {
    let (engine, subject) = (Arc::clone(engine), request.subject.clone());
    let (identity, token, lease) = (claim.identity, claim.token, claim.terms.lease());
    let fingerprint = request.fingerprint;
    let spawn = Arc::clone(&engine.env.spawn);
    spawn.spawn(Box::pin(async move {
        let clock = Arc::clone(&engine.env.clock);
        let give_up = clock.now().plus(lease);
        // A claim still in flight reaches the store within this time in nearly all cases.
        clock.sleep(engine.config.call_limit).await;
        let mut backoff = Backoff::new();
        let found = loop {
            let call = engine.store.read(&identity);
            match engine.call(&subject, StoreCall::Read, call).await {
                Ok(found) => break found,
                Err(error) if !error.is_transient() || clock.now() >= give_up => return,
                Err(_) => clock.sleep(backoff.next_pause()).await,
            }
        };
        let Some(record) = found.filter(|record| is_held_under(record, token)) else {
            return;
        };
        let grant = Grant::from_record(identity, &record);
        let now = clock.now();
        let (payload, lease) = (Some(fingerprint), Some(grant.clone()));
        let held = HeldLease::new(engine, subject, payload, lease, None, now);
        let _ = settle(&held, &grant, &Settlement::Release).await;
    }));
}

/// Includes a record in doubt: another claim may have found the lease lapsed and marked it so
/// (P17).
fn is_held_under(record: &Record, token: Token) -> bool {
    record.token == token && matches!(record.state, State::Running | State::InDoubt)
}
