//! [`Record`]: what a store keeps for one key, and the small types it is made of.

mod codec;
mod packed;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::clock::Timestamp;
use crate::fingerprint::Fingerprint;
use crate::identity::{Identity, Seal};
use crate::key::KeyHint;
use crate::namespace::Namespace;

pub use codec::{FORMAT_VERSION, HEADER_BYTES, RecordError, offset};
pub use packed::Packed;

/// A number that only grows per key (P22): of two leases of one key, the later has the larger fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The random mark of one owner. `Debug` doesn't show it: whoever has it may settle.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub u128);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Where an operation stands. *Expired* is not a state but a predicate on any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum State {
    /// Somebody has the lease and runs, or has died trying.
    Running = 1,
    /// Done; the answer is kept and replayed.
    Completed = 2,
    /// Failed for good; the failure is kept and replayed.
    Failed = 3,
    /// Nobody knows whether the effect happened. Waits for a person or a recover hook.
    InDoubt = 4,
    /// Free to claim. Kept only so that the fence survives.
    Released = 5,
}

impl State {
    /// The word for it in docs, metrics and the command line.
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

/// What becomes of a key whose owner vanished. Stored with the first claim (P13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum CrashPolicy {
    /// The next caller runs it again: at least once.
    #[default]
    Takeover = 1,
    /// The key is in doubt until resolved: at most once.
    Hold = 2,
}

/// What an effect answered, as kept in a record.
///
/// `head` is small and always kept (a status, ids, headers: the door decides); `body` may be left out
/// where it is larger than the policy keeps.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Answer {
    /// Always kept; at most [`Answer::MAX_HEAD_BYTES`].
    pub head: Bytes,
    /// Kept up to the policy's cap.
    pub body: Body,
}

impl Answer {
    /// The largest head.
    pub const MAX_HEAD_BYTES: usize = 16 * 1024;
    /// The largest body that any policy may keep.
    pub const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

    /// An answer without a head.
    #[must_use]
    pub fn of(body: impl Into<Bytes>) -> Self {
        Self {
            head: Bytes::new(),
            body: Body::Kept(body.into()),
        }
    }

    /// The same answer, its body left out where it has more than `most` bytes, and its head where
    /// that is past its own bound (P27).
    #[must_use]
    pub fn capped(self, most: usize) -> Self {
        let head = if self.head.len() > Self::MAX_HEAD_BYTES {
            Bytes::new()
        } else {
            self.head
        };
        let body = match self.body {
            Body::Kept(body) if body.len() > most.min(Self::MAX_BODY_BYTES) => Body::Omitted {
                bytes: body.len() as u64,
            },
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
pub enum Body {
    /// Kept, byte for byte.
    Kept(Bytes),
    /// Too large to keep, or streamed: the operation is done and is never run again for that.
    Omitted {
        /// How long it was; 0 where that isn't known.
        bytes: u64,
    },
    /// Kept beside the record, in a store of bodies (P44). Who doesn't have that one treats it as left out.
    Elsewhere {
        /// How long it is.
        bytes: u64,
        /// What it is: BLAKE3.
        digest: Digest,
    },
}

/// Says whether bytes are the ones that were kept.
pub type Digest = [u8; 32];

impl Body {
    /// One that is kept elsewhere, as a store has it.
    ///
    /// # Errors
    /// [`RecordError::Malformed`] where the digest is none.
    pub fn elsewhere(bytes: u64, digest: &[u8]) -> Result<Self, RecordError> {
        let digest = digest.try_into();
        let digest = digest.map_err(|_| RecordError::Malformed("body elsewhere"))?;
        Ok(Self::Elsewhere { bytes, digest })
    }

    /// How many bytes of it the record itself holds.
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        match self {
            Self::Kept(body) => body.len(),
            Self::Omitted { .. } | Self::Elsewhere { .. } => 0,
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept(body) => write!(f, "{} bytes", body.len()),
            Self::Omitted { bytes } => write!(f, "{bytes} bytes not kept"),
            Self::Elsewhere { bytes, .. } => write!(f, "{bytes} bytes elsewhere"),
        }
    }
}

/// What a store keeps for one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Second half of the identity: whose record this is (P24).
    pub seal: Seal,
    /// Where the operation stands.
    pub state: State,
    /// What becomes of it when its owner vanishes; set by the first claim.
    pub crash: CrashPolicy,
    /// Grows with every claim that wins.
    pub fence: Fence,
    /// The mark of the current or last owner.
    pub token: Token,
    /// Runs begun since the key was last free, this one included.
    pub attempt: u16,
    /// The most runs begun before a lapsed lease means "in doubt"; set by the first claim.
    pub max_attempts: u16,
    /// Digest of the payload that the key was first used with.
    pub fingerprint: Fingerprint,
    /// Which secret made identity and fingerprint; 0 for none.
    pub secret_id: u16,
    /// How long a lease lives after each write.
    pub lease: Duration,
    /// How long the record lives after each write.
    pub retention: Duration,
    /// When the key was first claimed in this life, on the store's clock.
    pub created_at: Timestamp,
    /// When the record was last written, on the store's clock.
    pub written_at: Timestamp,
    /// For people: where the key lives.
    pub namespace: Namespace,
    /// For people: how the key begins.
    pub hint: KeyHint,
    /// Progress that the owner kept for whoever runs next. Empty for none.
    pub checkpoint: Bytes,
    /// The answer, once completed or failed.
    pub answer: Option<Arc<Answer>>,
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

    /// Whether the owner's time is up.
    #[must_use]
    pub fn is_lapsed(&self, now: Timestamp) -> bool {
        self.state == State::Running && now >= self.lease_end()
    }

    /// Whether nobody knows if the effect happened: marked so, or a lapsed lease that may not be
    /// taken over and that no claim has noticed yet.
    #[must_use]
    pub fn is_in_doubt(&self, now: Timestamp) -> bool {
        self.state == State::InDoubt || (self.is_lapsed(now) && !self.may_take_over())
    }

    /// Whether a lapsed lease may be taken over: the stored policy decides (P9, P10, P13).
    #[must_use]
    pub fn may_take_over(&self) -> bool {
        self.crash == CrashPolicy::Takeover && self.attempt < self.max_attempts
    }

    /// Whether `lease` is the current or last owner's.
    #[must_use]
    pub fn is_owned_by(&self, fence: Fence, token: Token) -> bool {
        self.fence == fence && self.token == token
    }

    /// Whether the record is the one of `identity` (P24).
    #[must_use]
    pub fn is_of(&self, identity: &Identity) -> bool {
        self.seal == identity.seal()
    }
}
