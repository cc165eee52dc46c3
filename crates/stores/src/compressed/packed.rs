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
