//! The memo of a lease, with which its settlement needs no read: the version that was written, and
//! the record.
//!
//! Also the nonce behind each record, which makes every write unique. Many servers derive an
//! object's tag from its bytes, so two writes of the same bytes would have the same tag, and a
//! condition on it would miss the writes in between.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use object_store::UpdateVersion;
use semel_core::env::SystemEntropy;
use semel_core::{Entropy as _, Record};

/// A section that readers of records skip.
const NONCE: u8 = 255;

/// How long a nonce is.
const BYTES: usize = 16;

/// The packed record, with a nonce.
pub(super) fn pack(record: &Record) -> Bytes {
    with_nonce(record, &[])
}

/// The packed record, marked by an extra byte behind the nonce as written at another time than the
/// object.
pub(super) fn pack_as_it_was(record: &Record) -> Bytes {
    with_nonce(record, &[1])
}

fn with_nonce(record: &Record, more: &[u8]) -> Bytes {
    let packed = record.encode();
    let mut out = BytesMut::with_capacity(packed.len() + 5 + BYTES + more.len());
    out.put_slice(&packed);
    out.put_u8(NONCE);
    out.put_u32_le(u32::try_from(BYTES + more.len()).unwrap_or(u32::MAX));
    out.put_u128_le(SystemEntropy.next_u128());
    out.put_slice(more);
    out.freeze()
}

/// Whether the server's time of the object applies to the record.
pub(super) fn is_dated_by_the_server(packed: &[u8]) -> bool {
    let as_it_was = [NONCE, 17, 0, 0, 0];
    let section = packed.len().checked_sub(as_it_was.len() + BYTES + 1);
    !section.is_some_and(|at| packed[at..].starts_with(&as_it_was))
}

/// Encodes version and record as a memo.
pub(super) fn write(version: &UpdateVersion, packed: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(packed.len() + 64);
    for part in [&version.e_tag, &version.version] {
        let text = part.as_deref().unwrap_or_default();
        out.put_u16_le(u16::try_from(text.len()).unwrap_or(0));
        out.put_slice(text.as_bytes());
    }
    out.put_slice(packed);
    out.freeze()
}

/// Decodes a memo.
pub(super) fn read(memo: &Bytes) -> Option<(UpdateVersion, Bytes)> {
    let mut rest = memo.clone();
    let mut part = || {
        let length = usize::from(rest.try_get_u16_le().ok()?);
        let text = (length <= rest.len()).then(|| rest.split_to(length))?;
        let text = String::from_utf8(text.to_vec()).ok()?;
        Some(Some(text).filter(|text| !text.is_empty()))
    };
    let (e_tag, version) = (part()?, part()?);
    Some((UpdateVersion { e_tag, version }, rest))
}
