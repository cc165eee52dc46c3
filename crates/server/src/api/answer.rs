//! Answers as JSON: what an owner settles with, and what a replay shows.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use semel_core::{Answer, Body};
use semel_http::Head;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::wire::{Failure, given, present, whole_or_none};

/// The most headers taken.
const MAX_HEADERS: usize = 64;

/// The longest name of a header.
const MAX_NAME_BYTES: usize = 100;

/// The longest value of a header.
const MAX_VALUE_BYTES: usize = 4096;

/// Headers that are never kept: they end at the next hop, are made anew, or are secrets.
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

/// An answer, to be kept and replayed. One of `body`, `body_base64` and `body_omitted_bytes`, or none.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerInput {
    /// An HTTP status, where the answer is one of HTTP.
    #[schema(minimum = 200, maximum = 599, nullable = false)]
    #[serde(default, deserialize_with = "whole_or_none")]
    status: Option<u64>,
    /// Headers to keep, where the answer is one of HTTP.
    #[serde(default)]
    #[schema(max_items = 64)]
    headers: Vec<Header>,
    /// The body, as JSON. Kept as it is written, byte for byte.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<serde_json::Value>)]
    body: Option<Box<RawValue>>,
    /// The body, as bytes in base64.
    #[serde(default, deserialize_with = "present")]
    #[schema(
        nullable = false,
        pattern = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
    )]
    body_base64: Option<String>,
    /// The body is too large to send: how many bytes it has. Replays say that it was not kept.
    #[serde(default, deserialize_with = "whole_or_none")]
    #[schema(nullable = false, minimum = 0)]
    body_omitted_bytes: Option<u64>,
}

/// One header.
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

/// An answer from a record. At most one of `body`, `body_base64` and `body_omitted_bytes`.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct AnswerView {
    /// The HTTP status, where the answer is one of HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    status: Option<u16>,
    /// The headers that were kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headers: Vec<Header>,
    /// The body, where it is JSON: as it was first given, byte for byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    body: Option<Box<RawValue>>,
    /// The body in base64, where it isn't JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    body_base64: Option<String>,
    /// The body was too large to keep, or a stream: how long it was; 0 where that isn't known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    body_omitted_bytes: Option<u64>,
}

impl AnswerInput {
    /// As a record keeps it. Without status and headers in the form of the typed library, else in the form of
    /// the HTTP layer: either can replay it.
    pub(crate) fn into_answer(self) -> Result<Answer, Failure> {
        let head = if self.status.is_none() && self.headers.is_empty() {
            Bytes::new()
        } else {
            head(self.status, &self.headers)?
        };
        let body = match (self.body, self.body_base64, self.body_omitted_bytes) {
            (None, None, None) if head.is_empty() => Body::Kept("null".into()),
            (None, None, None) => Body::Kept(Bytes::new()),
            (Some(json), None, None) => Body::Kept(json.get().to_owned().into()),
            (None, Some(text), None) => {
                let detail = "body_base64 is not base64 with padding";
                let bytes = BASE64_STANDARD
                    .decode(text)
                    .map_err(|_| Failure::invalid(detail))?;
                Body::Kept(bytes.into())
            }
            (None, None, Some(bytes)) => Body::Omitted { bytes },
            _ => return Err(Failure::refused("an answer has one body, in one form")),
        };
        Ok(Answer { head, body })
    }
}

fn head(status: Option<u64>, headers: &[Header]) -> Result<Bytes, Failure> {
    if headers.len() > MAX_HEADERS {
        return Err(Failure::invalid(format!(
            "at most {MAX_HEADERS} headers are taken"
        )));
    }
    let status = u16::try_from(status.unwrap_or(200)).unwrap_or(0);
    let status = StatusCode::from_u16(status).ok();
    let status = status.filter(|status| (200..600).contains(&status.as_u16()));
    let status = status.ok_or_else(|| Failure::invalid("a final status is from 200 to 599"))?;
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
            return Err(Failure::invalid(
                "a header has a name or a value that HTTP doesn't allow",
            ));
        };
        if NEVER_KEPT.contains(&name.as_str()) {
            let detail = format!("the header {name} is never kept");
            return Err(Failure::refused(detail));
        }
        kept.append(name, value);
    }
    let head = Head {
        status,
        headers: kept,
        trailers: HeaderMap::new(),
        headers_left_out: false,
    };
    Ok(head.encode())
}

impl AnswerView {
    pub(crate) fn of(answer: &Answer) -> Self {
        let head = Head::decode(&answer.head).ok();
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
            Body::Omitted { bytes } | Body::Elsewhere { bytes, .. } => {
                view.body_omitted_bytes = Some(*bytes);
            }
            Body::Kept(bytes) => (view.body, view.body_base64) = shown(bytes),
        }
        view
    }

    /// Status and sizes alone.
    pub(crate) fn summary(answer: &Answer) -> (Option<u16>, u64, bool) {
        let status = Head::decode(&answer.head)
            .ok()
            .map(|head| head.status.as_u16());
        match &answer.body {
            Body::Kept(body) => (status, body.len() as u64, true),
            Body::Omitted { bytes } => (status, *bytes, false),
            Body::Elsewhere { bytes, .. } => (status, *bytes, true),
        }
    }
}

/// Bytes as JSON where they are JSON, else in base64.
pub(crate) fn shown(bytes: &[u8]) -> (Option<Box<RawValue>>, Option<String>) {
    let json = std::str::from_utf8(bytes).ok().and_then(|text| {
        let raw = serde_json::from_str::<Box<RawValue>>(text).ok()?;
        // White space around it would be lost, and with it the bytes.
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

    fn kept(input: &str) -> Answer {
        let input: AnswerInput = serde_json::from_str(input).unwrap();
        input.into_answer().unwrap()
    }

    fn seen(answer: &Answer) -> String {
        serde_json::to_string(&AnswerView::of(answer)).unwrap()
    }

    #[test]
    fn json_comes_back_byte_for_byte() {
        let body = r#"{"body":{"b":1.0,"a":[ 1e2, 12345678901234567890]}}"#;
        assert_eq!(seen(&kept(body)), body);
        assert_eq!(
            kept("{}"),
            Answer::of("null"),
            "as the typed library keeps nothing"
        );
    }

    #[test]
    fn an_answer_of_http_is_one_that_the_layer_can_replay() {
        let answer = kept(
            r#"{"status":201,"headers":[{"name":"Location","value":"/c/1"}],"body_base64":"AAEC"}"#,
        );
        let head = Head::decode(&answer.head).unwrap();
        assert_eq!(head.status, 201);
        assert_eq!(head.headers["location"], "/c/1");
        assert_eq!(answer.body, Body::Kept(vec![0, 1, 2].into()));
        assert!(seen(&answer).contains(r#""body_base64":"AAEC""#));
    }

    #[test]
    fn secrets_two_bodies_and_nonsense_are_refused() {
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
