//! [`KeySource`]: where the key of a request is read from.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::header::HeaderName;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use semel_core::{Key, KeyRules, canonicalize};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::payload;
use crate::problem::Refusal;
use crate::reading;

/// The header of the IETF draft.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The same header, as some APIs spell it.
pub const X_IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("x-idempotency-key");

type KeyFinder = dyn Fn(&Parts, &[u8]) -> Option<String> + Send + Sync;

/// Where a request's key is read from.
///
/// ```
/// use semel_http::KeySource;
///
/// let in_the_body = KeySource::field("idempotency_key");
/// let from_the_order = KeySource::function(|parts, _body| {
///     Some(parts.headers.get("x-order-id")?.to_str().ok()?.to_owned())
/// });
/// # let _ = (in_the_body, from_the_order);
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum KeySource {
    /// `Idempotency-Key` or `X-Idempotency-Key`, with a single value.
    #[default]
    Header,
    /// Another header, with a single value.
    Named(HeaderName),
    /// A member of the JSON object in the body, under any of these names.
    Field(Vec<Cow<'static, str>>),
    /// A parameter of the query, under any of these names.
    Query(Vec<Cow<'static, str>>),
    /// The text in the JSON body to which one of these JSON pointers leads, such as
    /// `/variables/idempotencyKey`.
    Pointer(Vec<Cow<'static, str>>),
    /// The text that the function returns for head and body.
    Function(Arc<KeyFinder>),
}

impl KeySource {
    /// A member of the JSON object in the body.
    #[must_use]
    pub fn field(name: impl Into<Cow<'static, str>>) -> Self {
        Self::Field(vec![name.into()])
    }

    /// The member that callers without headers use: `idempotency_key` or `idempotencyKey`.
    #[must_use]
    pub fn body() -> Self {
        Self::Field(vec!["idempotency_key".into(), "idempotencyKey".into()])
    }

    /// The text in the JSON body to which this JSON pointer (RFC 6901) leads.
    #[must_use]
    pub fn pointer(pointer: impl Into<Cow<'static, str>>) -> Self {
        Self::Pointer(vec![pointer.into()])
    }

    /// A parameter of the query.
    #[must_use]
    pub fn query(name: impl Into<Cow<'static, str>>) -> Self {
        Self::Query(vec![name.into()])
    }

    /// Whatever `find` finds; `None` is a request without a key.
    pub fn function(
        find: impl Fn(&Parts, &[u8]) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self::Function(Arc::new(find))
    }

    /// Whether the body must be read before it is known that there is a key.
    pub(crate) const fn needs_body(&self) -> bool {
        !matches!(self, Self::Header | Self::Named(_) | Self::Query(_))
    }

    /// Whether the head alone shows that there is no key.
    pub(crate) fn is_absent(&self, headers: &HeaderMap) -> bool {
        match self {
            Self::Header => !headers.keys().any(is_usual),
            Self::Named(name) => !headers.contains_key(name),
            _ => false,
        }
    }

    pub(crate) fn find(
        &self,
        parts: &Parts,
        body: &[u8],
        rules: &KeyRules,
    ) -> Result<Option<Key>, Refusal> {
        match self {
            Self::Header => {
                let lines = parts.headers.iter().filter(|(name, _)| is_usual(name));
                one_line(lines.map(|(_, line)| line), rules)
            }
            Self::Named(name) => one_line(parts.headers.get_all(name).iter(), rules),
            Self::Query(names) => from_query(names, parts, rules),
            Self::Field(names) => from_field(names, parts, body, rules),
            Self::Pointer(pointers) => from_pointer(pointers, parts, body, rules),
            Self::Function(find) => match find(parts, body) {
                Some(text) => Ok(Some(rules.check(&text)?)),
                None => Ok(None),
            },
        }
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("header Idempotency-Key"),
            Self::Named(name) => write!(f, "header {name}"),
            Self::Query(names) => write!(f, "query parameter {}", names.join(" or ")),
            Self::Field(names) => write!(f, "body field {}", names.join(" or ")),
            Self::Pointer(pointers) => write!(f, "body at {}", pointers.join(" or ")),
            Self::Function(_) => f.write_str("function"),
        }
    }
}

/// Whether a header is [`IDEMPOTENCY_KEY`] or [`X_IDEMPOTENCY_KEY`]. Requests have few headers: to
/// compare their names is quicker than to hash two.
fn is_usual(name: &HeaderName) -> bool {
    matches!(name.as_str(), "idempotency-key" | "x-idempotency-key")
}

fn one_line<'a>(
    lines: impl Iterator<Item = &'a HeaderValue>,
    rules: &KeyRules,
) -> Result<Option<Key>, Refusal> {
    let mut lines = lines.take(2);
    match (lines.next(), lines.next()) {
        (None, _) => Ok(None),
        (Some(line), None) => read_key(line, rules).map(Some),
        // Which of the two a proxy or handler would take is anyone's guess.
        (Some(_), Some(_)) => Err(Refusal::KeyTwice),
    }
}

/// Reads one line: a structured field's string (`"k-1"`), or the key as it is (`k-1`).
///
/// # Errors
/// [`Refusal`] where it is neither, or breaks the rules.
pub fn read_key(line: &HeaderValue, rules: &KeyRules) -> Result<Key, Refusal> {
    let text = line.as_bytes().trim_ascii();
    if text.first() != Some(&b'"') {
        let text = std::str::from_utf8(text).map_err(|_| Refusal::KeySyntax)?;
        return Ok(rules.check(text)?);
    }
    let parsed = sfv::Parser::new(text).parse::<sfv::Item>();
    let item = parsed.map_err(|_| Refusal::KeySyntax)?;
    let string = item.bare_item.as_string().ok_or(Refusal::KeySyntax)?;
    Ok(rules.check(string.as_str())?)
}

fn from_field(
    names: &[Cow<'static, str>],
    parts: &Parts,
    body: &[u8],
    rules: &KeyRules,
) -> Result<Option<Key>, Refusal> {
    let text = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let is_object = text.trim_ascii_start().starts_with(b"{");
    let says_json = payload::says_json(parts) && !body.is_empty();
    let members = match serde_json::from_slice(body) {
        Ok(Members(members)) => members,
        // Another parser may accept the body despite its media type, and find a key in it.
        Err(_) if is_object || says_json => {
            canonicalize(body)?;
            return Ok(None);
        }
        // Not an object, so there is no such member. The handler judges the body.
        Err(_) => return Ok(None),
    };
    let is_named = |name: &str| names.iter().any(|wanted| wanted == name);
    let mut found = members.iter().filter(|(name, _)| is_named(name));
    let mut next = || found.next().map(|(_, value)| value);
    match (next(), next()) {
        (None, _) => Ok(None),
        (Some(Value::String(text)), None) => Ok(Some(rules.check(text)?)),
        (Some(_), None) => Err(Refusal::KeySyntax),
        (Some(_), Some(_)) => Err(Refusal::KeyTwice),
    }
}

/// Reads the JSON strictly: in a body with two readings, nobody knows which key the handler sees.
fn from_pointer(
    pointers: &[Cow<'static, str>],
    parts: &Parts,
    body: &[u8],
    rules: &KeyRules,
) -> Result<Option<Key>, Refusal> {
    let text = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let looks_like_json = text.trim_ascii_start().starts_with(b"{");
    if body.is_empty() || !(looks_like_json || payload::says_json(parts)) {
        return Ok(None);
    }
    let canonical = canonicalize(body)?;
    let value: Value = serde_json::from_slice(&canonical).map_err(|_| Refusal::KeySyntax)?;
    let mut found = pointers.iter().filter_map(|pointer| value.pointer(pointer));
    match (found.next(), found.next()) {
        (None | Some(Value::Null), None) => Ok(None),
        (Some(Value::String(text)), None) => Ok(Some(rules.check(text)?)),
        (_, Some(_)) => Err(Refusal::KeyTwice),
        _ => Err(Refusal::KeySyntax),
    }
}

fn from_query(
    names: &[Cow<'static, str>],
    parts: &Parts,
    rules: &KeyRules,
) -> Result<Option<Key>, Refusal> {
    let query = parts.uri.query().unwrap_or("");
    let mut found = query.split('&').filter_map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = reading::unescaped(name);
        names.contains(&name).then_some(value)
    });
    match (found.next(), found.next()) {
        (None, _) => Ok(None),
        (Some(text), None) => Ok(Some(rules.check(&reading::unescaped(text))?)),
        (Some(_), Some(_)) => Err(Refusal::KeyTwice),
    }
}

/// All members of an object, including duplicates: which one a handler reads is unknown.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        reader.deserialize_map(Collect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<String> {
        let line = HeaderValue::from_bytes(line.as_bytes()).unwrap();
        let key = read_key(&line, &KeyRules::default()).ok()?;
        Some(key.as_str().to_owned())
    }

    #[test]
    fn quoted_and_bare_are_one_key() {
        for line in ["k-1", "\"k-1\"", " k-1 ", "\"k-1\";v=1"] {
            assert_eq!(read(line).as_deref(), Some("k-1"), "{line}");
        }
    }

    #[test]
    fn key_of_the_query_is_read_through_escapes_and_given_once() {
        let source = KeySource::Query(vec!["request_id".into(), "requestId".into()]);
        let find = |query: &str| {
            let request = http::Request::post(format!("/books?{query}")).body(());
            let (parts, ()) = request.unwrap().into_parts();
            let found = source.find(&parts, &[], &KeyRules::default());
            found.map(|key| key.map(|key| key.as_str().to_owned()))
        };
        for query in [
            "request_id=k-1",
            "book_id=7&requestId=k-1",
            "request%5Fid=k%2D1",
        ] {
            assert_eq!(find(query), Ok(Some("k-1".to_owned())), "{query}");
        }
        assert_eq!(find("book_id=7"), Ok(None));
        for query in ["request_id=k&requestId=k", "request_id=k&request_id=k"] {
            assert_eq!(find(query), Err(Refusal::KeyTwice), "{query}");
        }
        for query in ["request_id", "request_id=", "request_id=a+b"] {
            assert!(matches!(find(query), Err(Refusal::Key(_))), "{query}");
        }
    }

    #[test]
    fn malformed_key_is_refused() {
        for line in [
            "",
            "\"\"",
            "\"k",
            "k\"",
            "\"a\", \"b\"",
            "a, b",
            "\"a b\"",
            "a b",
            "\"k\"x",
            "\"k\\u\"",
            "é",
            "\"é\"",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
