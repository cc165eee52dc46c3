//! The effective settings, the explanation of a setting, and the page of all settings.

use std::fmt::Write as _;

use serde_json::Value;

use super::Loaded;
use super::fields::{Field, FieldKind, fields};
use super::nearest::nearest;
use super::source::{Origin, RawSettings, join};

/// An effective setting.
#[derive(Clone, Debug)]
pub struct EffectiveSetting {
    /// The path of the setting.
    pub path: String,
    /// Its value, without passwords.
    pub value: Value,
    /// Where the value comes from.
    pub origin: Origin,
}

impl Loaded {
    /// All effective settings and the origins of their values.
    #[must_use]
    pub fn effective_settings(&self) -> Vec<EffectiveSetting> {
        let raw = RawSettings {
            value: Value::Null,
            origins: self.origins.clone(),
        };
        let mut all = Vec::new();
        visit_leaves(&self.effective, "", &mut |path, value| {
            all.push(EffectiveSetting {
                path: path.to_owned(),
                value: redact(value),
                origin: find_origin(&raw, path),
            });
        });
        all
    }
}

/// The origin of a setting. Settings that a route leaves out come from `defaults`.
fn find_origin(raw: &RawSettings, path: &str) -> Origin {
    if raw.origins.contains_key(path) {
        return raw.origin(path);
    }
    match path.split_once("].") {
        Some((_, member)) if path.starts_with("routes[") => raw
            .origins
            .get(&format!("defaults.{member}"))
            .cloned()
            .unwrap_or(Origin::Default),
        _ => Origin::Default,
    }
}

fn visit_leaves(value: &Value, path: &str, take: &mut dyn FnMut(&str, &Value)) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                visit_leaves(value, &join(path, name), take);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (at, item) in items.iter().enumerate() {
                visit_leaves(item, &format!("{path}[{at}]"), take);
            }
        }
        other => take(path, other),
    }
}

fn redact(value: &Value) -> Value {
    match value {
        Value::String(text) if text.contains("://") => without_password(text).into(),
        Value::Array(items) => Value::Array(items.iter().map(redact).collect()),
        other => other.clone(),
    }
}

/// A URL for logs, or several separated by spaces, without user, password and the values of
/// options.
#[must_use]
pub fn without_password(urls: &str) -> String {
    let each: Option<Vec<_>> = urls.split_whitespace().map(redact_url).collect();
    // A part of a URL with a space in it could contain a part of the password.
    let each = each.filter(|each| !each.is_empty());
    each.map_or_else(|| "…".to_owned(), |each| each.join(" "))
}

fn redact_url(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    if !semel::is_scheme(scheme) {
        return None;
    }
    let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
    if options.contains('@') {
        // This may belong to an option, or be the end of a password with a question mark in it.
        return Some(format!("{scheme}://…"));
    }
    // A password may have a slash in it too; a file's path may have an @.
    let is_file = scheme == "sqlite" && place.starts_with('/');
    let login = place.rsplit_once('@').filter(|_| !is_file);
    let place = login.map_or(place, |(_, place)| place);
    let more = if options.is_empty() { "" } else { "?…" };
    Some(format!("{scheme}://{place}{more}"))
}

/// The explanation of a setting, or of all settings of a table.
///
/// # Errors
/// The most similar name, if there is no such setting.
pub fn explain(path: &str) -> Result<String, Option<&'static str>> {
    let found = fields()
        .iter()
        .filter(|field| field.path == path || field.path.starts_with(&format!("{path}.")));
    let found: Vec<&Field> = found.collect();
    if found.is_empty() {
        return Err(nearest(
            path,
            fields().iter().map(|field| field.path.as_str()),
        ));
    }
    let explanations: Vec<String> = found.into_iter().map(explain_field).collect();
    Ok(explanations.join("\n\n"))
}

fn explain_field(field: &Field) -> String {
    let mut text = format!(
        "{}\n  {}\n  takes: {}",
        field.path,
        field.about,
        field.kind.describe()
    );
    if let FieldKind::Choice(words) = &field.kind {
        for (word, about) in words {
            let _ = write!(text, "\n    {word}: {about}");
        }
    }
    let default = field
        .default
        .as_ref()
        .map_or_else(|| describe_default(field), Value::to_string);
    let _ = write!(text, "\n  default: {default}");
    if let Some(env) = &field.env {
        let _ = write!(text, "\n  environment: {env}");
    }
    let _ = write!(text, "\n  flag: --set {}=…", field.path);
    text
}

fn describe_default(field: &Field) -> String {
    match field.path.strip_prefix("routes[].") {
        Some("path") => "none; it is required".to_owned(),
        Some(member) => format!("the value of defaults.{member}"),
        None => "not set".to_owned(),
    }
}

/// `docs/config.md`.
#[must_use]
pub fn reference() -> String {
    let mut page = include_str!("page.txt").to_owned();
    let mut section = None;
    for field in fields() {
        // The settings of routes are the same as those of the defaults.
        if field.path.starts_with("routes[]") && field.path != "routes[].path" {
            continue;
        }
        let (table, name) = field.path.rsplit_once('.').unwrap_or(("", &field.path));
        if section != Some(table) {
            section = Some(table);
            page.push_str(&heading(table));
        }
        let default = field.default.as_ref();
        let default = default.map_or(String::new(), |value| format!("`{value}`"));
        let mut about = field.about.clone();
        if let FieldKind::Choice(words) = &field.kind {
            for (word, meaning) in words {
                let _ = write!(about, "<br>`{word}`: {meaning}");
            }
        }
        let kind = field.kind.describe();
        let _ = writeln!(page, "| `{name}` | {kind} | {default} | {about} |");
    }
    page.push_str(
        "\nA `[[routes]]` table can have every setting of `[defaults]`, for that route.\n",
    );
    page
}

fn heading(table: &str) -> String {
    let title = match table {
        "" => "Top level".to_owned(),
        "routes[]" => "`[[routes]]`".to_owned(),
        table => format!("`[{table}]`"),
    };
    format!("\n## {title}\n\n| setting | takes | default | |\n|---|---|---|---|\n")
}
