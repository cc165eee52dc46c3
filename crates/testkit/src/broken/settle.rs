//! Renewals, settlements and resolutions, decided by the protocol, with a bug.

use std::sync::Arc;

use bytes::Bytes;
use semel_core::protocol::{self, Decision};
use semel_core::{
    Answer, AnswerBody, CrashPolicy, Fence, Fingerprint, Grant, KeyHint, Namespace, Record,
    Renewed, Resolution, Resolved, Settled, Settlement, State, Timestamp, Token,
};

use super::Bug;
use super::claim::NO_FINGERPRINT;

/// Decides a renewal.
pub(super) fn renew(
    bug: Option<Bug>,
    found: Option<&Record>,
    lease: &Grant,
    checkpoint: Option<&Bytes>,
    now: Timestamp,
) -> Decision<Renewed> {
    let Some(bug) = bug else {
        return protocol::renew(found, lease.fence, lease.token, checkpoint, now);
    };
    let seen = match bug {
        Bug::RenewIsUpsert => Some(made_up(lease, found, now)),
        _ => found.cloned(),
    };
    let seen = seen.map(|record| mistaken_for_renewal(bug, record, now));
    let (mut fence, mut token) = (lease.fence, lease.token);
    if let Some(record) = &seen {
        let (ignores_fence, ignores_token) = ignores(bug, Bug::RENEW);
        fence = if ignores_fence { record.fence } else { fence };
        token = if ignores_token { record.token } else { token };
    }
    let checkpoint = match (bug, checkpoint.cloned()) {
        (Bug::RenewalClearsCheckpoint, None) => Some(Bytes::new()),
        (Bug::EmptyCheckpointIgnored, Some(bytes)) if bytes.is_empty() => None,
        (Bug::CheckpointIsCut, Some(bytes)) => Some(bytes.slice(..bytes.len().min(4096))),
        (_, checkpoint) => checkpoint,
    };
    let decision = protocol::renew(seen.as_ref(), fence, token, checkpoint.as_ref(), now);
    match bug {
        Bug::PlainRenewalNotWritten if checkpoint.is_none() => Decision {
            write: None,
            ..decision
        },
        _ => decision,
    }
}

/// The record as a store with this bug sees it when it renews.
fn mistaken_for_renewal(bug: Bug, mut record: Record, now: Timestamp) -> Record {
    match bug {
        Bug::RenewRevives => {
            record.state = State::Running;
            record.answer = None;
        }
        Bug::LateRenewalRefused if record.is_lapsed(now) => record.state = State::Released,
        _ => {}
    }
    record
}

/// Decides a settlement.
pub(super) fn settle(
    bug: Option<Bug>,
    found: Option<&Record>,
    lease: &Grant,
    settlement: &Settlement,
    now: Timestamp,
) -> Decision<Settled> {
    let Some(bug) = bug else {
        return protocol::settle(found, lease.fence, lease.token, settlement, now);
    };
    let asked = misread(bug, settlement);
    let seen = match bug {
        // Whatever is there, or isn't, becomes what is settled.
        Bug::SettleIsUpsert => Some(made_up(lease, found, now)),
        _ => found.cloned(),
    };
    let seen = seen.map(|record| mistaken(bug, record, lease, now));
    let (fence, token) = asked_owner(bug, seen.as_ref(), lease, settlement);
    let mut decision = protocol::settle(seen.as_ref(), fence, token, &asked, now);
    if bug == Bug::ResentSettleIsLost && decision.write.is_none() {
        decision.answer = Settled::Lost;
    }
    if let (Some(written), Some(found)) = (&mut decision.write, found) {
        damage(bug, written, found);
    }
    let ends_a_doubt = found.is_some_and(|record| record.state == State::InDoubt);
    if bug == Bug::LateSettlementNotWritten && ends_a_doubt {
        decision.write = None;
    }
    decision
}

/// Decides a resolution.
pub(super) fn resolve(
    bug: Option<Bug>,
    found: Option<&Record>,
    fence: Fence,
    resolution: &Resolution,
    now: Timestamp,
) -> Decision<Resolved> {
    let mut seen = found.cloned();
    let mut fence = fence;
    if let (Some(bug), Some(record)) = (bug, &mut seen) {
        match bug {
            Bug::ResolveIgnoresFence => fence = record.fence,
            Bug::ResolveEndsARun if record.state == State::Running => record.state = State::InDoubt,
            Bug::UnnoticedLapseStays => record.written_at = now,
            _ => {}
        }
    }
    let mut decision = protocol::resolve(seen.as_ref(), fence, resolution, now);
    if bug == Some(Bug::ResentResolveRefused) && decision.write.is_none() {
        decision.answer = Resolved::NotInDoubt;
    }
    decision
}

impl Bug {
    /// Renewals that ignore the fence, the token, both.
    const RENEW: [Self; 3] = [
        Self::RenewIgnoresFence,
        Self::RenewIgnoresToken,
        Self::RenewIgnoresOwner,
    ];
    /// Settlements that ignore the fence, the token, both.
    const SETTLE: [Self; 3] = [
        Self::SettleIgnoresFence,
        Self::SettleIgnoresToken,
        Self::SettleIgnoresOwner,
    ];
}

