//! From the model's small numbers to the values that the shipped functions take, and back.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use semel_core::{
    Answer, AnswerBody, Claim, CrashPolicy, Digest, Fence, Fingerprint, Identity, Key, Namespace,
};
use semel_core::{ClaimTerms, Record, Resolution, Secret, Settlement, Timestamp, Token};

use super::config::{Asker, ModelConfig, TICK};
use super::world::{AnswerNo, FenceNo, OPERATORS_ANSWER, Resolve, Row, Ticks, Verdict};

/// Tokens that one client may have in use at a time.
const TOKENS_EACH: u8 = 4;
const CHECKPOINT: Bytes = Bytes::from_static(b"checkpoint");

/// The claims that clients may send, made once, and what all records have in common.
#[derive(Debug)]
pub(super) struct Codec {
    claims: Vec<Claim>,
    lease: Ticks,
    retention: Ticks,
}

/// The `nth` token of a client.
pub(super) fn token_of(client: usize, nth: u8) -> u8 {
    small(client) * TOKENS_EACH + nth + 1
}

/// The client that a token belongs to.
pub(super) fn client_of(token: u8) -> usize {
    usize::from((token - 1) / TOKENS_EACH)
}

/// The first token of `client` that is not `taken`: tokens that left no trace may be used again,
/// which keeps the space finite and is the same as a new random one.
pub(super) fn free_token(client: usize, taken: impl Fn(u8) -> bool) -> u8 {
    let mut tokens = (0..TOKENS_EACH).map(|nth| token_of(client, nth));
    tokens
        .find(|&token| !taken(token))
        .expect("a record and the strays hold fewer tokens")
}

impl Codec {
    pub(super) fn new(config: &ModelConfig) -> Self {
        let namespace = Namespace::new("", "", "model").expect("a scope");
        let key = Key::parse("the-key").expect("a key");
        let identity = Identity::new(&Secret::none(), &namespace, &key);
        let asks = config
            .clients
            .iter()
            .enumerate()
            .flat_map(|(client, asker)| {
                (0..TOKENS_EACH).map(move |nth| (asker, token_of(client, nth)))
            });
        let claim = |(asker, token): (&Asker, u8)| Claim {
            retry: false,
            identity,
            fingerprint: fingerprint(asker.payload),
            token: Token(u128::from(token)),
            terms: terms(config, asker.crash),
            secret_id: 0,
            namespace: namespace.clone(),
            hint: key.hint(),
        };
        Self {
            claims: asks.map(claim).collect(),
            lease: config.lease,
            retention: config.retention,
        }
    }

    pub(super) fn claim(&self, token: u8) -> &Claim {
        &self.claims[usize::from(token - 1)]
    }

    /// The record that a row stands for.
    pub(super) fn record(&self, row: &Row) -> Record {
        let claim = &self.claims[0];
        Record {
            seal: claim.identity.seal(),
            state: row.state,
            crash: row.crash,
            fence: Fence(u64::from(row.fence)),
            token: Token(u128::from(row.token)),
            attempt: u16::from(row.attempt),
            max_attempts: claim.terms.max_attempts(),
            fingerprint: fingerprint(row.payload),
            secret_id: 0,
            lease: claim.terms.lease(),
            retention: claim.terms.retention(),
            // No decision looks at it, so it is not kept.
            created_at: time(0),
            written_at: time(row.written),
            namespace: claim.namespace.clone(),
            hint: claim.hint,
            checkpoint: if row.checkpoint {
                CHECKPOINT
            } else {
                Bytes::new()
            },
            answer: (row.answer != 0).then(|| answer(row.answer)),
        }
    }

    /// The row that stands for a record.
    pub(super) fn row(&self, record: &Record) -> Row {
        let row = Row {
            state: record.state,
            crash: record.crash,
            payload: record.fingerprint.as_bytes()[1],
            token: small(record.token.0),
            attempt: small(record.attempt),
            checkpoint: !record.checkpoint.is_empty(),
            written: small(u128::from(record.written_at.as_micros()) / TICK.as_micros()),
            fence: fence_no(record.fence),
            answer: record.answer.as_deref().map_or(0, answer_no),
        };
        debug_assert_eq!(
            self.record(&row),
            Record {
                created_at: time(0),
                ..record.clone()
            },
            "a record that the model has no row for"
        );
        row
    }

    pub(super) fn is_expired(&self, row: &Row, now: Ticks) -> bool {
        now >= row.written + self.retention
    }

    pub(super) fn is_past_lease(&self, row: &Row, now: Ticks) -> bool {
        now >= row.written + self.lease
    }
}

