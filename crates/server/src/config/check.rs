//! What was said, against the schema: everything that is wrong, with its place and what to do.

use std::net::ToSocketAddrs as _;

use http::{HeaderName, Method, Uri};
use serde_json::Value;

use super::Finding;
use super::fields::{Kind, Node, tree};
use super::source::{Origin, Said, join};
use super::tree::network;
use super::units::{Size, Span};

/// Names that are unknown, and values of the wrong kind.
pub(super) fn against_schema(said: &Said, findings: &mut Vec<Finding>) {
    let mut check = Check { said, findings };
    check.value(&tree().kind, &said.value, "");
}

struct Check<'a> {
    said: &'a Said,
    findings: &'a mut Vec<Finding>,
}

impl Check<'_> {
    fn found(&mut self, path: &str, message: impl Into<String>, fix: impl Into<String>) {
        let origin = self.said.origin(path);
        self.findings.push(Finding {
            path: path.to_owned(),
            origin,
            message: message.into(),
            fix: fix.into(),
        });
    }

    fn value(&mut self, kind: &Kind, value: &Value, path: &str) {
        let wanted = || format!("write {}", kind.in_words());
        match (kind, value) {
            (Kind::Table(members), Value::Object(said)) => {
                for (name, value) in said {
                    let path = join(path, name);
                    match members.iter().find(|(known, _)| known == name) {
                        Some((_, node)) => self.value(&node.kind, value, &path),
                        None => self.unknown(members, name, &path),
                    }
                }
            }
            (Kind::List(inner), Value::Array(items)) => {
                for (at, item) in items.iter().enumerate() {
                    self.value(inner, item, &format!("{path}[{at}]"));
                }
            }
            (Kind::Text { form }, Value::String(text)) => {
                if let Some(wrong) = form.as_deref().and_then(|form| wrong_form(form, text)) {
                    self.found(path, wrong, wanted());
                }
            }
            (Kind::Word(words), Value::String(text)) => {
                if !words.iter().any(|(word, _)| word == text) {
                    let near = nearest(text, words.iter().map(|(word, _)| word.as_str()));
                    let fix = near.map(|near| format!("did you mean \"{near}\"? "));
                    let message = format!("\"{}\" is none of the words for it", short(text));
                    self.found(path, message, fix.unwrap_or_default() + &wanted());
                }
            }
            (Kind::Number { least, most }, Value::Number(number)) => {
                let fits = number
                    .as_u64()
                    .is_some_and(|number| (*least..=*most).contains(&number));
                if !fits {
                    let fix = format!("write a whole number from {least} to {most}");
                    self.found(path, format!("{number} is out of bounds"), fix);
                }
            }
            (Kind::Truth, Value::Bool(_)) => {}
            (_, other) => self.found(
                path,
                format!("{} does not belong here", name_of(other)),
                wanted(),
            ),
        }
    }

    fn unknown(&mut self, members: &[(String, Node)], name: &str, path: &str) {
        let names = members.iter().map(|(name, _)| name.as_str());
        let fix = match nearest(name, names.clone()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known here are {}", names.collect::<Vec<_>>().join(", ")),
        };
        self.found(path, "there is no such setting", fix);
    }
}

/// The name that a slip of the hand would have meant.
pub(super) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = |known: &'a str| (strsim::jaro_winkler(name, known), known);
    let best = names.map(near).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > 0.8).then_some(best.1)
}

fn short(text: &str) -> String {
    text.chars().take(40).collect()
}

const fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "a number that can't be read",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

/// What is wrong with a text of that form. Never repeats a URL: it may have a password.
fn wrong_form(form: &str, text: &str) -> Option<String> {
    let wrong = |is_right: bool, message: &str| (!is_right).then(|| message.to_owned());
    match form {
        "span" => text.parse::<Span>().err().map(|error| error.to_string()),
        "size" => text.parse::<Size>().err().map(|error| error.to_string()),
        "header" => wrong(
            HeaderName::from_bytes(text.as_bytes()).is_ok(),
            "a header's name has letters, digits and -",
        ),
        "network" => wrong(
            network(text).is_some(),
            "this is no address and no network, such as 10.0.0.0/8",
        ),
        "method" => wrong(
            Method::from_bytes(text.as_bytes()).is_ok() && text.to_uppercase() == text,
            "a method is written in capitals, such as POST",
        ),
        "address" => wrong(
            text.to_socket_addrs().is_ok(),
            "this is no address with a port that this machine knows",
        ),
        "http-url" => wrong(
            is_http_url(text),
            "this is no URL that begins with http:// or https:// and names a host",
        ),
        "store-url" => wrong(
            text.contains("://"),
            "this is no URL; it has a scheme such as redis://, postgres://, mysql://, sqlite:// or memory://",
        ),
        "pointer" => wrong(text.starts_with('/'), "a JSON pointer begins with /"),
        "route" => wrong(text.starts_with('/'), "a route's path begins with /"),
        "file" => wrong(!text.is_empty(), "this is no path"),
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

/// For findings about the whole.
pub(super) fn missing(path: &str, message: &str, fix: &str) -> Finding {
    Finding {
        path: path.to_owned(),
        origin: Origin::Default,
        message: message.to_owned(),
        fix: fix.to_owned(),
    }
}