fn ignores(bug: Bug, [fence, token, both]: [Bug; 3]) -> (bool, bool) {
    (bug == fence || bug == both, bug == token || bug == both)
}

/// Whom a store with this bug takes the settlement to come from.
fn asked_owner(
    bug: Bug,
    found: Option<&Record>,
    lease: &Grant,
    settlement: &Settlement,
) -> (Fence, Token) {
    let Some(record) = found else {
        return (lease.fence, lease.token);
    };
    let (mut fence, mut token) = ignores(bug, Bug::SETTLE);
    if bug == Bug::AnybodyMayRelease && *settlement == Settlement::Release {
        (fence, token) = (true, true);
    }
    let fence = if fence { record.fence } else { lease.fence };
    let token = if token { record.token } else { lease.token };
    (fence, token)
}

/// The record as a store with this bug sees it when it settles.
fn mistaken(bug: Bug, mut record: Record, lease: &Grant, now: Timestamp) -> Record {
    let owned = record.is_owned_by(lease.fence, lease.token);
    match bug {
        Bug::LateSettleRefused if record.is_lapsed(now) => record.token.0 ^= 1,
        Bug::DoubtSilencesOwner if record.state == State::InDoubt => record.token.0 ^= 1,
        Bug::SecondSettleOverwrites if owned && record.answer.is_some() => {
            record.state = State::Running;
            record.answer = None;
        }
        _ => {}
    }
    record
}

/// A record for a settlement that found none, or another's.
fn made_up(lease: &Grant, found: Option<&Record>, now: Timestamp) -> Record {
    let running = Record {
        seal: lease.identity.seal(),
        state: State::Running,
        crash: CrashPolicy::Takeover,
        fence: lease.fence,
        token: lease.token,
        attempt: lease.attempt,
        max_attempts: 1,
        fingerprint: Fingerprint::from_bytes([1; Fingerprint::BYTES]),
        secret_id: 0,
        lease: lease.lease,
        retention: lease.lease * 20,
        created_at: now,
        written_at: now,
        namespace: found.map_or_else(nowhere, |record| record.namespace.clone()),
        hint: KeyHint::default(),
        checkpoint: Bytes::new(),
        answer: None,
    };
    match found {
        Some(found) => Record {
            fingerprint: found.fingerprint,
            ..running
        },
        None => running,
    }
}

fn nowhere() -> Namespace {
    match Namespace::new("", "", "made-up") {
        Ok(namespace) => namespace,
        Err(error) => unreachable!("a plain scope is a namespace: {error}"),
    }
}

/// The settlement as a store with this bug understands it.
fn misread(bug: Bug, settlement: &Settlement) -> Settlement {
    match (bug, settlement.clone()) {
        (Bug::DoubtIsReleased, Settlement::Doubt) => Settlement::Release,
        (_, Settlement::Complete(answer)) => Settlement::Complete(mangled(bug, &answer)),
        (_, other) => other,
    }
}

/// The answer as a store with this bug keeps it.
fn mangled(bug: Bug, answer: &Answer) -> Arc<Answer> {
    let text = |bytes: &Bytes| Bytes::from(String::from_utf8_lossy(bytes).into_owned());
    let body = match (bug, answer.body.clone()) {
        (Bug::AnswerIsText, AnswerBody::Kept(body)) => AnswerBody::Kept(text(&body)),
        (Bug::AnswerIsCut, AnswerBody::Kept(body)) => {
            AnswerBody::Kept(body.slice(..body.len().min(1 << 16)))
        }
        (Bug::EmptyBodyIsOmitted, AnswerBody::Kept(body)) if body.is_empty() => {
            AnswerBody::Omitted { bytes: 0 }
        }
        (Bug::OmittedLengthLost, AnswerBody::Omitted { .. }) => AnswerBody::Omitted { bytes: 0 },
        (Bug::BodyElsewhereIsOmitted, AnswerBody::External { bytes, .. }) => {
            AnswerBody::Omitted { bytes }
        }
        (Bug::DigestCut, AnswerBody::External { bytes, mut digest }) => {
            digest[16..].fill(0);
            AnswerBody::External { bytes, digest }
        }
        (_, body) => body,
    };
    Arc::new(Answer {
        head: answer.head.clone(),
        body,
    })
}

/// What a store with this bug loses when it writes.
fn damage(bug: Bug, written: &mut Record, found: &Record) {
    match bug {
        Bug::FingerprintDroppedOnCompletion if written.answer.is_some() => {
            written.fingerprint = NO_FINGERPRINT;
        }
        Bug::FingerprintDroppedOnDoubt if written.state == State::InDoubt => {
            written.fingerprint = NO_FINGERPRINT;
        }
        Bug::SettlingKeepsTheOldRetention => written.written_at = found.written_at,
        _ => {}
    }
}
