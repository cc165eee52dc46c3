//! Stored answers as JSON: the input of a settlement, and the output of a replay.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use semel_core::{Answer, AnswerBody};
use semel_http::StoredHead;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::web::{Failure, deserialize_nullable, deserialize_optional_whole, deserialize_present};

/// The maximum number of headers.
const MAX_HEADERS: usize = 64;

/// The maximum length of a header name.
const MAX_NAME_BYTES: usize = 100;

/// The maximum length of a header value.
const MAX_VALUE_BYTES: usize = 4096;

/// Headers that are never kept: hop-by-hop headers, headers that each response sets anew, and
/// secrets.
const NEVER_KEPT: [&str; 14] = [
    "authorization",
    "connection",
    "content-length",
    "cookie",
    "date",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
];

/// An answer to keep and replay. It has at most one of `body`, `body_base64` and
/// `body_omitted_bytes`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerInput {
    /// The HTTP status, if the answer is an HTTP response.
    #[schema(minimum = 200, maximum = 599, nullable = false)]
    #[serde(default, deserialize_with = "deserialize_optional_whole")]
    status: Option<u64>,
    /// The headers to keep, if the answer is an HTTP response.
    #[serde(default)]
    #[schema(max_items = 64)]
    headers: Vec<Header>,
    /// The body as JSON, which is kept byte for byte.
    #[serde(default, deserialize_with = "deserialize_nullable")]
    #[schema(value_type = Option<serde_json::Value>)]
    body: Option<Box<RawValue>>,
    /// The body as base64.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(
        nullable = false,
        pattern = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
    )]
    body_base64: Option<String>,
    /// The size of a body that is too large to send. Replays report that it was not kept.
    #[serde(default, deserialize_with = "deserialize_optional_whole")]
    #[schema(nullable = false, minimum = 0)]
    body_omitted_bytes: Option<u64>,
}

/// A header.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    /// Its name.
    #[schema(
        min_length = 1,
        max_length = 100,
        pattern = "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"
    )]
    name: String,
    /// Its value.
    #[schema(max_length = 4096, pattern = "^[ -~]*$")]
    value: String,
}

/// An answer from a record. It has at most one of `body`, `body_base64` and `body_omitted_bytes`.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct AnswerView {
    /// The HTTP status, if the answer is an HTTP response.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    status: Option<u16>,
    /// The headers that were kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headers: Vec<Header>,
    /// The body, if it is JSON, byte for byte as it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    body: Option<Box<RawValue>>,
    /// The body as base64, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    body_base64: Option<String>,
    /// The size of a body that was too large to keep or was a stream; 0 if the size is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    body_omitted_bytes: Option<u64>,
}

impl AnswerInput {
    /// The answer as a record keeps it. Without status and headers it has the form of the typed
    /// library, otherwise the form of the HTTP layer.
    pub(crate) fn into_answer(self) -> Result<Answer, Failure> {
        let head = if self.status.is_none() && self.headers.is_empty() {
            Bytes::new()
        } else {
            encode_head(self.status, &self.headers)?
        };
        let body = match (self.body, self.body_base64, self.body_omitted_bytes) {
            (None, None, None) if head.is_empty() => AnswerBody::Kept("null".into()),
            (None, None, None) => AnswerBody::Kept(Bytes::new()),
            (Some(json), None, None) => AnswerBody::Kept(json.get().to_owned().into()),
            (None, Some(text), None) => {
                let detail = "body_base64 is not valid base64 with padding";
                let bytes = BASE64_STANDARD
                    .decode(text)
                    .map_err(|_| Failure::invalid(detail))?;
                AnswerBody::Kept(bytes.into())
            }
            (None, None, Some(bytes)) => AnswerBody::Omitted { bytes },
            _ => {
                return Err(Failure::refused(
                    "an answer has at most one of body, body_base64 and body_omitted_bytes",
                ));
            }
        };
        Ok(Answer { head, body })
    }
}

