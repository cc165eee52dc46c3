//! A claim that got no answer, and was given up on. It may have won, or may win yet, and nobody runs under that lease.

use std::sync::Arc;

use super::Shared;
use super::lease::Held;
use super::limit::Backoff;
use super::remote::{RemoteLease, as_told};
use super::request::Request;
use super::run::settle;
use crate::claim::{Claim, Settlement};
use crate::identity::Identity;
use crate::record::{Record, State, Token};

/// Looks, a while later and beside the caller, whether the claim has won, and lets go of what it won: nothing was started
/// (P36). A process that ends doesn't wait for it: the lease then lapses by itself.
pub(super) fn release_later(engine: &Arc<Shared>, request: &Request, claim: &Claim) {
    let (engine, subject) = (Arc::clone(engine), request.subject.clone());
    let (identity, token, lease) = (claim.identity, claim.token, claim.terms.lease());
    let fingerprint = request.fingerprint;
    let spawn = Arc::clone(&engine.env.spawn);
    spawn.spawn(Box::pin(async move {
        let clock = Arc::clone(&engine.env.clock);
        let give_up = clock.now().plus(lease);
        // What is on its way is there by then, or nearly never comes.
        clock.sleep(engine.config.call_limit).await;
        let mut backoff = Backoff::new();
        let found = loop {
            match engine.look(&identity).await {
                Ok(found) => break found,
                Err(error) if !error.is_transient() || clock.now() >= give_up => return,
                Err(_) => clock.sleep(backoff.next_pause()).await,
            }
        };
        let Some(record) = found.filter(|record| is_held_under(record, token)) else {
            return;
        };
        let grant = as_told(&record, &named(identity, &record));
        let now = clock.now();
        let held = Held::new(engine, subject, Some(fingerprint), Some(grant.clone()), now);
        let _ = settle(&held, &grant, &Settlement::Release).await;
    }));
}

/// Also in doubt: others may have found the lease lapsed (P17).
fn is_held_under(record: &Record, token: Token) -> bool {
    record.token == token && matches!(record.state, State::Running | State::InDoubt)
}

const fn named(identity: Identity, record: &Record) -> RemoteLease {
    RemoteLease {
        identity,
        fence: record.fence,
        token: record.token,
    }
}
