//! The packed record: one form per record, nothing else taken, and nothing makes it panic.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use semel_core::record::{ENCRYPTED_VERSION, FORMAT_VERSION, HEADER_BYTES, offset};
use semel_core::{
    Answer, AnswerBody, CrashPolicy, Fence, Fingerprint, Identity, Key, KeyRules, Namespace,
    Record, RecordError, State, Timestamp, Token,
};

fn any_bytes(most: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..=most).prop_map(Bytes::from)
}

fn any_answer() -> impl Strategy<Value = Answer> {
    let body = prop_oneof![
        any_bytes(80).prop_map(AnswerBody::Kept),
        any::<u64>().prop_map(|bytes| AnswerBody::Omitted { bytes }),
        any::<(u64, [u8; 32])>().prop_map(|(bytes, digest)| AnswerBody::External { bytes, digest }),
    ];
    (any_bytes(40), body).prop_map(|(head, body)| Answer { head, body })
}

fn any_namespace() -> impl Strategy<Value = Namespace> {
    let part = |text: &'static str| prop_oneof![9 => text, 1 => Just("x".repeat(128))];
    let (maybe, some) = ("[a-zA-Z0-9 ._/€ß😀-]{0,12}", "[a-zA-Z0-9 ._/€ß😀-]{1,12}");
    (part(maybe), part(maybe), part(some)).prop_map(|(environment, tenant, scope)| {
        Namespace::new(&environment, &tenant, &scope).expect("a fitting namespace")
    })
}

fn any_state() -> impl Strategy<Value = (State, Option<Arc<Answer>>)> {
    let open = prop_oneof![
        Just(State::Running),
        Just(State::InDoubt),
        Just(State::Released)
    ];
    let settled = prop_oneof![Just(State::Completed), Just(State::Failed)];
    prop_oneof![
        open.prop_map(|state| (state, None)),
        (settled, any_answer()).prop_map(|(state, answer)| (state, Some(Arc::new(answer)))),
    ]
}

prop_compose! {
    fn any_record()(
        (state, answer) in any_state(),
        crash in prop_oneof![Just(CrashPolicy::Takeover), Just(CrashPolicy::Hold)],
        (seal, token, fingerprint) in any::<([u8; 16], u128, [u8; 17])>(),
        (fence, retention, created, written) in (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()),
        (attempt, max_attempts, secret_id, lease) in any::<(u16, u16, u16, u32)>(),
        namespace in any_namespace(),
        key in "[a-zé€😀]{1,20}",
        checkpoint in any_bytes(40),
    ) -> Record {
        let rules = KeyRules::default().with_extra("é€😀");
        Record {
            seal, state, crash, attempt, max_attempts, secret_id, namespace, checkpoint, answer,
            fence: Fence(fence),
            token: Token(token),
            fingerprint: Fingerprint::from_bytes(fingerprint),
            lease: Duration::from_millis(lease.into()),
            retention: Duration::from_millis(retention),
            created_at: Timestamp::from_micros(created),
            written_at: Timestamp::from_micros(written),
            hint: rules.check(&key).expect("a key").hint(),
        }
    }
}

fn packed(record: &Record) -> Bytes {
    Bytes::from(record.encode())
}

fn section(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("short").to_le_bytes();
    [&[tag][..], &length, bytes].concat()
}

fn label_end(packed: &[u8]) -> usize {
    HEADER_BYTES + usize::from(u16::from_le_bytes([packed[94], packed[95]]))
}

/// The sections of a record that decodes, as (tag, all bytes of the section).
fn sections_of(packed: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut rest = &packed[label_end(packed)..];
    let mut found = Vec::new();
    while let [tag, a, b, c, d, ..] = *rest {
        let length = 5 + usize::try_from(u32::from_le_bytes([a, b, c, d])).expect("64 bits");
        found.push((tag, rest[..length].to_vec()));
        rest = &rest[length..];
    }
    found
}

