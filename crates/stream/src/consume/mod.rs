//! Consumers: apply a broker's messages exactly once.
//!
//! Any broker with at-least-once delivery will do; [`Broker`] is its interface. Headers identify
//! the operation of a message, see [`Headers`].

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
pub use transactional::{Consumer, ConsumerOptions, Effect, TurnError, TurnReport};

/// Any error of a broker's client.
pub type BrokerError = Box<dyn Error + Send + Sync>;

/// What the broker does with a message: acknowledge, redeliver or reject it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// It is dealt with.
    Done,
    /// Deliver it again, not before this time.
    Again(Duration),
    /// It can never be applied: never deliver it again. Where the broker keeps such messages apart,
    /// it does.
    Refused,
}

/// A source of messages that delivers each at least once, and again unless it is told that it is
/// done.
pub trait Broker: Send {
    /// A message that was delivered and is not settled yet.
    type Message: Send + Sync;

    /// Up to `most` messages, as soon as there is one; none when `wait` has passed, or some seconds
    /// later where the broker's answer was lost. It never waits for ever.
    fn fetch(
        &mut self,
        most: usize,
        wait: Duration,
    ) -> impl Future<Output = Result<Vec<Self::Message>, BrokerError>> + Send;

    /// What says which operation it is. A header that is there and can't be read is the empty text,
    /// never absent.
    fn headers<'a>(&self, message: &'a Self::Message) -> Headers<'a>;

    /// What it says.
    fn payload<'a>(&self, message: &'a Self::Message) -> &'a [u8];

    /// Tells the broker. An answer that gets lost is no harm: the message is delivered again, and
    /// known.
    fn settle(
        &mut self,
        message: Self::Message,
        how: Disposition,
    ) -> impl Future<Output = Result<(), BrokerError>> + Send;
}
