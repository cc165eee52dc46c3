//! The state: one key in two stores and a blob store, nodes in a rollout, a copier, and messages in
//! flight.

use bytes::Bytes;
use semel_core::CrashPolicy;
use semel_stores::compose::copy::CopyMode;

use super::super::world::{AnswerNo, FenceNo, Row, Ticks, Verdict};

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct World {
    pub(in super::super) now: Ticks,
    /// The old store's record, and the new one's.
    pub(in super::super) rows: [Option<Row>; 2],
    pub(in super::super) shelf: Shelf,
    pub(in super::super) clients: Vec<Client>,
    pub(in super::super) copier: Copier,
    pub(in super::super) stray: Stray,
    /// What may yet happen: requests, askings of those that wait, deaths of nodes or of the copier,
    /// calls without an answer.
    pub(in super::super) asks: u8,
    pub(in super::super) retries: u8,
    pub(in super::super) crashes: u8,
    pub(in super::super) losses: u8,
    pub(in super::super) ghost: Ghost,
}

/// Where a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) enum Place {
    Old,
    New,
    Bodies,
}

/// What the place for bodies has: whether each answer's body was ever written there, and what
/// became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(in super::super) struct Shelf {
    /// One bit per answer.
    pub(in super::super) written: u16,
    pub(in super::super) harm: Option<Harm>,
}

/// What became of all that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) enum Harm {
    Gone,
    Changed,
}

/// The step of the move that a node is at, which is the stores that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in super::super) enum Uses {
    Old,
    OldAndNew,
    NewAndOld,
    New,
    /// The old store, with bodies elsewhere. No step of a move.
    Spill,
}

impl Uses {
    pub(in super::super) const fn next(self) -> Option<Self> {
        match self {
            Self::Old => Some(Self::OldAndNew),
            Self::OldAndNew => Some(Self::NewAndOld),
            Self::NewAndOld => Some(Self::New),
            Self::New | Self::Spill => None,
        }
    }

    /// The stores that have to grant a lease, the first first.
    pub(in super::super) const fn stores(self) -> &'static [usize] {
        match self {
            Self::Old | Self::Spill => &[0],
            Self::OldAndNew => &[0, 1],
            Self::NewAndOld => &[1, 0],
            Self::New => &[1],
        }
    }
}

/// A node that is asked to do what the key stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct Client {
    pub(in super::super) uses: Uses,
    /// How often it was asked; makes its tokens.
    pub(in super::super) asked: u8,
    pub(in super::super) token: u8,
    pub(in super::super) phase: Phase,
    /// A call of the engine that is under way: what was said to the calls that it is made of.
    pub(in super::super) heard: Option<Vec<CopyReply>>,
}

/// A lease, as the engine has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct Lease {
    pub(in super::super) fence: FenceNo,
    pub(in super::super) attempt: u8,
    pub(in super::super) checkpoint: bool,
    pub(in super::super) crash: CrashPolicy,
    pub(in super::super) memo: Bytes,
}

/// Where a node stands, as it sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in super::super) enum Phase {
    Idle,
    Claiming {
        since: Ticks,
        unanswered: bool,
    },
    /// Told Busy. `since`: when a claim was sent that got no answer, and may yet win.
    Waiting {
        since: Option<Ticks>,
    },
    /// Won, and has not looked at its clock yet.
    Won {
        lease: Lease,
        since: Ticks,
    },
    /// Too late to start: renews, to see whether the lease is still its own.
    Renewing {
        lease: Lease,
        since: Ticks,
    },
    /// A renewal is under way if one of its calls is.
    Working {
        lease: Lease,
        answer: AnswerNo,
    },
    Settling {
        lease: Lease,
        verdict: Verdict,
        answer: AnswerNo,
    },
    /// The request is over, whatever it was told.
    Over,
}

/// A call to a store or to the bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) enum Call {
    Claim {
        token: u8,
    },
    Renew {
        token: u8,
        fence: FenceNo,
        checkpoint: bool,
    },
    Settle {
        token: u8,
        fence: FenceNo,
        how: How,
    },
    Read,
    Resolve {
        fence: FenceNo,
        how: How,
    },
    Restore {
        row: Row,
    },
    Put {
        answer: AnswerNo,
    },
    Get {
        answer: AnswerNo,
    },
}

/// A settlement or resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) enum How {
    Complete(AnswerNo),
    Fail(AnswerNo),
    Release,
    Doubt,
}

/// A call, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct Sent {
    pub(in super::super) to: Place,
    pub(in super::super) call: Call,
}

/// What was said to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) enum CopyReply {
    Won {
        fence: FenceNo,
        attempt: u8,
        checkpoint: bool,
        crash: CrashPolicy,
    },
    Busy,
    Replay {
        answer: AnswerNo,
        failed: bool,
    },
    Mismatch,
    InDoubt {
        fence: FenceNo,
    },
    /// Held, Done or Written; or Lost, NotInDoubt or Kept.
    Yes,
    No,
    Found(Option<Row>),
    /// A body: of which answer, and whether it is as it was.
    Body(Option<(AnswerNo, bool)>),
    /// An error.
    Failed {
        definite: bool,
    },
}

/// Whoever runs `semel migrate-store`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct Copier {
    /// Runs that may yet be begun.
    pub(in super::super) runs: u8,
    pub(in super::super) run: Option<Run>,
    /// The step that all nodes were at, or past, when the last run began that ended well.
    pub(in super::super) done: Option<Uses>,
}

/// A run of the copier.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct Run {
    pub(in super::super) begun: Uses,
    pub(in super::super) pass: CopyMode,
    /// It was killed, and is to be resumed.
    pub(in super::super) dead: bool,
    pub(in super::super) at: Option<Listed>,
}

/// A record that was listed, when, and what was said to the calls made since.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct Listed {
    pub(in super::super) row: Row,
    pub(in super::super) when: Ticks,
    pub(in super::super) heard: Vec<CopyReply>,
}

/// A call that may still arrive although nobody waits for the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) enum Stray {
    /// No room for one.
    Never,
    None,
    Flying(Sent),
}

/// What really happened: no node and no store sees this; properties do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(in super::super) struct Ghost {
    /// The largest fence that an effect was started under.
    pub(in super::super) top: FenceNo,
    /// Effects started, ever: numbers the answers.
    pub(in super::super) effects: u8,
    /// Effects started since the key was last free.
    pub(in super::super) starts: u8,
    /// The token of the run under `hold` whose effect started, and that nobody has vouched did not
    /// happen. 0: none.
    pub(in super::super) hold_run: u8,
    /// The answer that a caller was given in this life of the key. 0: none.
    pub(in super::super) given: AnswerNo,
    /// One bit per rule that a step has broken.
    pub(in super::super) faults: u32,
}
