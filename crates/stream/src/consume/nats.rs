//! NATS JetStream: a pull consumer with explicit acknowledgements.

#![expect(
    clippy::disallowed_methods,
    reason = "a silent connection ends on real time, as its client has no other"
)]

use std::borrow::Cow;
use std::future::Future;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull::{Batch, BatchError};
use async_nats::jetstream::{AckKind, Message};
use futures_util::StreamExt as _;
use tokio::time::timeout;

use super::headers::names::{EPOCH, KEY, SEQUENCE, SESSION};
use super::{Broker, BrokerError, Disposition, Headers};

/// What JetStream itself knows a message by, within a window of its own.
const MESSAGE_ID: &str = "Nats-Msg-Id";

/// How long the server's next word may be in flight: as long as the client gives it if it has a
/// timer.
const ON_ITS_WAY: Duration = Duration::from_secs(5);

/// A pull consumer of a stream. Make it durable, with `AckPolicy::Explicit`, an `ack_wait` longer
/// than a transaction of a batch takes, and a `max_ack_pending` no less than the batches of all who
/// share it: beyond that the server is silent, and a turn goes on after 5 seconds.
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
        let there = self.consumer.fetch().max_messages(most).messages();
        let answered = gather(there, ON_ITS_WAY, &mut messages).await?;
        if answered && messages.is_empty() {
            let next = self.consumer.batch().max_messages(1).expires(wait);
            let patience = wait.saturating_add(ON_ITS_WAY);
            gather(next.messages(), patience, &mut messages).await?;
        }
        Ok(messages)
    }

    fn headers<'a>(&self, message: &'a Message) -> Headers<'a> {
        message.headers.as_ref().map_or_else(Headers::default, read)
    }

    fn payload<'a>(&self, message: &'a Message) -> &'a [u8] {
        &message.payload
    }

    async fn settle(&mut self, message: Message, how: Disposition) -> Result<(), BrokerError> {
        let kind = match how {
            Disposition::Done => AckKind::Ack,
            Disposition::Again(after) => AckKind::Nak(Some(after)),
            Disposition::Refused => AckKind::Term,
        };
        message.ack_with(kind).await
    }
}

/// Adds what a request brings. → whether the server said that it is all.
///
/// That word is lost with a connection, and the client waits for it for ever: so a silence ends it
/// too. What the server sent meanwhile comes again.
async fn gather(
    request: impl Future<Output = Result<Batch, BatchError>>,
    patience: Duration,
    messages: &mut Vec<Message>,
) -> Result<bool, BrokerError> {
    let Ok(batch) = timeout(patience, request).await else {
        return Ok(false);
    };
    let mut batch = batch?;
    loop {
        match timeout(patience, batch.next()).await {
            Ok(Some(message)) => messages.push(message?),
            Ok(None) => return Ok(true),
            Err(_) => return Ok(false),
        }
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
