//! Which operation a message is, by its headers.

use std::borrow::Cow;

use crate::key::{SessionId, StreamKey};
use crate::marks::Mark;
use crate::operation::StreamOperation;

/// The headers that count, as a broker's message has them.
///
/// | header | says |
/// |---|---|
/// | `Semel-Session` | the session: 32 hexadecimal digits, or a name of up to 128 bytes |
/// | `Semel-Sequence` | the number in it, from 1 |
/// | `Semel-Epoch` | the producer's life; 0 without |
/// | `Idempotency-Key` | a key of up to 255 bytes; the broker's own message id (`Nats-Msg-Id`, AMQP's `message-id`) without |
///
/// A message needs a session with a number, or a key. One with neither is refused: to apply it
/// would be to apply its duplicates too. So is one with a header that is there and can't be read,
/// for which a broker gives the empty text: without that header it would be another message.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Headers<'a> {
    /// `Semel-Session`.
    pub session: Option<Cow<'a, str>>,
    /// `Semel-Sequence`.
    pub sequence: Option<Cow<'a, str>>,
    /// `Semel-Epoch`.
    pub epoch: Option<Cow<'a, str>>,
    /// `Idempotency-Key`, or the message id.
    pub key: Option<Cow<'a, str>>,
}

/// The names of the headers.
#[cfg(any(feature = "nats", feature = "rabbitmq"))]
pub(crate) mod names {
    pub(crate) const SESSION: &str = "Semel-Session";
    pub(crate) const SEQUENCE: &str = "Semel-Sequence";
    pub(crate) const EPOCH: &str = "Semel-Epoch";
    pub(crate) const KEY: &str = "Idempotency-Key";
}

/// Why a message can't be told from its duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MalformedMessage {
    /// Neither a session with a number nor a key.
    #[error("the message has neither a session with a sequence number nor a key")]
    Anonymous,
    /// One without the other.
    #[error("a session needs a sequence number, and a sequence number a session")]
    Half,
    /// Not a number, or 0.
    #[error("sequence numbers are decimal and begin at 1, epochs at 0")]
    Number,
    /// Too long, or empty.
    #[error("a session has 1 to 128 bytes, a key 1 to 255")]
    Length,
}

impl Headers<'_> {
    /// The operation that they name.
    ///
    /// # Errors
    /// [`MalformedMessage`].
    pub fn operation(&self) -> Result<StreamOperation, MalformedMessage> {
        let key = self.key.as_deref().map(key).transpose()?;
        let epoch = self.epoch.as_deref().map_or(Ok(0), parse)?;
        let place = match (self.session.as_deref(), self.sequence.as_deref()) {
            (Some(name), Some(number)) => {
                let at = Mark::new(epoch, parse(number)?);
                if at.seqno.0 == 0 {
                    return Err(MalformedMessage::Number);
                }
                Some((session(name)?, at))
            }
            (None, None) => None,
            _ => return Err(MalformedMessage::Half),
        };
        match (place, key) {
            (Some((session, at)), Some(key)) => {
                Ok(StreamOperation::sequenced(session, at).with_key(key))
            }
            (Some((session, at)), None) => Ok(StreamOperation::sequenced(session, at)),
            (None, Some(key)) => Ok(StreamOperation::keyed(key)),
            (None, None) => Err(MalformedMessage::Anonymous),
        }
    }
}

fn key(text: &str) -> Result<StreamKey, MalformedMessage> {
    match text.len() {
        1..=255 => Ok(StreamKey::from_text(text.as_bytes())),
        _ => Err(MalformedMessage::Length),
    }
}

fn session(text: &str) -> Result<SessionId, MalformedMessage> {
    let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match (digits.then(|| u128::from_str_radix(text, 16)), text.len()) {
        (Some(Ok(number)), _) => Ok(SessionId::from_bytes(number.to_be_bytes())),
        (_, 1..=128) => Ok(SessionId::named(text)),
        _ => Err(MalformedMessage::Length),
    }
}

/// Digits alone: no sign, no spaces, and no number that PostgreSQL can't keep.
fn parse(text: &str) -> Result<u64, MalformedMessage> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| text.parse::<i64>().ok()).flatten();
    let number = number.and_then(|number| u64::try_from(number).ok());
    number.ok_or(MalformedMessage::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(session: &str, sequence: &str, epoch: &str, key: &str) -> Headers<'static> {
        let some = |text: &str| (!text.is_empty()).then(|| Cow::Owned(text.to_owned()));
        Headers {
            session: some(session),
            sequence: some(sequence),
            epoch: some(epoch),
            key: some(key),
        }
    }

    #[test]
    fn a_place_a_key_or_both() {
        let place = StreamOperation::sequenced(SessionId::named("a"), Mark::new(0, 7));
        assert_eq!(headers("a", "7", "", "").operation(), Ok(place));
        let later = StreamOperation::sequenced(SessionId::named("a"), Mark::new(3, 7));
        assert_eq!(headers("a", "7", "3", "").operation(), Ok(later));
        let key = StreamKey::from_text(b"k");
        assert_eq!(
            headers("", "", "", "k").operation(),
            Ok(StreamOperation::keyed(key))
        );
        assert_eq!(
            headers("a", "7", "", "k").operation(),
            Ok(place.with_key(key))
        );
        let digits = "000102030405060708090a0b0c0d0e0f";
        let session = SessionId::from_bytes(std::array::from_fn(|n| u8::try_from(n).unwrap()));
        let numbered = StreamOperation::sequenced(session, Mark::new(0, 7));
        assert_eq!(headers(digits, "7", "", "").operation(), Ok(numbered));
    }

    #[test]
    fn what_could_be_taken_for_another_is_refused() {
        use MalformedMessage::{Anonymous, Half, Length, Number};
        let long = "x".repeat(256);
        let table = [
            (headers("", "", "", ""), Anonymous),
            (headers("a", "", "", ""), Half),
            (headers("a", "", "", "k"), Half),
            (headers("", "1", "", "k"), Half),
            (headers("a", "0", "", ""), Number),
            (headers("a", "-1", "", ""), Number),
            (headers("a", "+1", "", ""), Number),
            (headers("a", "1", "x", ""), Number),
            (headers("", "", "x", "k"), Number),
            (headers("a", "9223372036854775808", "", ""), Number),
            (headers(&long, "1", "", ""), Length),
            (headers("", "", "", &long), Length),
        ];
        for (headers, error) in table {
            assert_eq!(headers.operation(), Err(error), "{headers:?}");
        }
    }
}
