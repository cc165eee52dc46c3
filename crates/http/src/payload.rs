//! [`Payload`]: which parts of a request count for its fingerprint.

use std::borrow::Cow;

use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use semel_core::{CanonicalError, Fingerprint, FingerprintBuilder, Secret};

use crate::credentials::CountedCredential;
use crate::paths::{except, only};

/// Headers by which some services override the method. They count as payload if they are present.
pub(crate) static METHOD_OVERRIDES: [HeaderName; 3] = [
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-method-override"),
];

/// Which parts of a request make it the same request as before. All of them, unless told otherwise.
///
/// ```
/// use semel_http::{BodyComparison, Payload};
///
/// let ignored = vec!["/sent_at".into(), "/items/*/trace".into()];
/// let payload = Payload::default().with_body(BodyComparison::Except(ignored));
/// # let _ = payload;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Payload {
    /// The method. On by default.
    pub method: bool,
    /// The authority, that is, the requested host. On by default.
    pub authority: bool,
    /// The path. On by default.
    pub path: bool,
    /// The query. On by default.
    pub query: bool,
    /// The media type and encoding of the body. On by default.
    pub content_type: bool,
    /// Further headers that count. None by default.
    pub headers: Vec<HeaderName>,
    /// How the body counts. By default the whole body counts, JSON by its meaning.
    pub body: BodyComparison,
}

impl Default for Payload {
    fn default() -> Self {
        Self {
            method: true,
            authority: true,
            path: true,
            query: true,
            content_type: true,
            headers: Vec::new(),
            body: BodyComparison::Meaning,
        }
    }
}

/// How a body counts.
///
/// Paths are JSON pointers (`/customer/id`), in which `*` matches every member or element.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyComparison {
    /// JSON by its meaning (RFC 8785: member order and white space don't count), anything else by
    /// its bytes.
    #[default]
    Meaning,
    /// By its bytes, JSON or not.
    Bytes,
    /// JSON by its meaning without these paths, anything else by its bytes.
    Except(Vec<Cow<'static, str>>),
    /// Only these paths of JSON, by its meaning; anything else by its bytes.
    Only(Vec<Cow<'static, str>>),
    /// The body does not count.
    Nothing,
}

impl Payload {
    /// Nothing counts: the key alone identifies the request.
    #[must_use]
    pub const fn nothing() -> Self {
        Self {
            method: false,
            authority: false,
            path: false,
            query: false,
            content_type: false,
            headers: Vec::new(),
            body: BodyComparison::Nothing,
        }
    }

    /// `credentials` count in addition to the route's headers if no principal is known.
    pub(crate) fn fingerprint(
        &self,
        secret: &Secret,
        parts: &Parts,
        credentials: &[CountedCredential<'_>],
        body: &[u8],
    ) -> Result<Fingerprint, CanonicalError> {
        // A part that does not count stays as an empty part, so that the others keep their
        // positions.
        let counting = |counts: bool, bytes| if counts { bytes } else { &b""[..] };
        let media = media_type(parts);
        let encoding = parts.headers.get(header::CONTENT_ENCODING);
        let query = parts.uri.query().unwrap_or("");
        let mut builder = Fingerprint::builder(secret)
            .part(counting(self.method, parts.method.as_str().as_bytes()))
            .part(counting(self.authority, authority(parts).as_bytes()))
            .part(counting(self.path, parts.uri.path().as_bytes()))
            .part(counting(self.query, query.as_bytes()))
            .part(counting(self.content_type, media.as_bytes()))
            .part(counting(
                self.content_type,
                encoding.map_or(b"", HeaderValue::as_bytes),
            ));
        let overrides = METHOD_OVERRIDES.iter();
        // Most requests have none. To compare a few names is quicker than to hash three.
        let is_present = |name: &&HeaderName| parts.headers.keys().any(|header| header == *name);
        let overrides = overrides.filter(|name| self.method && is_present(name));
        for name in self.headers.iter().chain(overrides) {
            let values = parts.headers.get_all(name).iter();
            let values: Vec<&[u8]> = values.map(HeaderValue::as_bytes).collect();
            builder = named(builder, name.as_str(), &values);
        }
        for (name, values) in credentials {
            builder = named(builder, name, values);
        }
        Ok(self.body.add(builder, is_json(&media), body)?.finish())
    }

    /// Sets [`method`](Self::method).
    #[must_use]
    pub const fn with_method(mut self, method: bool) -> Self {
        self.method = method;
        self
    }

    /// Sets [`authority`](Self::authority).
    #[must_use]
    pub const fn with_authority(mut self, authority: bool) -> Self {
        self.authority = authority;
        self
    }

    /// Sets [`path`](Self::path).
    #[must_use]
    pub const fn with_path(mut self, path: bool) -> Self {
        self.path = path;
        self
    }

    /// Sets [`query`](Self::query).
    #[must_use]
    pub const fn with_query(mut self, query: bool) -> Self {
        self.query = query;
        self
    }

    /// Sets [`content_type`](Self::content_type).
    #[must_use]
    pub const fn with_content_type(mut self, content_type: bool) -> Self {
        self.content_type = content_type;
        self
    }

    /// Sets [`headers`](Self::headers).
    #[must_use]
    pub fn with_headers(mut self, headers: Vec<HeaderName>) -> Self {
        self.headers = headers;
        self
    }

    /// Sets [`body`](Self::body).
    #[must_use]
    pub fn with_body(mut self, body: BodyComparison) -> Self {
        self.body = body;
        self
    }
}

/// A name, the number of its values, and the values. The number keeps a value from passing for the
/// next name.
fn named(
    builder: FingerprintBuilder,
    name: &str,
    values: &[impl AsRef<[u8]>],
) -> FingerprintBuilder {
    let many = values.len() as u64;
    let builder = builder.part(name.as_bytes()).part(&many.to_le_bytes());
    values
        .iter()
        .fold(builder, |builder, value| builder.part(value.as_ref()))
}

impl BodyComparison {
    fn add(
        &self,
        builder: FingerprintBuilder,
        is_json: bool,
        body: &[u8],
    ) -> Result<FingerprintBuilder, CanonicalError> {
        let is_json = is_json && !body.is_empty();
        match self {
            Self::Nothing => Ok(builder),
            Self::Meaning if is_json => builder.json(body),
            Self::Except(paths) if is_json => builder.json(&except(body, paths)?),
            Self::Only(paths) if is_json => builder.json(&only(body, paths)?),
            _ => Ok(builder.part(body)),
        }
    }
}

fn authority(parts: &Parts) -> Cow<'_, str> {
    let named = parts.uri.authority().map(http::uri::Authority::as_str);
    let host = parts.headers.get(header::HOST);
    let text = named.or_else(|| host.and_then(|host| host.to_str().ok()));
    in_lower_case(text.unwrap_or(""))
}

/// The media type, for JSON without parameters, which have no meaning there.
fn media_type(parts: &Parts) -> Cow<'_, str> {
    let value = parts.headers.get(header::CONTENT_TYPE);
    // What nearly all clients send needs no closer look.
    if value.is_some_and(|value| value.as_bytes() == JSON.as_bytes()) {
        return Cow::Borrowed(JSON);
    }
    let text = value.and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = in_lower_case(text.split(';').next().unwrap_or("").trim());
    if is_json(&essence) {
        essence
    } else {
        text.into()
    }
}

