//! Session, sequence number and epoch of an operation, and the 128-bit key derived from them and
//! its content.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One producer's session: 16 bytes, random or the digest of a name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId([u8; 16]);

impl SessionId {
    /// The session with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The session of a producer that has a name rather than a number: the first half of its BLAKE3
    /// digest.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self(first_half(&blake3::hash(name.as_bytes())))
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// An operation's number within its session and epoch: 1, 2, 3 and so on, given once by the
/// producer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeqNo(pub u64);

/// The epoch of a producer: larger after each restart that restarts its sequence numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// The key of one operation.
///
/// ```
/// use semel_stream::{StreamKey, SeqNo, SessionId};
///
/// let session = SessionId::named("sensor-7");
/// let key = StreamKey::derive(session, SeqNo(1), b"add 5");
/// assert_eq!(key, StreamKey::derive(session, SeqNo(1), b"add 5"));
/// assert_ne!(key, StreamKey::derive(session, SeqNo(2), b"add 5"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StreamKey(pub u128);

impl StreamKey {
    /// The first 16 bytes, little-endian, of BLAKE3 over the session's 16 bytes, the sequence
    /// number's 8 (little-endian) and the operation. The first two have fixed lengths, so that no
    /// two triples are one text.
    ///
    /// Whoever chooses sessions and operations can compute such keys. Where producers are not
    /// trusted, use
    /// [`KeySecret::derive`].
    #[must_use]
    pub fn derive(session: SessionId, seqno: SeqNo, operation: &[u8]) -> Self {
        Self::finish(blake3::Hasher::new(), session, seqno, operation)
    }

    /// A key that the producer made itself, as text of any form: the first 16 bytes of its digest.
    #[must_use]
    pub fn from_text(text: &[u8]) -> Self {
        Self(u128::from_le_bytes(first_half(&blake3::hash(text))))
    }

    /// This key within an epoch: a producer that begins its numbers anew may say the same thing
    /// under the same number, and means another operation. Epoch 0 leaves the key as it is.
    #[must_use]
    pub fn in_epoch(self, epoch: Epoch) -> Self {
        if epoch == Epoch(0) {
            return self;
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0.to_le_bytes());
        hasher.update(&epoch.0.to_le_bytes());
        Self(u128::from_le_bytes(first_half(&hasher.finalize())))
    }

    fn finish(
        mut hasher: blake3::Hasher,
        session: SessionId,
        seqno: SeqNo,
        operation: &[u8],
    ) -> Self {
        hasher.update(session.as_bytes());
        hasher.update(&seqno.0.to_le_bytes());
        hasher.update(operation);
        Self(u128::from_le_bytes(first_half(&hasher.finalize())))
    }
}

/// How it begins: enough to tell two apart in a log, too little to be used.
impl fmt::Debug for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamKey({:08x}…)", self.0 >> 96)
    }
}

/// Makes keys that nobody else can compute, so that no producer can choose two operations whose
/// keys collide, or a key that is another's. All consumers of a stream need the same one.
#[derive(Clone)]
pub struct KeySecret([u8; 32]);

impl KeySecret {
    /// From 16 bytes or more of key material.
    ///
    /// # Errors
    /// [`ShortSecret`] if there are fewer.
    pub fn new(material: &[u8]) -> Result<Self, ShortSecret> {
        if material.len() < 16 {
            return Err(ShortSecret);
        }
        Ok(Self(blake3::derive_key("semel v1 stream key", material)))
    }

    /// As [`StreamKey::derive`], over the same bytes, with keyed BLAKE3.
    #[must_use]
    pub fn derive(&self, session: SessionId, seqno: SeqNo, operation: &[u8]) -> StreamKey {
        let hasher = blake3::Hasher::new_keyed(&self.0);
        StreamKey::finish(hasher, session, seqno, operation)
    }
}

impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySecret(…)")
    }
}

/// The key material was too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the secret has fewer than 16 bytes; give 32 random ones")]
pub struct ShortSecret;

fn first_half(hash: &blake3::Hash) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&hash.as_bytes()[..16]);
    half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_session_then_sequence_then_operation() {
        let session = SessionId::from_bytes([7; 16]);
        let mut text = vec![7; 16];
        text.extend([0x02, 0x01, 0, 0, 0, 0, 0, 0]);
        text.extend(b"add 5");
        let digest = blake3::hash(&text);
        let expected = u128::from_le_bytes(digest.as_bytes()[..16].try_into().unwrap());
        let key = StreamKey::derive(session, SeqNo(0x0102), b"add 5");
        assert_eq!(key.0, expected);
        // Fixed for all time: other processes, and files on disk, know it by this number.
        assert_eq!(key.0, 0x87a3_0e03_8b63_c755_2c8d_e9f0_dfe9_8a02);
    }

    #[test]
    fn a_secret_makes_other_keys_and_shows_itself_nowhere() {
        let session = SessionId::named("a");
        let secret = KeySecret::new(b"sixteen bytes ok").unwrap();
        let (plain, keyed) = (
            StreamKey::derive(session, SeqNo(1), b"x"),
            secret.derive(session, SeqNo(1), b"x"),
        );
        assert_ne!(plain, keyed);
        assert_eq!(keyed, secret.derive(session, SeqNo(1), b"x"));
        assert_eq!(format!("{secret:?}"), "KeySecret(…)");
        assert_eq!(KeySecret::new(b"fifteen bytes..").unwrap_err(), ShortSecret);
    }

    #[test]
    fn an_epoch_makes_another_key_and_the_first_epoch_does_not() {
        let key = StreamKey(5);
        assert_eq!(key.in_epoch(Epoch(0)), key);
        assert_ne!(key.in_epoch(Epoch(1)), key);
        assert_ne!(key.in_epoch(Epoch(1)), key.in_epoch(Epoch(2)));
    }

    #[test]
    fn a_key_in_a_log_is_only_how_it_begins() {
        let shown = format!("{:?}", StreamKey(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef));
        assert_eq!(shown, "StreamKey(01234567…)");
    }
}
