//! NATS JetStream: a pull consumer with explicit acknowledgements.

use std::borrow::Cow;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::{AckKind, Message};
use futures_util::StreamExt as _;

use super::headers::{EPOCH, KEY, SEQUENCE, SESSION};
use super::{Broker, BrokerError, Headers, Settle};

/// What JetStream itself knows a message by, within a window of its own.
const MESSAGE_ID: &str = "Nats-Msg-Id";

/// A pull consumer of a stream. Make it durable, with `AckPolicy::Explicit`, and an `ack_wait` longer than a transaction
/// of a batch takes.
#[derive(Debug)]
pub struct JetStream {
    consumer: PullConsumer,
}

impl JetStream {
    /// Messages of this consumer.
    #[must_use]
    pub fn new(consumer: PullConsumer) -> Self {
        Self { consumer }
    }
}

impl Broker for JetStream {
    type Message = Message;

    async fn fetch(&mut self, most: usize, wait: Duration) -> Result<Vec<Message>, BrokerError> {
        let mut messages = Vec::new();
        let mut there = self.consumer.fetch().max_messages(most).messages().await?;
        while let Some(message) = there.next().await {
            messages.push(message?);
        }
        if messages.is_empty() {
            let one = self.consumer.batch().max_messages(1).expires(wait);
            let mut next = one.messages().await?;
            while let Some(message) = next.next().await {
                messages.push(message?);
            }
        }
        Ok(messages)
    }

    fn headers<'a>(&self, message: &'a Message) -> Headers<'a> {
        message.headers.as_ref().map_or_else(Headers::default, read)
    }

    fn payload<'a>(&self, message: &'a Message) -> &'a [u8] {
        &message.payload
    }

    async fn settle(&mut self, message: Message, how: Settle) -> Result<(), BrokerError> {
        let kind = match how {
            Settle::Done => AckKind::Ack,
            Settle::Again(after) => AckKind::Nak(Some(after)),
            Settle::Refused => AckKind::Term,
        };
        message.ack_with(kind).await
    }
}

fn read(headers: &HeaderMap) -> Headers<'_> {
    let get = |name: &'static str| headers.get(name).map(|value| Cow::Borrowed(value.as_str()));
    Headers {
        session: get(SESSION),
        sequence: get(SEQUENCE),
        epoch: get(EPOCH),
        key: get(KEY).or_else(|| get(MESSAGE_ID)),
    }
}