/// What the bytes would be without the sections that a reader may skip.
fn without_optional(packed: &[u8]) -> Vec<u8> {
    let kept = sections_of(packed)
        .into_iter()
        .filter(|(tag, _)| *tag < 128);
    let mut out = packed[..label_end(packed)].to_vec();
    kept.for_each(|(_, bytes)| out.extend_from_slice(&bytes));
    out
}

fn assert_canonical(bytes: &Bytes) -> Result<(), TestCaseError> {
    if let Ok(record) = Record::decode(bytes) {
        prop_assert_eq!(record.encode(), without_optional(bytes));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_record_survives_packing(record in any_record()) {
        let bytes = packed(&record);
        prop_assert_eq!(&Record::decode(&bytes).expect("a packed record"), &record);
        let identity = Identity::from_halves(&[7; 16], &record.seal);
        prop_assert_eq!(Record::decode_for(&identity, &bytes).expect("its own record"), record);
    }

    #[test]
    fn another_keys_record_is_refused(record in any_record(), flip in 0_usize..16, bit in 0_u32..8) {
        let mut seal = record.seal;
        seal[flip] ^= 1 << bit;
        let other = Identity::from_halves(&[7; 16], &seal);
        prop_assert_eq!(Record::decode_for(&other, &packed(&record)), Err(RecordError::Foreign));
    }

    #[test]
    fn a_truncated_record_is_refused(record in any_record()) {
        let bytes = packed(&record);
        // The checkpoint of an open record is its last section and may be absent: the one cut that
        // leaves a record. It says the same in everything but the checkpoint.
        let bare = Record { checkpoint: Bytes::new(), ..record.clone() };
        for length in 0..bytes.len() {
            match Record::decode(&bytes.slice(..length)) {
                Err(RecordError::Malformed(_)) => {}
                Ok(found) => {
                    prop_assert!(record.answer.is_none() && length == label_end(&bytes));
                    prop_assert_eq!(&found, &bare);
                }
                other => prop_assert!(false, "cut at {}: {:?}", length, other),
            }
        }
    }

    #[test]
    fn bytes_that_decode_are_the_records_only_form(
        record in any_record(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        tail in prop::collection::vec(any::<u8>(), 0..12),
    ) {
        let mut bytes = record.encode();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        assert_canonical(&Bytes::from(bytes.clone()))?;
        bytes.extend(tail);
        assert_canonical(&Bytes::from(bytes))?;
    }

    #[test]
    fn random_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300), known in any::<bool>()) {
        if let Some(version) = bytes.first_mut().filter(|_| known) {
            *version = FORMAT_VERSION;
        }
        assert_canonical(&Bytes::from(bytes))?;
    }

    #[test]
    fn an_unknown_version_is_never_read(record in any_record(), version in any::<u8>()) {
        prop_assume!(version != FORMAT_VERSION && version != ENCRYPTED_VERSION);
        let mut bytes = record.encode();
        bytes[offset::VERSION] = version;
        let found = Record::decode(&Bytes::from(bytes));
        prop_assert_eq!(found, Err(RecordError::UnknownVersion(version)));
    }

    #[test]
    fn an_unknown_section_is_skipped_only_from_128_on(record in any_record(), tag in 6_u8.., content in any_bytes(9)) {
        let bytes = [record.encode(), section(tag, &content)].concat();
        let found = Record::decode(&Bytes::from(bytes));
        let expected = if tag < 128 { Err(RecordError::UnknownSection(tag)) } else { Ok(record) };
        prop_assert_eq!(found, expected);
    }
}

