//! RabbitMQ: a consumer of a queue with explicit acknowledgements.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use lapin::types::AMQPValue;
use lapin::{BasicProperties, Consumer};
use semel_core::Clock;

use super::headers::names::{EPOCH, KEY, SEQUENCE, SESSION};
use super::{Broker, BrokerError, Disposition, Headers};

/// A consumer of a queue. Set the channel's prefetch (`basic_qos`) to no less than the batch, or
/// the batch is never full.
///
/// RabbitMQ delivers a refused message to the queue's dead-letter exchange, if it has one, and one
/// to be delivered again at once: so that one is held back here for its time, and stays delivered
/// until then.
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
        let Ok(first) = self.clock.timeout(wait, self.consumer.next()).await else {
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
        read(&message.properties)
    }

    fn payload<'a>(&self, message: &'a Delivery) -> &'a [u8] {
        &message.data
    }

    async fn settle(&mut self, message: Delivery, how: Disposition) -> Result<(), BrokerError> {
        let requeue = BasicNackOptions {
            requeue: true,
            ..BasicNackOptions::default()
        };
        match how {
            Disposition::Done => message.ack(BasicAckOptions::default()).await?,
            Disposition::Refused => message.nack(BasicNackOptions::default()).await?,
            Disposition::Again(after) => {
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

/// What stands for a header that can't be read: no name, no key and no number, so that its message
/// is refused. Were it called absent, its message would be taken for another.
const UNREADABLE: &str = "";

fn read(properties: &BasicProperties) -> Headers<'_> {
    let table = properties.headers().as_ref();
    let get = |name: &str| Some(text(table?.inner().get(name)?));
    let id = properties.message_id().as_ref();
    Headers {
        session: get(SESSION),
        sequence: get(SEQUENCE),
        epoch: get(EPOCH),
        key: get(KEY).or_else(|| id.map(|id| Cow::Borrowed(id.as_str()))),
    }
}

/// Clients choose the width of an integer by themselves, many the smallest that it fits in. All are
/// read.
fn text(value: &AMQPValue) -> Cow<'_, str> {
    match value {
        AMQPValue::LongString(text) => utf8(text.as_bytes()),
        AMQPValue::ByteArray(bytes) => utf8(bytes.as_slice()),
        AMQPValue::ShortString(text) => Cow::Borrowed(text.as_str()),
        AMQPValue::ShortShortInt(number) => Cow::Owned(number.to_string()),
        AMQPValue::ShortShortUInt(number) => Cow::Owned(number.to_string()),
        AMQPValue::ShortInt(number) => Cow::Owned(number.to_string()),
        AMQPValue::ShortUInt(number) => Cow::Owned(number.to_string()),
        AMQPValue::LongInt(number) => Cow::Owned(number.to_string()),
        AMQPValue::LongUInt(number) => Cow::Owned(number.to_string()),
        AMQPValue::LongLongInt(number) => Cow::Owned(number.to_string()),
        _ => Cow::Borrowed(UNREADABLE),
    }
}

/// Not with its bad bytes replaced: two names could become one.
fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    Cow::Borrowed(std::str::from_utf8(bytes).unwrap_or(UNREADABLE))
}

#[cfg(test)]
mod tests {
    use lapin::types::{DecimalValue, FieldArray, FieldTable};

    use super::*;
    use crate::consume::MalformedMessage;
    use crate::key::{SessionId, StreamKey};
    use crate::marks::Mark;
    use crate::operation::StreamOperation;

    fn string(text: &str) -> AMQPValue {
        AMQPValue::LongString(text.into())
    }

    /// What a message of session `a` with these headers is.
    fn operation(headers: &[(&str, AMQPValue)]) -> Result<StreamOperation, MalformedMessage> {
        let mut table = FieldTable::default();
        table.insert(SESSION.into(), string("a"));
        for (name, value) in headers {
            table.insert((*name).into(), value.clone());
        }
        read(&BasicProperties::default().with_headers(table)).operation()
    }

