//! What a lease carries so that its settlement needs no look: the version that was written, and the record.
//!
//! And what makes no two writes alike: a nonce behind the record. Many servers make an object's tag of its bytes, so two
//! writes of the same bytes would have one tag, and a condition on it could not tell whether anything happened between.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use object_store::UpdateVersion;
use semel_core::env::SystemEntropy;
use semel_core::{Entropy as _, Record};

/// A section that readers of records pass over.
const NONCE: u8 = 255;

/// The packed record, with a nonce.
pub(super) fn pack(record: &Record) -> Bytes {
    let packed = record.encode();
    let mut out = BytesMut::with_capacity(packed.len() + 21);
    out.put_slice(&packed);
    out.put_u8(NONCE);
    out.put_u32_le(16);
    out.put_u128_le(SystemEntropy.next_u128());
    out.freeze()
}

/// Version and record, for the lease to carry.
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

/// What a lease carries, if it does.
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
