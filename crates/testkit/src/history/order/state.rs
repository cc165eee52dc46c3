//! Records in the form of the protocol, built from the replies of calls.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use semel_core::record::AnswerBody;
use semel_core::{
    Answer, Claim, ClaimTerms, CrashPolicy, Fence, Fingerprint, Identity, Key as Name, KeyHint,
    Namespace, Record, Resolution, Settlement, State, Timestamp, Token,
};

use super::super::event::{CallRequest, KeyEnding};
use super::super::view::View;

/// A record, as far as calls can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct KeyState {
    pub(super) state: State,
    pub(super) hold: bool,
    /// Not known where the claim that won it was never answered.
    pub(super) fence: Option<u64>,
    pub(super) token: u128,
    pub(super) attempt: u16,
    pub(super) max_attempts: u16,
    pub(super) payload: u64,
    pub(super) lease: u64,
    pub(super) retention: u64,
    /// Of the answer.
    pub(super) mark: u64,
    /// Of the checkpoint; 0 for none.
    pub(super) checkpoint: u64,
    /// The earliest and the latest time of the last write.
    pub(super) written: (u64, u64),
}

/// Everything that the protocol asks for and that has no say in what it decides.
pub(super) struct Terrain {
    identity: Identity,
    namespace: Namespace,
    hint: KeyHint,
    /// How far clocks may be apart.
    pub(super) slack: u64,
    /// For how long an end may be put off.
    pub(super) margin: u64,
    /// Whether records may come back.
    pub(super) keeps_past: bool,
    /// Whether the store's clock was set back meanwhile.
    pub(super) is_set_back: bool,
}

/// A record is written at this time, and asked for so much later.
pub(super) const WRITTEN: u64 = 1 << 50;

impl Terrain {
    pub(super) fn new(view: &View<'_>, keeps_past: bool) -> Self {
        let slack = view.slack;
        let name = Name::parse("key").expect("plain text");
        Self {
            identity: Identity::from_bytes([0; 32]),
            namespace: Namespace::new("", "", "scope").expect("plain text"),
            hint: name.hint(),
            slack,
            margin: view.margin,
            keeps_past,
            is_set_back: view.is_set_back(),
        }
    }

    pub(super) fn record(&self, state: &KeyState) -> Record {
        let written_at = Timestamp::from_micros(WRITTEN);
        let is_answered = matches!(state.state, State::Completed | State::Failed);
        Record {
            seal: self.identity.seal(),
            state: state.state,
            crash: policy(state.hold),
            fence: Fence(state.fence.unwrap_or(0)),
            token: Token(state.token),
            attempt: state.attempt,
            max_attempts: state.max_attempts,
            fingerprint: fingerprint(state.payload),
            secret_id: 0,
            lease: Duration::from_micros(state.lease),
            retention: Duration::from_micros(state.retention),
            created_at: written_at,
            written_at,
            namespace: self.namespace.clone(),
            hint: self.hint,
            checkpoint: progress(state.checkpoint),
            answer: is_answered.then(|| answer(state.mark)),
        }
    }

    pub(super) fn claim(&self, ask: &CallRequest) -> Option<Claim> {
        let CallRequest::Claim {
            token,
            payload,
            hold,
            lease,
            retention,
            max_attempts,
        } = *ask
        else {
            return None;
        };
        let (lease, retention) = (
            Duration::from_micros(lease),
            Duration::from_micros(retention),
        );
        Some(Claim {
            retry: false,
            identity: self.identity,
            fingerprint: fingerprint(payload),
            token: Token(token),
            terms: ClaimTerms::new(lease, retention, policy(hold), max_attempts).ok()?,
            secret_id: 0,
            namespace: self.namespace.clone(),
            hint: self.hint,
        })
    }
}

impl KeyState {
    pub(super) fn of(record: &Record, written: (u64, u64)) -> Self {
        let payload = record.fingerprint.as_bytes().first_chunk().copied();
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        Self {
            state: record.state,
            hold: record.crash == CrashPolicy::Hold,
            fence: Some(record.fence.0),
            token: record.token.0,
            attempt: record.attempt,
            max_attempts: record.max_attempts,
            payload: u64::from_be_bytes(payload.unwrap_or_default()),
            lease: micros(record.lease),
            retention: micros(record.retention),
            mark: record.answer.as_deref().map_or(0, mark_of),
            checkpoint: checkpoint_of(&record.checkpoint),
            written,
        }
    }

    pub(super) fn ending(&self) -> Option<KeyEnding> {
        match self.state {
            State::Running => None,
            State::Completed => Some(KeyEnding::Completed(self.mark)),
            State::Failed => Some(KeyEnding::Failed(self.mark)),
            State::InDoubt => Some(KeyEnding::InDoubt),
            State::Released => Some(KeyEnding::Released),
        }
    }
}

const fn policy(hold: bool) -> CrashPolicy {
    if hold {
        CrashPolicy::Hold
    } else {
        CrashPolicy::Takeover
    }
}

fn fingerprint(payload: u64) -> Fingerprint {
    let mut bytes = [0; Fingerprint::BYTES];
    bytes[..8].copy_from_slice(&payload.to_be_bytes());
    Fingerprint::from_bytes(bytes)
}

fn answer(mark: u64) -> Arc<Answer> {
    Arc::new(Answer::from_body(mark.to_be_bytes().to_vec()))
}

pub(super) fn mark_of(answer: &Answer) -> u64 {
    match &answer.body {
        AnswerBody::Kept(bytes) => {
            u64::from_be_bytes(bytes.first_chunk().copied().unwrap_or_default())
        }
        _ => 0,
    }
}

/// A checkpoint that stands for the one of this mark.
pub(super) fn progress(mark: u64) -> Bytes {
    if mark == 0 {
        Bytes::new()
    } else {
        Bytes::copy_from_slice(&mark.to_be_bytes())
    }
}

pub(super) fn checkpoint_of(progress: &Bytes) -> u64 {
    let mark = progress.first_chunk().copied();
    mark.map_or(0, u64::from_be_bytes)
}

pub(super) fn settlement(ending: KeyEnding) -> Settlement {
    match ending {
        KeyEnding::Completed(mark) => Settlement::Complete(answer(mark)),
        KeyEnding::Failed(mark) => Settlement::Fail(answer(mark)),
        KeyEnding::Released => Settlement::Release,
        KeyEnding::InDoubt => Settlement::Doubt,
    }
}

pub(super) fn resolution(ending: KeyEnding) -> Option<Resolution> {
    match ending {
        KeyEnding::Completed(mark) => Some(Resolution::Complete(answer(mark))),
        KeyEnding::Failed(mark) => Some(Resolution::Fail(answer(mark))),
        KeyEnding::Released => Some(Resolution::Release),
        KeyEnding::InDoubt => None,
    }
}