/// Whether the media type is JSON.
pub(crate) fn says_json(parts: &Parts) -> bool {
    is_json(&media_type(parts))
}

fn in_lower_case(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        text.to_ascii_lowercase().into()
    } else {
        text.into()
    }
}

const JSON: &str = "application/json";

fn is_json(media: &str) -> bool {
    media == JSON || media == "text/json" || media.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn of(payload: &Payload, uri: &str, media: &str, body: &str) -> Fingerprint {
        let request = Request::post(uri).header("content-type", media).body(());
        let (parts, ()) = request.unwrap().into_parts();
        let made = payload.fingerprint(&Secret::none(), &parts, &[], body.as_bytes());
        made.unwrap()
    }

    #[test]
    fn every_part_counts_and_json_counts_by_its_meaning() {
        let all = Payload::default();
        let json = |uri: &str, body: &str| of(&all, uri, "application/json", body);
        let first = json("http://a/p?q=1", r#"{"a":1,"b":[1,2]}"#);
        let spaced = of(
            &all,
            "http://A/p?q=1",
            "application/json; charset=utf-8",
            r#"{ "b": [1, 2], "a": 1.0 }"#,
        );
        assert_eq!(first, spaced);
        let others = [
            json("http://b/p?q=1", r#"{"a":1,"b":[1,2]}"#),
            json("http://a/q?q=1", r#"{"a":1,"b":[1,2]}"#),
            json("http://a/p?q=2", r#"{"a":1,"b":[1,2]}"#),
            json("http://a/p?q=1", r#"{"a":1,"b":[2,1]}"#),
            of(&all, "http://a/p?q=1", "text/plain", r#"{"a":1,"b":[1,2]}"#),
        ];
        assert!(others.iter().all(|other| *other != first));
    }

    #[test]
    fn a_headers_value_is_not_the_next_ones_name() {
        let payload = Payload {
            headers: vec![
                HeaderName::from_static("x-a"),
                HeaderName::from_static("x-b"),
            ],
            ..Payload::default()
        };
        let with = |name: &str| {
            let request = Request::post("/p").header(name, "x-b").body(());
            let (parts, ()) = request.unwrap().into_parts();
            let made = payload.fingerprint(&Secret::none(), &parts, &[], b"");
            made.unwrap()
        };
        assert_ne!(with("x-a"), with("x-b"));
    }

    #[test]
    fn volatile_members_can_be_left_out() {
        let except = Payload {
            body: BodyComparison::Except(vec!["/sent_at".into(), "/items/*/trace".into()]),
            ..Payload::default()
        };
        let json = |body: &str| of(&except, "/p", "application/json", body);
        let first = json(r#"{"sent_at":1,"items":[{"id":1,"trace":"x"}]}"#);
        assert_eq!(
            first,
            json(r#"{"sent_at":2,"items":[{"id":1,"trace":"y"}]}"#)
        );
        assert_eq!(first, json(r#"{"items":[{"id":1}]}"#));
        assert_ne!(
            first,
            json(r#"{"sent_at":1,"items":[{"id":2,"trace":"x"}]}"#)
        );
    }

    #[test]
    fn chosen_members_alone_can_count() {
        let only = Payload {
            body: BodyComparison::Only(vec!["/order/id".into(), "/items/*/id".into()]),
            ..Payload::default()
        };
        let json = |body: &str| of(&only, "/p", "application/json", body);
        let first = json(r#"{"order":{"id":7,"note":"a"},"items":[{"id":1},{"id":2}]}"#);
        assert_eq!(
            first,
            json(r#"{"order":{"id":7,"note":"b"},"items":[{"id":1},{"id":2}],"more":1}"#)
        );
        assert_ne!(
            first,
            json(r#"{"order":{"id":8},"items":[{"id":1},{"id":2}]}"#)
        );
        assert_ne!(first, json(r#"{"order":{"id":7},"items":[{"id":1}]}"#));
    }
}
