//! The events of a history, as plain numbers and text: a history outlives the process that wrote
//! it.

use std::fmt;
use std::hash::{DefaultHasher, Hasher as _};

use semel_core::hex::hex;
use semel_core::{Answer, Identity, Resolution, Settlement};
use serde::{Deserialize, Serialize};

/// One call to a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Who called.
    pub client: u32,
    /// Whose record: the identity in hexadecimal.
    pub key: String,
    /// When it was sent. Ticks only grow with real time, for all clients together.
    pub start: u64,
    /// When it was answered; `None` where it never was.
    pub end: Option<u64>,
    /// When it was sent, in microseconds on a clock that runs as fast as the store's.
    pub began: u64,
    /// When it was answered, on that clock.
    pub ended: Option<u64>,
    /// What was asked.
    pub ask: CallRequest,
    /// What was answered.
    pub reply: CallReply,
}

/// Added to the number of a client that acts as an operator.
pub const OPERATOR: u32 = 1 << 31;

impl CallRecord {
    /// Whether an operator sent it. A settlement by an operator is an unlock: it ends a lease in
    /// its owner's name, and the owner may be at work.
    #[must_use]
    pub const fn is_operators(&self) -> bool {
        self.client & OPERATOR != 0
    }
}

/// What was asked of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallRequest {
    /// To be the one who runs.
    Claim {
        /// Of whom.
        token: u128,
        /// Mark of the payload.
        payload: u64,
        /// Whether the terms say `hold`.
        hold: bool,
        /// The lease, in microseconds.
        lease: u64,
        /// The retention, in microseconds.
        retention: u64,
        /// The most runs before a lapse is a doubt.
        max_attempts: u16,
    },
    /// To keep a lease.
    Renew {
        /// Which lease.
        fence: u64,
        /// Whose.
        token: u128,
        /// Mark of the checkpoint that it brings: 0 takes the last one back.
        checkpoint: Option<u64>,
    },
    /// To end a lease.
    Settle {
        /// Which lease.
        fence: u64,
        /// Whose.
        token: u128,
        /// As what.
        ending: KeyEnding,
    },
    /// To end a doubt.
    Resolve {
        /// Which doubt.
        fence: u64,
        /// As what.
        ending: KeyEnding,
    },
    /// To forget the record.
    Delete,
    /// To see the record.
    Read,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeyEnding {
    /// With an answer, told by its mark.
    Completed(u64),
    /// With a final failure, told by its mark.
    Failed(u64),
    /// Given back.
    Released,
    /// Nobody knows.
    InDoubt,
}

impl KeyEnding {
    /// Whether nothing can follow it but a new life of the key.
    #[must_use]
    pub const fn is_answer(self) -> bool {
        matches!(self, Self::Completed(_) | Self::Failed(_))
    }
}

impl From<&Settlement> for KeyEnding {
    fn from(settlement: &Settlement) -> Self {
        match settlement {
            Settlement::Complete(answer) => Self::Completed(answer_mark(answer)),
            Settlement::Fail(answer) => Self::Failed(answer_mark(answer)),
            Settlement::Release => Self::Released,
            Settlement::Doubt => Self::InDoubt,
        }
    }
}

impl From<&Resolution> for KeyEnding {
    fn from(resolution: &Resolution) -> Self {
        Self::from(&Settlement::from(resolution.clone()))
    }
}

/// Where a record stood when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyStanding {
    /// Under which fence.
    pub fence: u64,
    /// How it ended; `None` while it runs.
    pub ending: Option<KeyEnding>,
}

/// What a store answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallReply {
    /// The lease is the asker's.
    Won {
        /// Which lease.
        fence: u64,
        /// Whose it is said to be.
        token: u128,
        /// Which attempt.
        attempt: u16,
        /// Whether the grant names the key that was asked for.
        own: bool,
        /// Mark of the checkpoint that the last owner left; 0 where there is none.
        checkpoint: u64,
    },
    /// Somebody else runs it.
    Busy,
    /// Others write its record at the same time (P4).
    Overtaken,
    /// It is done.
    Replay(KeyEnding),
    /// The key was used with another payload.
    Mismatch,
    /// Nobody knows whether it happened.
    InDoubt {
        /// Under which fence.
        fence: u64,
    },
    /// The lease lives on.
    Held,
    /// The settlement or the resolution stands.
    Done,
    /// The lease is another's, or nobody's.
    Lost,
    /// There is no such doubt.
    NotInDoubt,
    /// It is forgotten; whether there was anything to forget.
    Deleted(bool),
    /// What a read showed.
    Seen(Option<KeyStanding>),
    /// An error. Where it is not `definite`, the call may have happened, or may yet happen.
    Failed {
        /// Whether it says that nothing was changed.
        definite: bool,
    },
    /// Nothing was answered: it may have happened, or may yet happen.
    Unanswered,
}

/// One run of an effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectRecord {
    /// Who ran it.
    pub client: u32,
    /// For which key.
    pub key: String,
    /// Under which lease.
    pub fence: u64,
    /// As which attempt.
    pub attempt: u16,
    /// When it began.
    pub start: u64,
    /// When it began, as [`CallRecord::began`].
    pub began: u64,
    /// When it was over; `None` where it never was.
    pub end: Option<u64>,
}

/// What happened, in no particular order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// The calls to the store.
    pub calls: Vec<CallRecord>,
    /// The effects that were run.
    pub effects: Vec<EffectRecord>,
}

impl History {
    /// Adds what another process saw. Its ticks must be of the same kind: a clock that both can
    /// read.
    pub fn merge(&mut self, other: Self) {
        self.calls.extend(other.calls);
        self.effects.extend(other.effects);
    }
}

impl fmt::Display for CallRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.end.map_or("…".to_owned(), |end| end.to_string());
        write!(
            f,
            "[{}–{end}] client {}: {:?} → {:?}",
            self.start, self.client, self.ask, self.reply
        )
    }
}

impl fmt::Display for EffectRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.end.map_or("…".to_owned(), |end| end.to_string());
        let Self {
            client,
            start,
            fence,
            attempt,
            ..
        } = self;
        write!(
            f,
            "[{start}–{end}] client {client}: effect under {fence}, attempt {attempt}"
        )
    }
}

/// The name of a key in a history.
#[must_use]
pub fn key_of(identity: &Identity) -> String {
    hex(identity.as_bytes())
}

/// A number that stands for an answer: the same for equal ones, another for others.
#[must_use]
pub fn answer_mark(answer: &Answer) -> u64 {
    mark(answer)
}

/// A number that stands for a checkpoint; 0 for none.
#[must_use]
pub fn checkpoint_mark(checkpoint: &[u8]) -> u64 {
    if checkpoint.is_empty() {
        0
    } else {
        mark(&checkpoint).max(1)
    }
}

pub(super) fn mark(value: &impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
