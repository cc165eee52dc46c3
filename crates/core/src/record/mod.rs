//! [`Record`]: what a store keeps for one key, and the types of its fields.

mod codec;
mod packed;
mod sealed;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::clock::Timestamp;
use crate::fingerprint::Fingerprint;
use crate::identity::{Identity, Seal};
use crate::key::KeyHint;
use crate::namespace::Namespace;

pub use codec::{ENCRYPTED_VERSION, FORMAT_VERSION, HEADER_BYTES, RecordError, offset};
pub use packed::PackedRecord;
pub use sealed::{
    DataKeyId, FIRST_DATA_KEY, MAX_DATA_KEYS, MAX_KEYS, ReadableKeys, SEALED_HEADER_BYTES,
    SEALED_MAGIC, SEALED_TAG_BYTES, SealedHeader,
};

/// The fencing token of a lease (P22). It only grows: of two leases of one key, the later has the
/// larger fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The random mark of one owner. `Debug` hides it, because it gives the right to settle.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub u128);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The state of an operation. *Expired* isn't a state but a predicate on any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum State {
    /// An owner has the lease and runs the effect, or crashed while it did.
    Running = 1,
    /// Done; the answer is kept and replayed.
    Completed = 2,
    /// Failed for good; the failure is kept and replayed.
    Failed = 3,
    /// It is unknown whether the effect happened. An operator or a recover hook has to resolve it.
    InDoubt = 4,
    /// Free to claim. Kept only so that the fence survives.
    Released = 5,
}

impl State {
    /// The name of the state in docs, metrics and the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::InDoubt => "in_doubt",
            Self::Released => "released",
        }
    }
}

/// What happens to a key whose owner crashed. Stored with the first claim (P13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum CrashPolicy {
    /// The next caller runs it again: at least once.
    #[default]
    Takeover = 1,
    /// The key is in doubt until resolved: at most once.
    Hold = 2,
}

/// The answer of an effect, as kept in a record.
///
/// `head` is small and always kept; the door decides what it contains (a status, ids, headers).
/// `body` may be left out if it is larger than the policy allows.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Answer {
    /// Always kept; at most [`Answer::MAX_HEAD_BYTES`].
    pub head: Bytes,
    /// Kept up to the policy's limit.
    pub body: AnswerBody,
}

impl Answer {
    /// The largest head.
    pub const MAX_HEAD_BYTES: usize = 16 * 1024;
    /// The largest body that any policy may keep.
    pub const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

    /// An answer without a head.
    #[must_use]
    pub fn from_body(body: impl Into<Bytes>) -> Self {
        Self {
            head: Bytes::new(),
            body: AnswerBody::Kept(body.into()),
        }
    }

    /// The same answer, without its body if that has more than `most` bytes, and without its head
    /// if that is larger than its own bound (P27).
    #[must_use]
    pub fn capped(self, most: usize) -> Self {
        let head = if self.head.len() > Self::MAX_HEAD_BYTES {
            Bytes::new()
        } else {
            self.head
        };
        let body = match self.body {
            AnswerBody::Kept(body) if body.len() > most.min(Self::MAX_BODY_BYTES) => {
                AnswerBody::Omitted {
                    bytes: body.len() as u64,
                }
            }
            body => body,
        };
        Self { head, body }
    }
}

/// Shows sizes, never contents.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answer({} + {:?})", self.head.len(), self.body)
    }
}

/// The body of an [`Answer`].
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum AnswerBody {
    /// Kept, byte for byte.
    Kept(Bytes),
    /// Too large to keep, or streamed. The operation is done and doesn't run again for that.
    Omitted {
        /// Its size; 0 if that is unknown.
        bytes: u64,
    },
    /// Spilled to a blob store outside of the record (P44). Nodes without a blob store treat it as
    /// omitted.
    External {
        /// Its size.
        bytes: u64,
        /// Its BLAKE3 digest.
        digest: Digest,
    },
}

/// The BLAKE3 digest of an external body: proves that the loaded bytes are the ones that were kept.
pub type Digest = [u8; 32];

impl AnswerBody {
    /// An external body, from the digest as a store keeps it.
    ///
    /// # Errors
    /// [`RecordError::Malformed`] if `digest` isn't 32 bytes.
    pub fn external(bytes: u64, digest: &[u8]) -> Result<Self, RecordError> {
        let digest = digest.try_into();
        let digest = digest.map_err(|_| RecordError::Malformed("external body"))?;
        Ok(Self::External { bytes, digest })
    }

    /// How many bytes of it the record itself holds.
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        match self {
            Self::Kept(body) => body.len(),
            Self::Omitted { .. } | Self::External { .. } => 0,
        }
    }
}