pub(super) fn time(ticks: Ticks) -> Timestamp {
    Timestamp::from_micros(0).plus(TICK * u32::from(ticks))
}

pub(super) fn checkpoint(given: bool) -> Option<Bytes> {
    given.then_some(CHECKPOINT)
}

pub(super) fn fence_no(fence: Fence) -> FenceNo {
    FenceNo::try_from(fence.0).expect("the horizon keeps fences small")
}

pub(super) fn answer_no(answer: &Answer) -> AnswerNo {
    let number = AnswerNo::from_be_bytes([answer.head[0], answer.head[1]]);
    match &answer.body {
        AnswerBody::Kept(_) => number,
        AnswerBody::External { .. } => number | ELSEWHERE,
        AnswerBody::Omitted { .. } => number | OMITTED,
    }
}

/// The settlement that a verdict calls for (P36). `Late` is a failure before anything happened.
pub(super) fn settlement(verdict: Verdict, crash: CrashPolicy, fence: FenceNo) -> Settlement {
    match (verdict, crash) {
        (Verdict::Complete, _) => Settlement::Complete(answer(fence)),
        (Verdict::Fail, _) => Settlement::Fail(answer(fence)),
        (Verdict::Retry, CrashPolicy::Takeover) => Settlement::Release,
        (Verdict::NoEffect | Verdict::Late, _) => Settlement::Release,
        (Verdict::Retry, CrashPolicy::Hold) | (Verdict::Unknown, _) => Settlement::Doubt,
    }
}

pub(super) fn resolution(resolve: Resolve) -> Resolution {
    match resolve {
        Resolve::Complete => Resolution::Complete(answer(OPERATORS_ANSWER)),
        Resolve::Fail => Resolution::Fail(answer(OPERATORS_ANSWER)),
        Resolve::Release => Resolution::Release,
    }
}

/// Mark an answer whose body lies elsewhere (P44), and one whose body was not kept (P27). No fence
/// is as large.
pub(super) const ELSEWHERE: AnswerNo = 0xff00;
pub(super) const OMITTED: AnswerNo = 0xfe00;
/// Answers that can be marked.
const MARKED: AnswerNo = 16;

/// The number of an answer, and its mark.
const fn parts(number: AnswerNo) -> (AnswerNo, AnswerNo) {
    match number & !(MARKED - 1) {
        mark @ (ELSEWHERE | OMITTED) => (number - mark, mark),
        _ => (number, 0),
    }
}

/// The number of an answer, wherever its body is.
pub(super) const fn unmarked(number: AnswerNo) -> AnswerNo {
    parts(number).0
}

pub(super) fn answer(number: AnswerNo) -> Arc<Answer> {
    let bytes = 2;
    let (of, mark) = parts(number);
    let body = match mark {
        ELSEWHERE => AnswerBody::External {
            bytes,
            digest: digest(of),
        },
        OMITTED => AnswerBody::Omitted { bytes },
        _ => AnswerBody::Kept(body(of)),
    };
    let head = self::body(of);
    Arc::new(Answer { head, body })
}

/// The body of an answer, of which the head is a copy.
pub(super) fn body(answer: AnswerNo) -> Bytes {
    Bytes::copy_from_slice(&answer.to_be_bytes())
}

fn digest(answer: AnswerNo) -> Digest {
    static ALL: LazyLock<Vec<Digest>> = LazyLock::new(|| {
        (0..MARKED)
            .map(|number| *blake3::hash(&body(number)).as_bytes())
            .collect()
    });
    ALL[usize::from(answer)]
}

/// The answer whose body has this digest.
pub(super) fn of_digest(wanted: &Digest) -> AnswerNo {
    (0..MARKED)
        .find(|&answer| digest(answer) == *wanted)
        .expect("a body of the model")
}

fn fingerprint(payload: u8) -> Fingerprint {
    let mut bytes = [0; Fingerprint::BYTES];
    (bytes[0], bytes[1]) = (1, payload);
    Fingerprint::from_bytes(bytes)
}

fn terms(config: &ModelConfig, crash: CrashPolicy) -> ClaimTerms {
    let lease = TICK * u32::from(config.lease);
    let retention = TICK * u32::from(config.retention);
    ClaimTerms::new(lease, retention, crash, u16::from(config.max_attempts))
        .expect("terms in bounds")
}

pub(super) fn small<N: TryInto<u8>>(number: N) -> u8 {
    number
        .try_into()
        .ok()
        .expect("the bounds keep numbers small")
}
