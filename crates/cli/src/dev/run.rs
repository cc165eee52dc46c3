//! The timeline of one run: lanes, events in plain words, and what came of it.

use serde::{Deserialize, Serialize};

/// A vertical line of the sequence diagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Lane {
    Client,
    /// The first sidecar.
    A,
    /// The second sidecar.
    B,
    Service,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// The client sends a request.
    Request,
    /// The client gets a reply, or loses it.
    Reply,
    /// The effect begins: the service got the request.
    Begin,
    /// The effect is done: the service replies.
    End,
    /// A sidecar claims the key.
    Claim,
    /// The lease of the owner has lapsed.
    Lapse,
    /// A sidecar stores the response.
    Store,
    /// Something else that happens in one lane.
    Note,
    /// A sidecar is killed.
    Kill,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Tone {
    Calm,
    Info,
    Good,
    Replayed,
    Waiting,
    Warn,
    Bad,
}

/// One event of a run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Event {
    /// Milliseconds since the run began.
    pub(super) at: u64,
    pub(super) kind: Kind,
    pub(super) from: Lane,
    pub(super) to: Lane,
    pub(super) label: String,
    pub(super) tone: Tone,
    /// Whether the message never arrives.
    pub(super) lost: bool,
    /// Pairs the begin and the end of one effect.
    pub(super) effect: Option<u32>,
}

impl Event {
    /// An arrow from one lane to another.
    pub(super) fn arrow(kind: Kind, from: Lane, to: Lane, label: impl Into<String>) -> Self {
        Self {
            at: 0,
            kind,
            from,
            to,
            label: label.into(),
            tone: Tone::Calm,
            lost: false,
            effect: None,
        }
    }

    /// A label in one lane.
    pub(super) fn note(kind: Kind, lane: Lane, tone: Tone, label: impl Into<String>) -> Self {
        Self::arrow(kind, lane, lane, label).toned(tone)
    }

    pub(super) const fn toned(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }

    /// The same, as a message that never arrives.
    pub(super) const fn lost(mut self) -> Self {
        self.lost = true;
        self.tone = Tone::Bad;
        self
    }

    pub(super) const fn of_effect(mut self, effect: u32) -> Self {
        self.effect = Some(effect);
        self
    }
}

/// The stories that the page tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Scenario {
    Send,
    LostReply,
    OtherPayload,
    Ten,
    Kill,
}

/// The crash policy of the route that a run uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Crash {
    #[default]
    Hold,
    Takeover,
}

impl Crash {
    /// The route that has this policy.
    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Hold => "/charges",
            Self::Takeover => "/receipts",
        }
    }
}

/// What came of a run, for people.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Verdict {
    pub(super) tone: Tone,
    pub(super) text: String,
    /// The record in a dashboard, where somebody has to resolve it.
    pub(super) record: Option<String>,
}

/// A response as the client got it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) is_replayed: bool,
    pub(super) is_lost: bool,
    pub(super) body: String,
}

/// One scenario from its first request to its verdict.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Run {
    pub(super) number: u32,
    pub(super) scenario: Scenario,
    pub(super) with_semel: bool,
    pub(super) crash: Crash,
    pub(super) order: String,
    pub(super) key: String,
    /// The hash of the key, by which the sidecars' events name it.
    pub(super) id: String,
    /// Milliseconds of the wall clock.
    #[serde(skip)]
    pub(super) began: u64,
    pub(super) is_done: bool,
    pub(super) verdict: Option<Verdict>,
    pub(super) replies: Vec<Reply>,
    pub(super) events: Vec<Event>,
}

impl Run {
    /// How many effects have begun, and how many have ended.
    pub(super) fn effects(&self) -> (usize, usize) {
        let count = |kind| {
            self.events
                .iter()
                .filter(|event| event.kind == kind)
                .count()
        };
        (count(Kind::Begin), count(Kind::End))
    }
}

/// Orders events by time; those of one millisecond by cause and effect.
pub(super) const fn order(event: &Event) -> (u64, u8) {
    let rank = match event.kind {
        Kind::Request | Kind::Lapse => 0,
        Kind::Claim => 1,
        Kind::Begin => 2,
        Kind::End => 3,
        Kind::Store | Kind::Kill | Kind::Note => 4,
        Kind::Reply => 5,
    };
    (event.at, rank)
}
