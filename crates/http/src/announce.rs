//! What clients are told about the keys of a route: in the headers of responses, in problem
//! documents, in answers to `OPTIONS` and in an OpenAPI fragment.

use std::time::Duration;

use http::HeaderMap;
use http::header::{self, HeaderName, HeaderValue};
use semel_core::policy::Policy;
use semel_core::time::iso8601;
use semel_core::{KeyForm, KeyRules};
use serde_json::{Map, Value, json};

use crate::key::{IDEMPOTENCY_KEY, KeySource};

/// For how long a client may retry with the same key, as an ISO 8601 duration: in the responses of
/// routes that announce it.
pub const IDEMPOTENCY_KEY_LIFETIME: HeaderName =
    HeaderName::from_static("idempotency-key-lifetime");

/// The rules for the keys of a route, as a dictionary of structured fields (RFC 9651): in the
/// answers to `OPTIONS` of routes that announce them.
pub const IDEMPOTENCY_KEY_RULES: HeaderName = HeaderName::from_static("idempotency-key-rules");

/// What a client must know about the keys of a route.
#[derive(Clone, Debug)]
pub(crate) struct KeyTerms {
    /// Where the key is: `header`, `query`, `body`, or `request` if a function finds it.
    pub(crate) place: &'static str,
    /// The names under which the key may be there. The first is the usual one.
    pub(crate) names: Vec<String>,
    pub(crate) required: bool,
    pub(crate) rules: KeyRules,
    pub(crate) form: KeyForm,
    pub(crate) age: Option<Duration>,
    pub(crate) lifetime: Duration,
    pub(crate) methods: Vec<String>,
}

impl KeyTerms {
    /// Where a source reads keys, and under which names.
    pub(crate) fn place(source: &KeySource) -> (&'static str, Vec<String>) {
        match source {
            KeySource::Header => ("header", vec![title_case(&IDEMPOTENCY_KEY)]),
            KeySource::Named(name) => ("header", vec![title_case(name)]),
            KeySource::Query(names) => ("query", names.iter().map(ToString::to_string).collect()),
            KeySource::Field(names) => {
                let pointer = |name: &_| format!("/{name}");
                ("body", names.iter().map(pointer).collect())
            }
            KeySource::Pointer(pointers) => {
                ("body", pointers.iter().map(ToString::to_string).collect())
            }
            KeySource::Function(_) => ("request", Vec::new()),
        }
    }

    /// The characters of keys, for people.
    pub(crate) fn characters(&self) -> String {
        let mut text = "A-Z a-z 0-9 _ - .".to_owned();
        for extra in self.rules.extra.chars() {
            text.push(' ');
            text.push(extra);
        }
        text
    }

    /// A member of problem documents.
    pub(crate) fn document(&self) -> Value {
        let mut document = Map::new();
        document.insert("in".to_owned(), self.place.into());
        if let Some(name) = self.names.first() {
            document.insert("name".to_owned(), name.as_str().into());
        }
        document.insert("required".to_owned(), self.required.into());
        document.insert("form".to_owned(), self.form.name().into());
        document.insert("maxLength".to_owned(), self.rules.max_bytes.into());
        document.insert("characters".to_owned(), self.characters().into());
        document.insert("lifetime".to_owned(), iso8601(self.lifetime).into());
        if let Some(age) = self.age {
            document.insert("maxAge".to_owned(), iso8601(age).into());
        }
        document.into()
    }

    /// The value of [`IDEMPOTENCY_KEY_RULES`], unless a character has no place in a header.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let mut text = format!("in={}", self.place);
        if let Some(name) = self.names.first() {
            text += &format!(", name={}", quoted(name));
        }
        text += if self.required {
            ", required"
        } else {
            ", required=?0"
        };
        text += &format!(", form={}", self.form.name());
        text += &format!(", max-length={}", self.rules.max_bytes);
        text += &format!(", characters={}", quoted(&self.characters()));
        text += &format!(", lifetime={}", quoted(&iso8601(self.lifetime)));
        if let Some(age) = self.age {
            text += &format!(", max-age={}", quoted(&iso8601(age)));
        }
        let methods: Vec<String> = self.methods.iter().map(|name| quoted(name)).collect();
        text += &format!(", methods=({})", methods.join(" "));
        text.is_ascii()
            .then(|| HeaderValue::from_str(&text).ok())
            .flatten()
    }

    /// The parameter or the description in OpenAPI.
    pub(crate) fn parameter(&self) -> Option<Value> {
        let name = self.names.first()?;
        if !matches!(self.place, "header" | "query") {
            return None;
        }
        let mut schema = json!({
            "type": "string",
            "minLength": 1,
            "maxLength": self.rules.max_bytes,
            "pattern": self.pattern(),
        });
        if matches!(self.form, KeyForm::Uuid | KeyForm::UuidV7) {
            schema["format"] = "uuid".into();
        }
        Some(json!({
            "name": name,
            "in": self.place,
            "required": self.required,
            "description": self.description(),
            "schema": schema,
        }))
    }

    fn pattern(&self) -> String {
        let class = match self.form {
            KeyForm::Uuid => return "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$".into(),
            KeyForm::UuidV7 => {
                return "^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-7[0-9A-Fa-f]{3}-[89ABab][0-9A-Fa-f]{3}-\
                        [0-9A-Fa-f]{12}$"
                    .into();
            }
            KeyForm::Ulid => return "^[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$".into(),
            _ => self.rules.extra.chars().map(|c| match c {
                '\\' | ']' | '^' | '[' => format!("\\{c}"),
                other => other.to_string(),
            }),
        };
        format!("^[A-Za-z0-9_.{}-]+$", class.collect::<String>())
    }

    /// One or two sentences for people.
    pub(crate) fn description(&self) -> String {
        let lifetime = iso8601(self.lifetime);
        let mut text = match (self.place, self.names.first()) {
            ("body", Some(pointer)) => {
                format!("The key is the member {pointer} of the JSON body. ")
            }
            ("request", _) => "The key is a part of the request. ".to_owned(),
            _ => String::new(),
        };
        text += "A unique key of the operation, the same for every retry. ";
        text += &format!("A retry within {lifetime} gets the first response.");
        match self.form {
            KeyForm::Any => {}
            form => text += &format!(" The key must have the form {}.", form.name()),
        }
        if let Some(age) = self.age {
            text += &format!(" A key older than {} is refused (412).", iso8601(age));
        }
        text
    }
}