fn sample(state: State, answer: Option<Answer>) -> Record {
    Record {
        seal: [0x5e; 16],
        state,
        crash: CrashPolicy::Hold,
        fence: Fence(3),
        token: Token(4),
        attempt: 1,
        max_attempts: 2,
        fingerprint: Fingerprint::from_bytes([1; 17]),
        secret_id: 0,
        lease: Duration::from_secs(30),
        retention: Duration::from_secs(60),
        created_at: Timestamp::from_micros(5),
        written_at: Timestamp::from_micros(6),
        namespace: Namespace::new("production", "acme", "charge").expect("a namespace"),
        hint: Key::parse("ord-1234").expect("a key").hint(),
        checkpoint: Bytes::new(),
        answer: answer.map(Arc::new),
    }
}

#[test]
fn the_header_stands_where_the_specification_says() {
    let bytes = sample(State::InDoubt, None).encode();
    assert_eq!(bytes[..3], [1, 4, 2]);
    assert_eq!(bytes[offset::FINGERPRINT..offset::SEAL], [1; 17]);
    assert_eq!(bytes[offset::SEAL..offset::OWNER], [0x5e; 16]);
    assert_eq!(bytes[36..44], 3_u64.to_le_bytes());
    assert_eq!(bytes[44..60], 4_u128.to_le_bytes());
    assert_eq!(
        bytes[offset::LEASE..offset::RETENTION],
        30_000_u32.to_le_bytes()
    );
    assert_eq!(
        bytes[offset::RETENTION..offset::CREATED],
        60_000_u64.to_le_bytes()
    );
    assert_eq!(bytes[offset::CREATED..offset::WRITTEN], 5_u64.to_le_bytes());
    assert_eq!(bytes[offset::WRITTEN..offset::ATTEMPT], 6_u64.to_le_bytes());
    assert_eq!(bytes[88..96], [1, 0, 2, 0, 0, 0, 28, 0]);
    assert_eq!(&bytes[96..], b"\x0aproduction\x04acme\x06charge\x04ord-");
}

/// Joins the head of a record without sections with `sections`.
fn with_sections(state: State, sections: &[(u8, &[u8])]) -> Result<Record, RecordError> {
    let mut bytes = sample(state, None).encode();
    sections
        .iter()
        .for_each(|(tag, content)| bytes.extend(section(*tag, content)));
    Record::decode(&Bytes::from(bytes))
}

#[test]
fn sections_have_one_order_and_fit_the_state() {
    use State::{Completed, Failed, InDoubt, Released, Running};
    let (checkpoint, head, body, omitted) = (
        (1, &b"c"[..]),
        (2, &b""[..]),
        (3, &b"b"[..]),
        (4, &[9, 0, 0, 0, 0, 0, 0, 0][..]),
    );

    assert_eq!(
        with_sections(Completed, &[head, body]),
        Ok(sample(Completed, Some(Answer::from_body("b"))))
    );
    let left_out = Answer {
        head: Bytes::new(),
        body: AnswerBody::Omitted { bytes: 9 },
    };
    assert_eq!(
        with_sections(Failed, &[head, omitted]),
        Ok(sample(Failed, Some(left_out)))
    );
    assert_eq!(
        with_sections(Running, &[checkpoint]).map(|r| r.checkpoint),
        Ok("c".into())
    );

    for (state, sections) in [
        (Completed, &[][..]),
        (Completed, &[head]),
        (Completed, &[body]),
        (Completed, &[omitted]),
        (Completed, &[body, head]),
        (Completed, &[head, body, body]),
        (Completed, &[head, head, body]),
        (Completed, &[head, body, omitted]), // two bodies
        (Completed, &[head, body, checkpoint]),
        (Failed, &[head, (4, &[9, 0, 0, 0])]),
        (Running, &[head, body]),
        (InDoubt, &[head, body]),
        (Released, &[head, omitted]),
        (Running, &[(1, b"")]), // an empty checkpoint is no checkpoint
        (Running, &[checkpoint, checkpoint]),
        (Running, &[(200, b""), (200, b"")]),
        (Running, &[(129, b""), (128, b"")]),
    ] {
        let found = with_sections(state, sections);
        assert!(
            matches!(found, Err(RecordError::Malformed(_))),
            "{state:?} {sections:?}: {found:?}"
        );
    }
    assert_eq!(
        with_sections(Completed, &[head, body, (6, b"")]),
        Err(RecordError::UnknownSection(6))
    );
    assert_eq!(
        with_sections(Completed, &[head, body, (128, b"x"), (255, b"")]),
        Ok(sample(Completed, Some(Answer::from_body("b"))))
    );
}

