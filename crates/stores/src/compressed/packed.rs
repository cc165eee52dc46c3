//! The form of a compressed answer.
//!
//! Its head is [`MARK`], the length of the body (4 bytes, little-endian), and the head as it was.
//! Its body is [`FIRST`] and one block of LZ4. No UTF-8 text begins with either, so a version that
//! doesn't know the form takes it for no answer of its own.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use semel_core::record::{Answer, AnswerBody, RecordError};

use super::damaged;

const MARK: [u8; 8] = *b"\xf5packed\x01";
const MARK_BYTES: usize = MARK.len() + 4;

const FIRST: u8 = 0xf5;

/// Bodies from this size on are compressed.
pub const MIN_BYTES: usize = 1024;

/// LZ4 makes of one byte at most this many.
const MOST_RATIO: usize = 255;

/// The compressed form of an answer; `None` if it would not be smaller, or its body is small, large
/// beyond what a policy may keep, or elsewhere.
#[must_use]
pub fn pack(answer: &Answer) -> Option<Arc<Answer>> {
    let AnswerBody::Kept(body) = &answer.body else {
        return None;
    };
    if body.len() < MIN_BYTES || body.len() > Answer::MAX_BODY_BYTES {
        return None;
    }
    if MARK_BYTES + answer.head.len() > Answer::MAX_HEAD_BYTES {
        return None;
    }
    let mut packed = vec![FIRST; 1 + lz4_flex::block::get_maximum_output_size(body.len())];
    let length = lz4_flex::block::compress_into(body, &mut packed[1..]).ok()?;
    if 1 + length + MARK_BYTES >= body.len() {
        return None;
    }
    packed.truncate(1 + length);
    let mut head = BytesMut::with_capacity(MARK_BYTES + answer.head.len());
    head.put_slice(&MARK);
    head.put_u32_le(u32::try_from(body.len()).ok()?);
    head.put_slice(&answer.head);
    Some(Arc::new(Answer {
        head: head.freeze(),
        // Copied, so that the record doesn't hold the room for the largest possible result.
        body: AnswerBody::Kept(Bytes::copy_from_slice(&packed)),
    }))
}

/// The answer that was compressed; `None` if this one wasn't.
///
/// # Errors
/// [`RecordError::Malformed`] if it is damaged. Memory is only taken for a length that the stored
/// bytes can have, and that a policy may keep.
pub fn unpack(answer: &Answer) -> Result<Option<Arc<Answer>>, RecordError> {
    let Some(rest) = answer.head.strip_prefix(&MARK) else {
        return Ok(None);
    };
    let (length, _) = rest.split_first_chunk().ok_or_else(damaged)?;
    let length = u32::from_le_bytes(*length);
    let head = answer.head.slice(MARK_BYTES..);
    let body = match &answer.body {
        AnswerBody::Kept(packed) => AnswerBody::Kept(unpack_body(packed, length)?),
        AnswerBody::Omitted { .. } => AnswerBody::Omitted {
            bytes: u64::from(length),
        },
        AnswerBody::External { digest, .. } => AnswerBody::External {
            bytes: u64::from(length),
            digest: *digest,
        },
    };
    Ok(Some(Arc::new(Answer { head, body })))
}

fn unpack_body(packed: &[u8], length: u32) -> Result<Bytes, RecordError> {
    let block = packed.strip_prefix(&[FIRST]).ok_or_else(damaged)?;
    let length = usize::try_from(length).map_err(|_| damaged())?;
    if length > Answer::MAX_BODY_BYTES || length > block.len().saturating_mul(MOST_RATIO) {
        return Err(damaged());
    }
    let body = lz4_flex::block::decompress(block, length).map_err(|_| damaged())?;
    match body.len() == length {
        true => Ok(body.into()),
        false => Err(damaged()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut reader = blake3::Hasher::new().finalize_xof();
        let mut bytes = vec![0; length];
        reader.fill(&mut bytes);
        bytes
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
            &b"\xf5\x1fa\x01\x00\xff\xff\xff\xfa\x50aaaaa"[..],
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
            let head = [&MARK[..], &length.to_le_bytes()].concat();
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
}
