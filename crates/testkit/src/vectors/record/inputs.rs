//! The records to pack, and the bytes to refuse.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use semel_core::{
    Answer, AnswerBody, CrashPolicy, Fence, Fingerprint, Key, Namespace, Record, State, Timestamp,
    Token,
};

/// The seal of every record here but one.
pub(super) const SEAL: [u8; 16] = *b"sealsealsealseal";

/// Records, with what is special about them. The first is the plainest.
pub(super) fn records() -> Vec<(&'static str, Record)> {
    let plain = plain();
    let answered = |state, head: &'static [u8], body: AnswerBody| {
        let head = Bytes::from_static(head);
        Record {
            state,
            answer: Some(Arc::new(Answer { head, body })),
            ..plain.clone()
        }
    };
    let kept = |body: &'static [u8]| AnswerBody::Kept(Bytes::from_static(body));
    vec![
        ("running", plain.clone()),
        (
            "running, with a checkpoint",
            Record {
                attempt: 2,
                checkpoint: Bytes::from_static(b"{\"charge\":\"ch_1\"}"),
                written_at: Timestamp::from_micros(1_790_000_031_000_000),
                ..plain.clone()
            },
        ),
        (
            "completed",
            answered(State::Completed, b"201", kept(b"{\"id\":1}")),
        ),
        (
            "completed, nothing in it",
            answered(State::Completed, b"", kept(b"")),
        ),
        (
            "completed, body not kept",
            answered(
                State::Completed,
                b"200",
                AnswerBody::Omitted { bytes: 1 << 40 },
            ),
        ),
        (
            "completed, body kept elsewhere",
            answered(
                State::Completed,
                b"200",
                AnswerBody::External {
                    bytes: 3 << 20,
                    digest: std::array::from_fn(|at| u8::try_from(at * 7).unwrap_or(0)),
                },
            ),
        ),
        (
            "failed",
            answered(State::Failed, b"402", kept(b"no \xff funds")),
        ),
        (
            "in doubt",
            Record {
                state: State::InDoubt,
                crash: CrashPolicy::Hold,
                ..plain.clone()
            },
        ),
        (
            "released",
            Record {
                state: State::Released,
                ..plain.clone()
            },
        ),
        ("every field at its end", at_the_end(plain)),
    ]
}

/// A record with every number as large as it can be.
fn at_the_end(plain: Record) -> Record {
    Record {
        seal: [0xff; 16],
        state: State::InDoubt,
        crash: CrashPolicy::Hold,
        fence: Fence(u64::MAX),
        token: Token(u128::MAX),
        attempt: u16::MAX,
        max_attempts: u16::MAX,
        fingerprint: Fingerprint::from_bytes([0xff; 17]),
        secret_id: u16::MAX,
        lease: Duration::from_millis(u32::MAX.into()),
        retention: Duration::from_millis(u64::MAX),
        created_at: Timestamp::from_micros(u64::MAX),
        written_at: Timestamp::from_micros(u64::MAX),
        namespace: namespace(&"e".repeat(128), "Ünïcode", "😀"),
        ..plain
    }
}

fn namespace(environment: &str, tenant: &str, scope: &str) -> Namespace {
    Namespace::new(environment, tenant, scope).expect("a fitting namespace")
}

fn plain() -> Record {
    Record {
        seal: SEAL,
        state: State::Running,
        crash: CrashPolicy::Takeover,
        fence: Fence(1_790_000_000_000_000),
        token: Token(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100),
        attempt: 1,
        max_attempts: 3,
        fingerprint: Fingerprint::from_bytes(*b"\x01fingerprintfinge"),
        secret_id: 1,
        lease: Duration::from_secs(30),
        retention: Duration::from_secs(24 * 60 * 60),
        created_at: Timestamp::from_micros(1_790_000_000_000_000),
        written_at: Timestamp::from_micros(1_790_000_000_000_001),
        namespace: namespace("production", "acme", "charge"),
        hint: Key::parse("ord-1234").expect("a key").hint(),
        checkpoint: Bytes::new(),
        answer: None,
    }
}

/// The packed form of `record` with these bytes after it.
fn with(record: &Record, more: &[u8]) -> Vec<u8> {
    [&record.encode(), more].concat()
}

/// Bytes that read as `record`, with sections that a reader passes over.
pub(super) fn skipped(record: &Record) -> Vec<(&'static str, Vec<u8>)> {
    let of = |name, more: &[u8]| (name, with(record, more));
    vec![
        of("a section with tag 128", &[128, 2, 0, 0, 0, 7, 7]),
        of(
            "sections with tags 200 and 255",
            &[200, 0, 0, 0, 0, 255, 1, 0, 0, 0, 9],
        ),
    ]
}

/// Bytes that are no record of [`SEAL`]'s.
pub(super) fn refused(record: &Record) -> Vec<(&'static str, Vec<u8>)> {
    let set = |at: usize, byte: u8| {
        let mut bytes = record.encode();
        bytes[at] = byte;
        bytes
    };
    let completed = Record {
        state: State::Completed,
        ..record.clone()
    };
    let mut control = record.encode();
    control[97] = b'\n';
    vec![
        ("nothing", vec![]),
        ("version 0", set(0, 0)),
        ("version 3", set(0, 3)),
        ("a version alone", vec![9]),
        ("state 0", set(1, 0)),
        ("state 6", set(1, 6)),
        ("crash policy 3", set(2, 3)),
        ("cut in the header", record.encode()[..95].to_vec()),
        ("cut in the label", record.encode()[..100].to_vec()),
        ("a label longer than it says", set(94, 1)),
        ("a label with a control character", control),
        ("a section without a length", with(record, &[1, 1])),
        (
            "a section longer than the record",
            with(record, &[1, 0xff, 0xff, 0xff, 0xff, 0]),
        ),
        ("an empty checkpoint", with(record, &[1, 0, 0, 0, 0])),
        (
            "a checkpoint twice",
            with(record, &[1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1]),
        ),
        ("tag 6", with(record, &[6, 0, 0, 0, 0])),
        ("tag 127", with(record, &[127, 1, 0, 0, 0, 0])),
        (
            "an answer in a running record",
            with(record, &[2, 0, 0, 0, 0, 3, 0, 0, 0, 0]),
        ),
        ("a completed record without an answer", completed.encode()),
        ("a head without a body", with(&completed, &[2, 0, 0, 0, 0])),
        ("a body without a head", with(&completed, &[3, 0, 0, 0, 0])),
        (
            "body before head",
            with(&completed, &[3, 0, 0, 0, 0, 2, 0, 0, 0, 0]),
        ),
        (
            "two bodies",
            with(
                &completed,
                &[
                    2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 4, 8, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0,
                ],
            ),
        ),
        (
            "a length of 4 bytes",
            with(&completed, &[2, 0, 0, 0, 0, 4, 4, 0, 0, 0, 9, 0, 0, 0]),
        ),
    ]
}