#[test]
fn external_body_needs_length_and_digest_and_stands_alone() {
    let named = [&[9, 0, 0, 0, 0, 0, 0, 0][..], &[7; 32]].concat();
    let (head, elsewhere) = ((2, &b""[..]), (5, &named[..]));
    let beside = Answer {
        head: Bytes::new(),
        body: AnswerBody::External {
            bytes: 9,
            digest: [7; 32],
        },
    };
    assert_eq!(
        with_sections(State::Completed, &[head, elsewhere]),
        Ok(sample(State::Completed, Some(beside)))
    );
    for (state, sections) in [
        (State::Completed, &[head, (3, b"b"), elsewhere][..]),
        (State::Completed, &[head, (4, &named[..8]), elsewhere]),
        (State::Completed, &[head, (5, &named[..39])]),
        (State::Completed, &[head, (5, &named[..7])]),
        (State::Completed, &[head, (5, b"")]),
        (State::Released, &[head, elsewhere]),
    ] {
        let found = with_sections(state, sections);
        let is_refused = matches!(found, Err(RecordError::Malformed(_)));
        assert!(is_refused, "{state:?} {sections:?}: {found:?}");
    }
}

#[test]
fn section_with_too_large_length_allocates_nothing() {
    let mut bytes = sample(State::Running, None).encode();
    bytes.extend([1, 0xff, 0xff, 0xff, 0xff, 0]);
    assert_eq!(
        Record::decode(&Bytes::from(bytes)),
        Err(RecordError::Malformed("cut short"))
    );
}

#[test]
fn a_label_is_checked_like_a_namespace() {
    let good = sample(State::Running, None).encode();
    let with_label = |parts: [&[u8]; 4], lie: u16| {
        let label: Vec<u8> = parts
            .iter()
            .flat_map(|part| [&[u8::try_from(part.len()).expect("short")][..], part].concat())
            .collect();
        let length = u16::try_from(label.len()).expect("short") + lie;
        let bytes = [&good[..94], &length.to_le_bytes(), &label].concat();
        Record::decode(&Bytes::from(bytes))
    };
    assert!(with_label([b"", b"", b"s", b""], 0).is_ok());
    for parts in [
        [&b""[..], b"", b"", b""],      // no scope
        [b"\n", b"", b"s", b""],        // a control character
        [b"\xff", b"", b"s", b""],      // not UTF-8
        [&[b'x'; 129], b"", b"s", b""], // too long
        [b"", b"", b"s", b"123456789"], // a hint longer than a hint
    ] {
        let found = with_label(parts, 0);
        assert!(
            matches!(found, Err(RecordError::Malformed(_))),
            "{parts:?}: {found:?}"
        );
    }
    assert!(
        with_label([b"", b"", b"s", b""], 1).is_err(),
        "the label's length has to be true"
    );
}

#[test]
fn unknown_states_and_policies_are_refused() {
    let good = sample(State::Running, None).encode();
    for (at, known) in [(offset::STATE, 1..=5), (offset::CRASH, 1..=2)] {
        for byte in (0..=u8::MAX).filter(|byte| !known.contains(byte)) {
            let mut bytes = good.clone();
            bytes[at] = byte;
            let found = Record::decode(&Bytes::from(bytes));
            assert!(
                matches!(found, Err(RecordError::Malformed(_))),
                "{at} {byte}: {found:?}"
            );
        }
    }
}
