//! The faults of a call, and their probabilities.

use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;

/// The calls of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// [`Store::claim`](semel_core::Store::claim).
    Claim,
    /// [`Store::renew`](semel_core::Store::renew).
    Renew,
    /// [`Store::settle`](semel_core::Store::settle).
    Settle,
    /// [`Store::resolve`](semel_core::Store::resolve).
    Resolve,
    /// [`Store::read`](semel_core::Store::read).
    Read,
    /// [`StoreAdmin::list`](semel_core::StoreAdmin::list).
    List,
    /// [`StoreAdmin::delete`](semel_core::StoreAdmin::delete).
    Delete,
    /// [`StoreAdmin::restore`](semel_core::StoreAdmin::restore).
    Restore,
    /// [`StoreAdmin::sweep`](semel_core::StoreAdmin::sweep).
    Sweep,
    /// [`StoreAdmin::stats`](semel_core::StoreAdmin::stats).
    Stats,
    /// [`StoreAdmin::diagnose`](semel_core::StoreAdmin::diagnose).
    Diagnose,
}

impl CallKind {
    /// Whether the call is one of the hot path, which chance may befall. An operator's calls meet
    /// scripted faults only: sent twice, they rightly answer otherwise the second time.
    pub(super) const fn is_hot(self) -> bool {
        matches!(
            self,
            Self::Claim | Self::Renew | Self::Settle | Self::Resolve | Self::Read
        )
    }
}

/// What becomes of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is refused: nothing happens, and the error says so.
    Refuse,
    /// It is refused for want of room: nothing happens, and the error says so.
    Full,
    /// It never arrives: nothing happens, and the error can't tell.
    LoseRequest,
    /// It happens, its reply is lost: the error can't tell.
    LoseReply,
    /// It happens late, after this time on the clock.
    Delay(Duration),
    /// It happens at once, and its reply comes after this time on the clock.
    DelayReply(Duration),
    /// It arrives twice; the second reply is the one that comes back.
    Repeat,
    /// It never arrives, and never returns.
    Hang,
    /// Like [`Fault::Hang`], and so does every later claim, renewal and settlement with the same
    /// token: the process that made the call is dead. The same as `Hang` for calls without a token.
    Crash,
}

/// How likely each fault is, per call of the hot path, from 0 to 1. At most one befalls a call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// [`Fault::Refuse`].
    pub refuse: f64,
    /// [`Fault::LoseRequest`].
    pub lose_request: f64,
    /// [`Fault::LoseReply`].
    pub lose_reply: f64,
    /// [`Fault::Repeat`].
    pub repeat: f64,
    /// [`Fault::Delay`], or [`Fault::DelayReply`] just as likely.
    pub delay: f64,
    /// The longest delay.
    pub longest_delay: Duration,
    /// A wake-up that never comes. Where this isn't 0, the store says that wake-ups are hints.
    pub lose_wake: f64,
}

impl Faults {
    /// No faults but scripted ones.
    pub const NONE: Self = Self {
        refuse: 0.0,
        lose_request: 0.0,
        lose_reply: 0.0,
        repeat: 0.0,
        delay: 0.0,
        longest_delay: Duration::ZERO,
        lose_wake: 0.0,
    };

    /// Every fault but delays, each as likely.
    #[must_use]
    pub const fn all(each: f64) -> Self {
        Self {
            refuse: each,
            lose_request: each,
            lose_reply: each,
            repeat: each,
            lose_wake: each,
            ..Self::NONE
        }
    }

    /// The fault that befalls the next call, if any.
    pub(super) fn roll(&self, rng: &mut StdRng) -> Option<Fault> {
        let (mut dice, share) = (rng.random::<f64>(), rng.random::<f64>());
        let delay = self.longest_delay.mul_f64(share);
        let table = [
            (self.refuse, Fault::Refuse),
            (self.lose_request, Fault::LoseRequest),
            (self.lose_reply, Fault::LoseReply),
            (self.repeat, Fault::Repeat),
            (self.delay / 2.0, Fault::Delay(delay)),
            (self.delay / 2.0, Fault::DelayReply(delay)),
        ];
        for (chance, fault) in table {
            if dice < chance {
                return Some(fault);
            }
            dice -= chance;
        }
        None
    }
}
