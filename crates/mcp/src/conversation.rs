//! [`ConversationSource`]: what tells the conversations of one caller apart.

use std::str::FromStr;

use http::{HeaderMap, HeaderName};
use serde::Deserialize;

/// What tells conversations apart. Equal calls without a key are one call within a conversation,
/// and different calls in two conversations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum ConversationSource {
    /// The session of the protocol.
    #[default]
    Session,
    /// A header of the HTTP request.
    Header(HeaderName),
    /// A member of `_meta`.
    Meta(String),
    /// The trace id in `traceparent`, a header or a member of `_meta`.
    Trace,
    /// All calls of a caller belong to one conversation.
    Shared,
}

/// The member of `_meta` and the header with the trace id.
const TRACE: &str = "traceparent";

impl ConversationSource {
    /// The header that counts. `None` if there is none, or more than one of the name.
    pub(crate) fn read_header(&self, headers: &HeaderMap) -> Option<String> {
        let name = match self {
            Self::Header(name) => name.clone(),
            Self::Trace => HeaderName::from_static(TRACE),
            Self::Session | Self::Meta(_) | Self::Shared => return None,
        };
        let mut values = headers.get_all(name).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return None;
        };
        self.conversation(value.to_str().ok()?)
    }

    /// The member of `_meta` that counts.
    pub(crate) fn meta_member(&self) -> Option<&str> {
        match self {
            Self::Meta(name) => Some(name),
            Self::Trace => Some(TRACE),
            Self::Session | Self::Header(_) | Self::Shared => None,
        }
    }

    /// The conversation that a value names.
    pub(crate) fn conversation(&self, value: &str) -> Option<String> {
        let named = match self {
            Self::Trace => trace_id(value)?,
            _ => value,
        };
        (!named.is_empty()).then(|| named.to_owned())
    }
}

/// The trace id of a `traceparent` (W3C Trace Context).
fn trace_id(value: &str) -> Option<&str> {
    let id = value.split('-').nth(1)?;
    let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_id && id.bytes().any(|byte| byte != b'0')).then_some(id)
}

impl FromStr for ConversationSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = |name: &str| match name.is_empty() {
            true => Err(format!("{text:?} has no name after the colon")),
            false => Ok(name.to_owned()),
        };
        match text.split_once(':') {
            None if text == "session" => Ok(Self::Session),
            None if text == "trace" => Ok(Self::Trace),
            None if text == "shared" => Ok(Self::Shared),
            Some(("meta", name)) => named(name).map(Self::Meta),
            Some(("header", name)) => {
                let name = named(name)?.parse();
                name.map(Self::Header)
                    .map_err(|_| format!("{text:?} doesn't name a header"))
            }
            _ => Err(format!(
                "{text:?} is none of session, trace, shared, header:NAME and meta:NAME"
            )),
        }
    }
}

impl TryFrom<String> for ConversationSource {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn source_is_parsed_from_its_text() {
        let parse = |text: &str| text.parse::<ConversationSource>();
        assert_eq!(parse("session"), Ok(ConversationSource::Session));
        assert_eq!(
            parse("meta:a:b"),
            Ok(ConversationSource::Meta("a:b".to_owned()))
        );
        let thread = HeaderName::from_static("x-thread");
        assert_eq!(
            parse("header:X-Thread"),
            Ok(ConversationSource::Header(thread))
        );
        for wrong in ["", "header", "header:", "meta:", "header:a b", "cookie:a"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn trace_names_the_conversation_by_its_id() {
        let of = |value: &str| ConversationSource::Trace.conversation(value);
        assert_eq!(
            of(&format!("00-{ID}-00f067aa0ba902b7-01")).as_deref(),
            Some(ID)
        );
        for wrong in ["", "00", "00-1-2-3", &format!("00-{}-1-01", "0".repeat(32))] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn header_counts_if_it_is_there_once() {
        let name = HeaderName::from_static("x-thread");
        let source = ConversationSource::Header(name.clone());
        let mut headers = HeaderMap::new();
        assert_eq!(source.read_header(&headers), None);
        headers.append(&name, HeaderValue::from_static("t-1"));
        assert_eq!(source.read_header(&headers).as_deref(), Some("t-1"));
        headers.append(&name, HeaderValue::from_static("t-2"));
        assert_eq!(source.read_header(&headers), None);
    }
}
