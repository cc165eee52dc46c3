//! The form of a compressed answer (P51): what is compressed, what it looks like, what is refused.

use std::sync::Arc;

use bytes::Bytes;
use semel_core::{Answer, AnswerBody, RecordError};
use semel_stores::compressed::{MIN_BYTES, pack, unpack};

fn damaged() -> RecordError {
    RecordError::Malformed("a compressed body")
}

fn answer(head: &'static [u8], body: impl Into<Bytes>) -> Answer {
    Answer {
        head: head.into(),
        body: AnswerBody::Kept(body.into()),
    }
}

fn body(answer: &Answer) -> Bytes {
    match &answer.body {
        AnswerBody::Kept(body) => body.clone(),
        other => panic!("no body: {other:?}"),
    }
}

/// Bytes that don't get smaller.
fn noise(length: usize) -> Vec<u8> {
    let mut number = 1_u64;
    let next = || {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        number.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(length).collect()
}

#[test]
fn larger_answers_come_back_byte_for_byte() {
    for length in [MIN_BYTES, MIN_BYTES + 1, 32 * 1024, Answer::MAX_BODY_BYTES] {
        let original = answer(b"head", vec![b'a'; length]);
        let packed = pack(&original).expect("it gets smaller");
        assert!(body(&packed).len() * 20 < length);
        assert_eq!(unpack(&packed), Ok(Some(Arc::new(original))));
    }
}

#[test]
fn what_would_not_get_smaller_stays_as_it_is() {
    for original in [
        answer(b"", vec![b'a'; MIN_BYTES - 1]),
        answer(b"", noise(64 * 1024)),
        Answer {
            head: Bytes::new(),
            body: AnswerBody::Omitted { bytes: 1 << 20 },
        },
    ] {
        assert_eq!(pack(&original), None);
        assert_eq!(unpack(&original), Ok(None));
    }
}

#[test]
fn stored_form_is_the_one_of_the_protocol() {
    // One literal, a match of 1,018 bytes at distance 1, five literals.
    let stored = answer(
        b"\xf5packed\x01\x00\x04\x00\x00head",
        &b"\xf5\x1fa\x01\x00\xff\xff\xff\xea\x50aaaaa"[..],
    );
    let original = answer(b"head", vec![b'a'; 1024]);
    assert_eq!(unpack(&stored), Ok(Some(Arc::new(original))));
}

#[test]
fn body_that_was_lost_elsewhere_keeps_its_length() {
    let packed = pack(&answer(b"h", vec![b'a'; 2048])).expect("it gets smaller");
    let lost = Answer {
        head: packed.head.clone(),
        body: AnswerBody::Omitted { bytes: 40 },
    };
    let found = unpack(&lost).expect("not damaged").expect("compressed");
    assert_eq!(found.body, AnswerBody::Omitted { bytes: 2048 });
    assert_eq!(found.head, "h");
}

#[test]
fn damaged_and_exploding_bodies_are_refused() {
    let good = pack(&answer(b"h", vec![b'a'; 4096])).expect("it gets smaller");
    let with = |length: u32, packed: &[u8]| {
        let head = [&b"\xf5packed\x01"[..], &length.to_le_bytes()].concat();
        unpack(&Answer {
            head: head.into(),
            body: AnswerBody::Kept(Bytes::copy_from_slice(packed)),
        })
    };
    let packed = body(&good);
    assert!(with(4096, &packed).is_ok());
    // Another length than the body has, within and beyond every bound.
    for length in [0, 4095, 4097, 16 * 1024 * 1024 + 1, u32::MAX] {
        assert_eq!(with(length, &packed), Err(damaged()), "{length}");
    }
    // Cut short, or another first byte, or nothing at all.
    for cut in 0..packed.len() {
        assert_eq!(with(4096, &packed[..cut]), Err(damaged()), "{cut}");
    }
    assert_eq!(with(4096, &[b"x", &packed[1..]].concat()), Err(damaged()));
    let short = answer(b"\xf5packed\x01\x00", Bytes::new());
    assert_eq!(unpack(&short), Err(damaged()));
    // Every changed byte is refused or gives some bytes of that length; it never panics.
    for at in 0..packed.len() {
        for bit in 0..8 {
            let mut changed = packed.to_vec();
            changed[at] ^= 1 << bit;
            if let Ok(Some(opened)) = with(4096, &changed) {
                assert_eq!(body(&opened).len(), 4096);
            }
        }
    }
}
