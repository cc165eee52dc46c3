//! RabbitMQ: a consumer of a queue with explicit acknowledgements.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use lapin::Consumer;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use lapin::types::AMQPValue;
use semel_core::Clock;

use super::headers::{EPOCH, KEY, SEQUENCE, SESSION};
use super::{Broker, BrokerError, Headers, Settle};

/// A consumer of a queue. Set the channel's prefetch (`basic_qos`) to no less than the batch, or the batch is never full.
///
/// RabbitMQ delivers a refused message to the queue's dead-letter exchange, if it has one, and one to be delivered again
/// at once: so that one is held back here for its time, and stays delivered until then.
pub struct Rabbit {
    consumer: Consumer,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Rabbit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rabbit").finish_non_exhaustive()
    }
}

impl Rabbit {
    /// Messages of this consumer.
    #[must_use]
    pub fn new(consumer: Consumer, clock: Arc<dyn Clock>) -> Self {
        Self { consumer, clock }
    }
}

impl Broker for Rabbit {
    type Message = Delivery;

    async fn fetch(&mut self, most: usize, wait: Duration) -> Result<Vec<Delivery>, BrokerError> {
        let Ok(first) = tokio::time::timeout(wait, self.consumer.next()).await else {
            return Ok(Vec::new());
        };
        let mut messages = vec![first.ok_or("the channel is closed")??];
        while messages.len() < most {
            match self.consumer.next().now_or_never() {
                Some(Some(message)) => messages.push(message?),
                // The end is told at the next turn.
                Some(None) | None => break,
            }
        }
        Ok(messages)
    }

    fn headers<'a>(&self, message: &'a Delivery) -> Headers<'a> {
        let table = message.properties.headers().as_ref();
        let get = |name: &str| match table?.inner().get(name)? {
            AMQPValue::LongString(text) => Some(String::from_utf8_lossy(text.as_bytes())),
            AMQPValue::ShortString(text) => Some(Cow::Borrowed(text.as_str())),
            AMQPValue::LongLongInt(number) => Some(Cow::Owned(number.to_string())),
            AMQPValue::LongInt(number) => Some(Cow::Owned(number.to_string())),
            _ => None,
        };
        let id = message.properties.message_id().as_ref();
        Headers {
            session: get(SESSION),
            sequence: get(SEQUENCE),
            epoch: get(EPOCH),
            key: get(KEY).or_else(|| id.map(|id| Cow::Borrowed(id.as_str()))),
        }
    }

    fn payload<'a>(&self, message: &'a Delivery) -> &'a [u8] {
        &message.data
    }

    async fn settle(&mut self, message: Delivery, how: Settle) -> Result<(), BrokerError> {
        let requeue = BasicNackOptions {
            requeue: true,
            ..BasicNackOptions::default()
        };
        match how {
            Settle::Done => message.ack(BasicAckOptions::default()).await?,
            Settle::Refused => message.nack(BasicNackOptions::default()).await?,
            Settle::Again(after) => {
                let pause = self.clock.sleep(after);
                // Where the channel is closed by then, the message is delivered again all the same.
                tokio::spawn(async move {
                    pause.await;
                    let _ = message.nack(requeue).await;
                });
                true
            }
        };
        Ok(())
    }
}
