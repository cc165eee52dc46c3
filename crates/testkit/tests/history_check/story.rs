//! Histories made by hand.

use semel_testkit::history::{
    CallRecord, CallReply, CallRequest, EffectRecord, History, KeyEnding, OPERATOR, check,
};

pub(crate) const LEASE: u64 = 30_000_000;
pub(crate) const RETENTION: u64 = 300_000_000;
pub(crate) const ANSWER: KeyEnding = KeyEnding::Completed(1);
pub(crate) const OTHER: KeyEnding = KeyEnding::Completed(2);

/// Writes histories down, one call after the other.
#[derive(Default)]
pub(crate) struct Story {
    pub(crate) history: History,
    tick: u64,
    now: u64,
}

impl Story {
    pub(crate) fn tell(ask: CallRequest, reply: CallReply) -> Self {
        Self::default().then(ask, reply)
    }

    /// The next call begins when the last is over.
    pub(crate) fn then(mut self, ask: CallRequest, reply: CallReply) -> Self {
        self.tick += 2;
        let unanswered = reply == CallReply::Unanswered;
        self.history.calls.push(CallRecord {
            client: 1,
            key: "aaaa0000".to_owned(),
            start: self.tick,
            end: (!unanswered).then_some(self.tick + 1),
            began: self.now,
            ended: (!unanswered).then_some(self.now),
            ask,
            reply,
        });
        self
    }

    /// The last call was an operator's.
    pub(crate) fn by_operator(mut self) -> Self {
        if let Some(call) = self.history.calls.last_mut() {
            call.client |= OPERATOR;
        }
        self
    }

    /// An effect that begins now, and is over after everything that is told yet.
    pub(crate) fn long_effect(mut self, fence: u64) -> Self {
        self = self.effect(fence);
        if let Some(effect) = self.history.effects.last_mut() {
            effect.end = Some(u64::MAX);
        }
        self
    }

    /// The next call is sent before the last one is answered.
    pub(crate) fn meanwhile(mut self, ask: CallRequest, reply: CallReply) -> Self {
        self.tick -= 2;
        let start = self.tick;
        self = self.then(ask, reply);
        self.tick = start + 2;
        self
    }

    pub(crate) fn wait(mut self, micros: u64) -> Self {
        self.now += micros;
        self
    }

    pub(crate) fn elsewhere(mut self) -> Self {
        if let Some(call) = self.history.calls.last_mut() {
            call.key = "bbbb0000".to_owned();
        }
        self
    }

    pub(crate) fn effect(mut self, fence: u64) -> Self {
        self.tick += 2;
        self.history.effects.push(EffectRecord {
            client: 1,
            key: "aaaa0000".to_owned(),
            fence,
            attempt: 1,
            start: self.tick,
            began: self.now,
            end: Some(self.tick + 1),
        });
        self
    }

    /// Exactly this is wrong, and the sentence comes with a few calls that show it.
    pub(crate) fn breaks(&self, invariant: &str, sentence: &str) {
        let found = check(&self.history);
        let shown: String = found.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 1, "expected {invariant}, found:\n{shown}");
        assert_eq!(found[0].invariant, invariant, "{shown}");
        assert!(found[0].sentence.contains(sentence), "{shown}");
        let slice = found[0].calls.len() + found[0].effects.len();
        assert!((1..=3).contains(&slice), "{slice} lines: {shown}");
    }

    /// Nothing is wrong.
    pub(crate) fn is_fine(&self) {
        let found = check(&self.history);
        let shown: String = found.iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "{shown}");
    }
}

pub(crate) fn claim(token: u128) -> CallRequest {
    claim_with(token, 7, false)
}

pub(crate) fn claim_with(token: u128, payload: u64, hold: bool) -> CallRequest {
    CallRequest::Claim {
        token,
        payload,
        hold,
        lease: LEASE,
        retention: RETENTION,
        max_attempts: 3,
    }
}

pub(crate) fn won(fence: u64, token: u128) -> CallReply {
    won_as(fence, token, 1)
}

pub(crate) fn won_as(fence: u64, token: u128, attempt: u16) -> CallReply {
    CallReply::Won {
        fence,
        token,
        attempt,
        own: true,
        checkpoint: 0,
    }
}

pub(crate) fn settle(fence: u64, token: u128, ending: KeyEnding) -> CallRequest {
    CallRequest::Settle {
        fence,
        token,
        ending,
    }
}

pub(crate) fn renew(fence: u64, token: u128) -> CallRequest {
    CallRequest::Renew {
        fence,
        token,
        checkpoint: None,
    }
}

pub(crate) fn resolve(fence: u64, ending: KeyEnding) -> CallRequest {
    CallRequest::Resolve { fence, ending }
}

pub(crate) const UNKNOWN: CallReply = CallReply::Failed { definite: false };

pub(crate) fn taken_over() -> Story {
    Story::tell(claim(1), won(5, 1))
        .wait(LEASE)
        .then(claim(2), won_as(6, 2, 2))
}