    fn at(epoch: u64, seqno: u64) -> Result<StreamOperation, MalformedMessage> {
        let session = SessionId::named("a");
        Ok(StreamOperation::sequenced(session, Mark::new(epoch, seqno)))
    }

    #[test]
    fn numbers_are_read_from_integers_of_every_width() {
        let table = [
            (AMQPValue::ShortShortInt(7), 7),
            (AMQPValue::ShortShortUInt(u8::MAX), 255),
            (AMQPValue::ShortInt(i16::MAX), 32_767),
            (AMQPValue::ShortUInt(u16::MAX), 65_535),
            (AMQPValue::LongInt(i32::MAX), 2_147_483_647),
            (AMQPValue::LongUInt(u32::MAX), 4_294_967_295),
            (AMQPValue::LongLongInt(1 << 40), 1 << 40),
        ];
        for (value, number) in table {
            let sequence = [(SEQUENCE, value.clone())];
            assert_eq!(operation(&sequence), at(0, number), "{value:?}");
            let epoch = [(SEQUENCE, string("1")), (EPOCH, value.clone())];
            assert_eq!(operation(&epoch), at(number, 1), "{value:?}");
        }
    }

    #[test]
    fn texts_are_read_from_strings_and_from_bytes() {
        let texts = [
            string("7"),
            AMQPValue::ShortString("7".into()),
            AMQPValue::ByteArray(b"7".to_vec().into()),
        ];
        for value in texts {
            let sequence = [(SEQUENCE, value.clone())];
            assert_eq!(operation(&sequence), at(0, 7), "{value:?}");
        }
    }

    #[test]
    fn numbers_below_the_first_are_refused() {
        let table = [
            AMQPValue::ShortShortInt(-1),
            AMQPValue::ShortInt(-1),
            AMQPValue::LongInt(-1),
            // A number of 64 bits without a sign, as RabbitMQ hands it on.
            AMQPValue::LongLongInt(i64::MIN),
        ];
        for value in table {
            let sequence = [(SEQUENCE, value.clone())];
            let refused = Err(MalformedMessage::Number);
            assert_eq!(operation(&sequence), refused, "{value:?}");
            let epoch = [(SEQUENCE, string("1")), (EPOCH, value.clone())];
            assert_eq!(operation(&epoch), refused, "{value:?}");
        }
    }

    #[test]
    fn a_header_that_cannot_be_read_is_refused_and_never_absent() {
        let decimal = DecimalValue { scale: 0, value: 7 };
        let unreadable = [
            AMQPValue::Boolean(true),
            AMQPValue::Float(7.0),
            AMQPValue::Double(7.0),
            AMQPValue::DecimalValue(decimal),
            AMQPValue::Timestamp(7),
            AMQPValue::FieldArray(FieldArray::default()),
            AMQPValue::FieldTable(FieldTable::default()),
            AMQPValue::Void,
            AMQPValue::LongString(vec![0xff_u8].into()),
            AMQPValue::ByteArray(vec![0xff_u8].into()),
        ];
        for value in unreadable {
            for name in [SESSION, SEQUENCE, EPOCH, KEY] {
                let headers = [(SEQUENCE, string("7")), (name, value.clone())];
                assert!(operation(&headers).is_err(), "{name}: {value:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_made_up_for_by_a_message_id() {
        let named = |headers: FieldTable| {
            let properties = BasicProperties::default().with_headers(headers);
            read(&properties.with_message_id("id".into())).operation()
        };
        let id = StreamOperation::keyed(StreamKey::from_text(b"id"));
        assert_eq!(named(FieldTable::default()), Ok(id));
        for name in [SESSION, SEQUENCE, EPOCH, KEY] {
            let mut headers = FieldTable::default();
            headers.insert(name.into(), AMQPValue::Void);
            assert!(named(headers).is_err(), "{name}");
        }
    }
}
