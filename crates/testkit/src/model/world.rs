//! The state of the model: one key in a store, three clients, an operator, and what is on its way.
//!
//! Kept small, because tens of millions of these are hashed: times are ticks, fences are
//! microseconds since the model's beginning, tokens and answers are numbers.

use semel_core::{CrashPolicy, State};

/// How many clients there is room for.
pub(super) const CLIENTS: usize = 3;
/// How many messages may outlive the interest of their sender.
pub(super) const STRAYS: usize = 2;

/// A point in time, on every clock of the model.
pub(super) type Ticks = u8;
/// A fence, as microseconds.
pub(super) type FenceNo = u16;
/// Stands for the bytes of an answer: the fence of the run that gave it.
pub(super) type AnswerNo = u16;
/// The answer that an operator gives. No run has this fence.
pub(super) const OPERATORS_ANSWER: AnswerNo = u16::MAX;

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) now: Ticks,
    pub(super) row: Option<Row>,
    pub(super) clients: [Client; CLIENTS],
    pub(super) strays: [Stray; STRAYS],
    pub(super) operator: Operator,
    /// Replies that may yet be lost.
    pub(super) losses: u8,
    /// Crashes, or callers asking again, that may yet happen.
    pub(super) crashes: u8,
    pub(super) ghost: Ghost,
}

/// What the store has: a record, without what no decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Row {
    pub(super) state: State,
    pub(super) crash: CrashPolicy,
    pub(super) payload: u8,
    pub(super) token: u8,
    pub(super) attempt: u8,
    pub(super) checkpoint: bool,
    pub(super) written: Ticks,
    pub(super) fence: FenceNo,
    /// 0 for none.
    pub(super) answer: AnswerNo,
}

/// A process that has been asked to do what the key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) token: u8,
    pub(super) phase: Phase,
    pub(super) call: Call,
}

/// Where a client stands, as it sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Idle,
    /// Its lease, if it wins one, may be as old as `since`: when it sent the claim, or the first
    /// under this token that got no answer. No further back than a lease: all that is older is as
    /// late.
    Claiming {
        since: Ticks,
        unanswered: bool,
    },
    /// Told Busy. `since`: when a claim was sent that got no answer, and may yet win.
    Waiting {
        since: Option<Ticks>,
    },
    /// Won, but too late to start: renews, to see whether the lease is still its own.
    Renewing {
        fence: FenceNo,
        crash: CrashPolicy,
        since: Ticks,
    },
    Working {
        fence: FenceNo,
        crash: CrashPolicy,
    },
    Settling {
        fence: FenceNo,
        crash: CrashPolicy,
        verdict: Verdict,
    },
    /// 0 once the life of the key that the answer was given in is over.
    Answered {
        answer: AnswerNo,
    },
    /// Told of a mismatch or a doubt.
    Refused,
    /// Told that there is no answer: the outcome was not recorded, or isn't one to keep.
    Unanswered,
}

/// What became of an effect (P36), or why it never began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Verdict {
    Complete,
    Fail,
    Retry,
    NoEffect,
    Unknown,
    /// The owner's deadline had passed: nothing was started (P30).
    Late,
}

impl Verdict {
    /// Whether nothing happened, for certain.
    pub(super) const fn is_nothing(self) -> bool {
        matches!(self, Self::NoEffect | Self::Late)
    }

    /// Whether the caller is given an answer once it is recorded.
    pub(super) const fn is_answer(self) -> bool {
        matches!(self, Self::Complete | Self::Fail)
    }
}

/// A client's call to the store, of the kind that its phase implies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Call {
    None,
    /// On its way. `before` is what an earlier sending was answered, unknown to the client.
    Sent {
        checkpoint: bool,
        again: bool,
        before: Before,
    },
    /// A store of two steps has looked, and will put what it decided in the place of what it saw
    /// (P45).
    Looked {
        seen: Row,
        at: Ticks,
        before: Before,
    },
    /// The reply is on its way.
    Replied {
        checkpoint: bool,
        reply: Reply,
    },
}

/// What an earlier sending of the same call was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Before {
    Nothing,
    Won,
    Held,
    Done,
    Lost,
}

/// The store's reply, and by which row of the table it came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reply {
    Won {
        fence: FenceNo,
        crash: CrashPolicy,
        how: Won,
    },
    Busy,
    Replay {
        answer: AnswerNo,
    },
    Mismatch {
        settled: bool,
    },
    InDoubt {
        how: Doubt,
    },
    Held,
    RenewLost,
    Done {
        how: Done,
    },
    SettleLost,
}

/// How a claim came to win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Won {
    New,
    AfterExpiry,
    AfterRelease,
    SameLease,
    Takeover,
    TakeoverWithCheckpoint,
}

/// Why a claim is told of a doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Doubt {
    Hold,
    Attempts,
    Known,
}

/// When a settlement was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Done {
    InTime,
    AfterLapse,
    AfterDoubt,
    Again,
}

/// A message to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Message {
    Claim {
        token: u8,
    },
    Renew {
        token: u8,
        fence: FenceNo,
        checkpoint: bool,
    },
    /// `crash` is the policy that the sender goes by (P36).
    Settle {
        token: u8,
        fence: FenceNo,
        crash: CrashPolicy,
        verdict: Verdict,
    },
}

impl Message {
    pub(super) const fn token(self) -> u8 {
        match self {
            Self::Claim { token } | Self::Renew { token, .. } | Self::Settle { token, .. } => token,
        }
    }
}

/// A message that may still arrive although nobody waits for the reply: its sender crashed, or gave
/// it up for lost and sent it again, or went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Stray {
    /// Room for one.
    None,
    Flying {
        message: Message,
        crashed: bool,
    },
    Arrived,
    /// A settlement whose sender had crashed was accepted.
    Settled,
}

/// Somebody who looks at doubts and ends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Operator {
    Away,
    Saw {
        fence: FenceNo,
    },
    Resolved {
        done: bool,
    },
    /// The reply was lost: it will ask again.
    Unsure {
        fence: FenceNo,
        resolve: Resolve,
        done: bool,
    },
    ResolvedAgain {
        done: bool,
    },
}

/// How an operator ends a doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Resolve {
    Complete,
    Fail,
    Release,
}

/// What really happened: no client and no store sees this; properties do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Ghost {
    /// The largest fence ever given out.
    pub(super) top: FenceNo,
    /// Whether a life of the key, from its first claim to its expiry, has not ended by removal.
    pub(super) alive: bool,
    /// Effects started since the key was last free.
    pub(super) starts: u8,
    /// The run under `hold` whose effect started, and that nobody has vouched did not happen. 0:
    /// none.
    pub(super) hold_run: FenceNo,
    /// One bit per rule that a step has broken.
    pub(super) faults: u32,
}