fn encode_head(status: Option<u64>, headers: &[Header]) -> Result<Bytes, Failure> {
    if headers.len() > MAX_HEADERS {
        return Err(Failure::invalid(format!(
            "an answer has at most {MAX_HEADERS} headers"
        )));
    }
    let status = u16::try_from(status.unwrap_or(200)).unwrap_or(0);
    let status = StatusCode::from_u16(status).ok();
    let status = status.filter(|status| (200..600).contains(&status.as_u16()));
    let status = status.ok_or_else(|| Failure::invalid("status must be from 200 to 599"))?;
    let mut kept = HeaderMap::new();
    for header in headers {
        let name = (header.name.len() <= MAX_NAME_BYTES).then_some(&header.name);
        let name = name.and_then(|name| HeaderName::try_from(name).ok());
        let plain = header
            .value
            .bytes()
            .all(|byte| (b' '..=b'~').contains(&byte));
        let value = (plain && header.value.len() <= MAX_VALUE_BYTES).then_some(&header.value);
        let value = value.and_then(|value| HeaderValue::try_from(value).ok());
        let (Some(name), Some(value)) = (name, value) else {
            return Err(Failure::invalid("a header has an invalid name or value"));
        };
        if NEVER_KEPT.contains(&name.as_str()) {
            let detail = format!("the header {name} is never kept");
            return Err(Failure::refused(detail));
        }
        kept.append(name, value);
    }
    let head = StoredHead::new(status).with_headers(kept);
    Ok(head.encode())
}

impl AnswerView {
    pub(crate) fn from_answer(answer: &Answer) -> Self {
        let head = StoredHead::decode(&answer.head).ok();
        let mut view = Self {
            status: head.as_ref().map(|head| head.status.as_u16()),
            ..Self::default()
        };
        for (name, value) in head.iter().flat_map(|head| head.headers.iter()) {
            view.headers.push(Header {
                name: name.to_string(),
                value: String::from_utf8_lossy(value.as_bytes()).into_owned(),
            });
        }
        match &answer.body {
            AnswerBody::Omitted { bytes } | AnswerBody::External { bytes, .. } => {
                view.body_omitted_bytes = Some(*bytes);
            }
            AnswerBody::Kept(bytes) => (view.body, view.body_base64) = json_or_base64(bytes),
        }
        view
    }

    /// The status, the size of the body, and whether the body was kept.
    pub(crate) fn summary(answer: &Answer) -> (Option<u16>, u64, bool) {
        let status = StoredHead::decode(&answer.head)
            .ok()
            .map(|head| head.status.as_u16());
        match &answer.body {
            AnswerBody::Kept(body) => (status, body.len() as u64, true),
            AnswerBody::Omitted { bytes } => (status, *bytes, false),
            AnswerBody::External { bytes, .. } => (status, *bytes, true),
        }
    }
}

/// Bytes as JSON if they are JSON, otherwise as base64.
pub(crate) fn json_or_base64(bytes: &[u8]) -> (Option<Box<RawValue>>, Option<String>) {
    let json = std::str::from_utf8(bytes).ok().and_then(|text| {
        let raw = serde_json::from_str::<Box<RawValue>>(text).ok()?;
        // White space around the JSON would be lost.
        (raw.get() == text).then_some(raw)
    });
    match json {
        Some(json) => (Some(json), None),
        None if bytes.is_empty() => (None, None),
        None => (None, Some(BASE64_STANDARD.encode(bytes))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_answer(input: &str) -> Answer {
        let input: AnswerInput = serde_json::from_str(input).unwrap();
        input.into_answer().unwrap()
    }

    fn render(answer: &Answer) -> String {
        serde_json::to_string(&AnswerView::from_answer(answer)).unwrap()
    }

    #[test]
    fn json_comes_back_byte_for_byte() {
        let body = r#"{"body":{"b":1.0,"a":[ 1e2, 12345678901234567890]}}"#;
        assert_eq!(render(&read_answer(body)), body);
        assert_eq!(
            read_answer("{}"),
            Answer::from_body("null"),
            "the form of the typed library for an empty answer"
        );
    }

    #[test]
    fn http_answer_can_be_replayed_by_the_layer() {
        let answer = read_answer(
            r#"{"status":201,"headers":[{"name":"Location","value":"/c/1"}],"body_base64":"AAEC"}"#,
        );
        let head = StoredHead::decode(&answer.head).unwrap();
        assert_eq!(head.status, 201);
        assert_eq!(head.headers["location"], "/c/1");
        assert_eq!(answer.body, AnswerBody::Kept(vec![0, 1, 2].into()));
        assert!(render(&answer).contains(r#""body_base64":"AAEC""#));
    }

    #[test]
    fn secret_headers_two_bodies_and_bad_values_are_refused() {
        for input in [
            r#"{"headers":[{"name":"Set-Cookie","value":"a=b"}]}"#,
            r#"{"headers":[{"name":"Authorization","value":"x"}]}"#,
            r#"{"headers":[{"name":"a b","value":"x"}]}"#,
            r#"{"status":100}"#,
            r#"{"status":999}"#,
            r#"{"body":1,"body_base64":"AA=="}"#,
            r#"{"body_base64":"???"}"#,
        ] {
            let input: AnswerInput = serde_json::from_str(input).unwrap();
            assert!(input.into_answer().is_err());
        }
    }
}