/// For how long a retry gets the response of its key.
pub(crate) fn lifetime(policy: &Policy, age: Option<Duration>) -> Duration {
    let answer = policy.answer_retention.unwrap_or(policy.retention);
    let kept = policy.retention.min(answer);
    age.map_or(kept, |age| kept.min(age))
}

/// A string of structured fields.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

/// A header's name as people write it.
fn title_case(name: &HeaderName) -> String {
    let parts = name.as_str().split('-').map(|part| match part {
        "id" => "ID".to_owned(),
        _ => {
            let mut letters = part.chars();
            let first = letters.next().map(|first| first.to_ascii_uppercase());
            first.into_iter().chain(letters).collect()
        }
    });
    parts.collect::<Vec<_>>().join("-")
}

/// Announces the lifetime of keys in a response.
pub(crate) fn put_lifetime(headers: &mut HeaderMap, lifetime: Duration) {
    if let Ok(value) = HeaderValue::from_str(&iso8601(lifetime)) {
        headers.insert(IDEMPOTENCY_KEY_LIFETIME, value);
    }
}

/// The member of Iceberg's `CatalogConfig` that announces the lifetime of keys.
const CATALOG_MEMBER: &str = "idempotency-key-lifetime";

/// The body of an Iceberg catalog's configuration with the lifetime of keys in it, unless it has
/// one or is no JSON object.
pub(crate) fn with_lifetime(body: &[u8], lifetime: Duration) -> Option<Vec<u8>> {
    let mut config: Map<String, Value> = serde_json::from_slice(body).ok()?;
    if config.contains_key(CATALOG_MEMBER) {
        return None;
    }
    config.insert(CATALOG_MEMBER.to_owned(), iso8601(lifetime).into());
    serde_json::to_vec(&config).ok()
}

/// Headers about the exact bytes of a body, which no longer fit once it was changed.
pub(crate) const OF_BYTES: [HeaderName; 4] = [
    header::CONTENT_LENGTH,
    header::ETAG,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(extra: &'static str) -> KeyTerms {
        KeyTerms {
            place: "header",
            names: vec!["Idempotency-Key".to_owned()],
            required: true,
            rules: KeyRules::default().with_extra(extra),
            form: KeyForm::UuidV7,
            age: Some(Duration::from_secs(1800)),
            lifetime: Duration::from_secs(86_400),
            methods: vec!["POST".to_owned(), "DELETE".to_owned()],
        }
    }

    #[test]
    fn header_is_a_dictionary_of_structured_fields() {
        let value = terms("\"\\").header().unwrap();
        let parsed = sfv::Parser::new(value.as_bytes()).parse::<sfv::Dictionary>();
        let parsed = parsed.unwrap();
        for name in ["in", "name", "required", "form", "lifetime", "methods"] {
            assert!(parsed.contains_key(name), "{name} of {value:?}");
        }
        assert_eq!(terms("é").header(), None);
    }

    #[test]
    fn lifetime_ends_with_the_shortest_span() {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        let policy = Policy::default().with_retention(hours(24));
        assert_eq!(lifetime(&policy, None), hours(24));
        assert_eq!(lifetime(&policy, Some(hours(2))), hours(2));
        let policy = policy.with_answer_retention(hours(1));
        assert_eq!(lifetime(&policy, Some(hours(2))), hours(1));
    }

    #[test]
    fn catalog_configuration_gains_one_member() {
        let half_an_hour = Duration::from_secs(1800);
        let made = with_lifetime(br#"{"defaults":{},"overrides":{}}"#, half_an_hour).unwrap();
        let made: Value = serde_json::from_slice(&made).unwrap();
        let wanted = json!({
            "defaults": {}, "overrides": {}, "idempotency-key-lifetime": "PT30M"
        });
        assert_eq!(made, wanted);
        for unchanged in [r#"{"idempotency-key-lifetime":"PT1M"}"#, "[]", "not json"] {
            assert_eq!(with_lifetime(unchanged.as_bytes(), half_an_hour), None);
        }
    }
}
