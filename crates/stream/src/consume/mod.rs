//! Consumers: messages of a broker, applied once.
//!
//! Any broker that delivers at least once is enough; [`Broker`] is what is asked of it. Headers say which operation a
//! message is, see [`Headers`].

mod headers;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(feature = "postgres")]
mod transactional;

use std::error::Error;
use std::future::Future;
use std::time::Duration;

pub use headers::{Headers, MalformedMessage};
#[cfg(feature = "postgres")]
pub use transactional::{Consumer, Effect, Options, TurnError, TurnReport};

/// What went wrong with a broker: any error of its client.
pub type BrokerError = Box<dyn Error + Send + Sync>;

/// How a message ends for its broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settle {
    /// It is dealt with.
    Done,
    /// Deliver it again, not before this time.
    Again(Duration),
    /// It can never be applied: never deliver it again. Where the broker keeps such messages apart, it does.
    Refused,
}

/// A source of messages that delivers each at least once, and again unless it is told that it is done.
pub trait Broker: Send {
    /// A message that was delivered and is not settled yet.
    type Message: Send + Sync;

    /// Up to `most` messages, as soon as there is one; none when `wait` has passed, or some seconds later where the
    /// broker's answer was lost. It never waits for ever.
    fn fetch(
        &mut self,
        most: usize,
        wait: Duration,
    ) -> impl Future<Output = Result<Vec<Self::Message>, BrokerError>> + Send;

    /// What says which operation it is. A header that is there and can't be read is the empty text, never absent.
    fn headers<'a>(&self, message: &'a Self::Message) -> Headers<'a>;

    /// What it says.
    fn payload<'a>(&self, message: &'a Self::Message) -> &'a [u8];

    /// Tells the broker. An answer that gets lost is no harm: the message is delivered again, and known.
    fn settle(
        &mut self,
        message: Self::Message,
        how: Settle,
    ) -> impl Future<Output = Result<(), BrokerError>> + Send;
}
