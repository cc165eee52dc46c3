//! Validation against the schema: unknown names and wrong values, each with its place and its fix.

use std::net::ToSocketAddrs as _;

use http::{HeaderName, Method, Uri};
use serde_json::Value;

use super::SettingsFinding;
use super::fields::{FieldKind, Node, tree};
use super::listener::parse_network;
use super::nearest::nearest;
use super::source::{Origin, RawSettings, join};
use super::units::{Size, Span};

/// Reports unknown settings and values of the wrong kind.
pub(super) fn check_schema(raw: &RawSettings, findings: &mut Vec<SettingsFinding>) {
    let mut check = SchemaCheck { raw, findings };
    check.check_value(&tree().kind, &raw.value, "");
}

struct SchemaCheck<'a> {
    raw: &'a RawSettings,
    findings: &'a mut Vec<SettingsFinding>,
}

impl SchemaCheck<'_> {
    fn report(&mut self, path: &str, message: impl Into<String>, fix: impl Into<String>) {
        let origin = self.raw.origin(path);
        self.findings.push(SettingsFinding {
            path: path.to_owned(),
            origin,
            message: message.into(),
            fix: fix.into(),
        });
    }

    fn check_value(&mut self, kind: &FieldKind, value: &Value, path: &str) {
        let wanted = || format!("use this form: {}", kind.describe());
        match (kind, value) {
            (FieldKind::Table(members), Value::Object(values)) => {
                for (name, value) in values {
                    let path = join(path, name);
                    match members.iter().find(|(known, _)| known == name) {
                        Some((_, node)) => self.check_value(&node.kind, value, &path),
                        None => self.report_unknown(members, name, &path),
                    }
                }
            }
            (FieldKind::List(inner), Value::Array(items)) => {
                for (at, item) in items.iter().enumerate() {
                    self.check_value(inner, item, &format!("{path}[{at}]"));
                }
            }
            (FieldKind::Text { form }, Value::String(text)) => {
                if let Some(error) = form.as_deref().and_then(|form| find_form_error(form, text)) {
                    self.report(path, error, wanted());
                }
            }
            (FieldKind::Choice(words), Value::String(text)) => {
                if !words.iter().any(|(word, _)| word == text) {
                    let near = nearest(text, words.iter().map(|(word, _)| word.as_str()));
                    let fix = near.map(|near| format!("did you mean \"{near}\"? "));
                    let message = format!("unknown value \"{}\"", shorten(text));
                    self.report(path, message, fix.unwrap_or_default() + &wanted());
                }
            }
            (FieldKind::Number { least, most }, Value::Number(number)) => {
                let fits = number
                    .as_u64()
                    .is_some_and(|number| (*least..=*most).contains(&number));
                if !fits {
                    let fix = format!("write a whole number from {least} to {most}");
                    self.report(path, format!("{number} is out of bounds"), fix);
                }
            }
            (FieldKind::Boolean, Value::Bool(_)) => {}
            (_, other) => self.report(path, format!("unexpected {}", type_name(other)), wanted()),
        }
    }

    fn report_unknown(&mut self, members: &[(String, Node)], name: &str, path: &str) {
        let names = members.iter().map(|(name, _)| name.as_str());
        let fix = match nearest(name, names.clone()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!(
                "valid settings here are {}",
                names.collect::<Vec<_>>().join(", ")
            ),
        };
        self.report(path, "there is no such setting", fix);
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(40).collect()
}

const fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "number that can't be read",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "table",
    }
}

/// Checks a text of the given form. The message never repeats a URL, which may contain a password.
fn find_form_error(form: &str, text: &str) -> Option<String> {
    let unless = |is_valid: bool, message: &str| (!is_valid).then(|| message.to_owned());
    match form {
        "span" => text.parse::<Span>().err().map(|error| error.to_string()),
        "size" => text.parse::<Size>().err().map(|error| error.to_string()),
        "header" => unless(
            HeaderName::from_bytes(text.as_bytes()).is_ok(),
            "a header's name has letters, digits and -",
        ),
        "network" => unless(
            parse_network(text).is_some(),
            "this is neither an address nor a network, such as 10.0.0.0/8",
        ),
        "method" => unless(
            Method::from_bytes(text.as_bytes()).is_ok() && text.to_uppercase() == text,
            "a method is written in capitals, such as POST",
        ),
        "address" => unless(
            text.to_socket_addrs().is_ok(),
            "this is not an address and port that this machine can resolve",
        ),
        "http-url" => unless(
            is_http_url(text),
            "this is not a URL with http:// or https:// and a host",
        ),
        "store-url" => unless(
            text.contains("://"),
            "this is not a URL with a scheme such as redis://, postgres://, mysql://, sqlite:// or \
             memory://",
        ),
        "pointer" => unless(text.starts_with('/'), "a JSON pointer begins with /"),
        "route" => unless(text.starts_with('/'), "a route's path begins with /"),
        "file" => unless(!text.is_empty(), "the path is empty"),
        _ => None,
    }
}

fn is_http_url(text: &str) -> bool {
    let Ok(uri) = text.parse::<Uri>() else {
        return false;
    };
    let scheme = matches!(uri.scheme_str(), Some("http" | "https"));
    scheme && uri.host().is_some_and(|host| !host.is_empty()) && uri.query().is_none()
}

/// A finding whose origin is not known.
pub(super) fn new_finding(path: &str, message: &str, fix: &str) -> SettingsFinding {
    SettingsFinding {
        path: path.to_owned(),
        origin: Origin::Default,
        message: message.to_owned(),
        fix: fix.to_owned(),
    }
}