/// Shows sizes, never contents.
impl fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept(body) => write!(f, "{} bytes", body.len()),
            Self::Omitted { bytes } => write!(f, "{bytes} bytes not kept"),
            Self::External { bytes, .. } => write!(f, "{bytes} bytes outside of the record"),
        }
    }
}

/// Shows how many bytes there are, never which.
pub(crate) struct ByteCount<'a>(pub(crate) &'a Bytes);

impl fmt::Debug for ByteCount<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// What a store keeps for one key. `Debug` shows the sizes of answer and checkpoint, never their
/// contents.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Record {
    /// Second half of the identity: proves which key the record belongs to (P24).
    pub seal: Seal,
    /// The state of the operation.
    pub state: State,
    /// What happens to the key if its owner crashes; set by the first claim.
    pub crash: CrashPolicy,
    /// The fence of the current or last lease. Grows with every claim that wins.
    pub fence: Fence,
    /// The random mark of the current or last owner.
    pub token: Token,
    /// Runs begun since the key was last free, including this one.
    pub attempt: u16,
    /// The most runs begun before a lapsed lease leaves the key in doubt; set by the first claim.
    pub max_attempts: u16,
    /// Digest of the payload that the key was first used with.
    pub fingerprint: Fingerprint,
    /// The id of the secret behind identity and fingerprint; 0 if there is none.
    pub secret_id: u16,
    /// How long a lease lives after each write.
    pub lease: Duration,
    /// How long the record lives after each write.
    pub retention: Duration,
    /// When the key was first claimed since it was last free, on the store's clock.
    pub created_at: Timestamp,
    /// When the record was last written, on the store's clock.
    pub written_at: Timestamp,
    /// The namespace of the key, for people.
    pub namespace: Namespace,
    /// The first characters of the key, for people.
    pub hint: KeyHint,
    /// Progress that the owner kept for the next one. Empty if there is none.
    pub checkpoint: Bytes,
    /// The answer, once completed or failed.
    pub answer: Option<Arc<Answer>>,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("seal", &self.seal)
            .field("state", &self.state)
            .field("crash", &self.crash)
            .field("fence", &self.fence)
            .field("token", &self.token)
            .field("attempt", &self.attempt)
            .field("max_attempts", &self.max_attempts)
            .field("fingerprint", &self.fingerprint)
            .field("secret_id", &self.secret_id)
            .field("lease", &self.lease)
            .field("retention", &self.retention)
            .field("created_at", &self.created_at)
            .field("written_at", &self.written_at)
            .field("namespace", &self.namespace)
            .field("hint", &self.hint)
            .field("checkpoint", &ByteCount(&self.checkpoint))
            .field("answer", &self.answer)
            .finish()
    }
}

impl Record {
    /// The largest checkpoint.
    pub const MAX_CHECKPOINT_BYTES: usize = 64 * 1024;

    /// When the lease ends, unless renewed.
    #[must_use]
    pub fn lease_end(&self) -> Timestamp {
        self.written_at.plus(self.lease)
    }

    /// When the record expires, unless written again.
    #[must_use]
    pub fn expires_at(&self) -> Timestamp {
        self.written_at.plus(self.retention)
    }

    /// Whether the record counts as absent (P20).
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now >= self.expires_at()
    }

    /// Whether the lease has ended without a settlement.
    #[must_use]
    pub fn is_lapsed(&self, now: Timestamp) -> bool {
        self.state == State::Running && now >= self.lease_end()
    }

    /// Whether the outcome is unknown: the record is marked so, or it has a lapsed lease that may
    /// not be taken over and that no claim has noticed yet.
    #[must_use]
    pub fn is_in_doubt(&self, now: Timestamp) -> bool {
        self.state == State::InDoubt || (self.is_lapsed(now) && !self.may_take_over())
    }

    /// The state as everybody should see it at a time: a lapsed lease that may not be taken over is
    /// in doubt (P29).
    #[must_use]
    pub fn state_at(&self, now: Timestamp) -> State {
        match self.is_in_doubt(now) {
            true => State::InDoubt,
            false => self.state,
        }
    }

    /// Whether a lapsed lease may be taken over: the stored policy decides (P9, P10, P13).
    #[must_use]
    pub fn may_take_over(&self) -> bool {
        self.crash == CrashPolicy::Takeover && self.attempt < self.max_attempts
    }

    /// Whether fence and token are those of the current or last owner.
    #[must_use]
    pub fn is_owned_by(&self, fence: Fence, token: Token) -> bool {
        self.fence == fence && self.token == token
    }

    /// Whether the record belongs to the key of `identity` (P24).
    #[must_use]
    pub fn belongs_to(&self, identity: &Identity) -> bool {
        self.seal == identity.seal()
    }
}
