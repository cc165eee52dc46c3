//! The settings in force, one setting explained, and the page of all settings.

use std::fmt::Write as _;

use serde_json::Value;

use super::Loaded;
use super::check::nearest;
use super::fields::{Field, Kind, fields};
use super::source::{Origin, Said, join};

/// One setting in force.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The setting.
    pub path: String,
    /// Its value, passwords left out.
    pub value: Value,
    /// Who said so.
    pub origin: Origin,
}

impl Loaded {
    /// Every setting in force, with who said so.
    #[must_use]
    pub fn shown(&self) -> Vec<Shown> {
        let said = Said {
            value: Value::Null,
            origins: self.origins.clone(),
        };
        let mut all = Vec::new();
        flat(&self.effective, "", &mut |path, value| {
            all.push(Shown {
                path: path.to_owned(),
                value: redacted(value),
                origin: origin(&said, path),
            });
        });
        all
    }
}

/// A route's settings that it doesn't say itself are those of `defaults`.
fn origin(said: &Said, path: &str) -> Origin {
    if said.origins.contains_key(path) {
        return said.origin(path);
    }
    match path.split_once("].") {
        Some((_, member)) if path.starts_with("routes[") => said
            .origins
            .get(&format!("defaults.{member}"))
            .cloned()
            .unwrap_or(Origin::Default),
        _ => Origin::Default,
    }
}

fn flat(value: &Value, path: &str, take: &mut dyn FnMut(&str, &Value)) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                flat(value, &join(path, name), take);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (at, item) in items.iter().enumerate() {
                flat(item, &format!("{path}[{at}]"), take);
            }
        }
        other => take(path, other),
    }
}

fn redacted(value: &Value) -> Value {
    match value {
        Value::String(text) if text.contains("://") => without_password(text).into(),
        Value::Array(items) => Value::Array(items.iter().map(redacted).collect()),
        other => other.clone(),
    }
}

/// A URL for logs, or several with spaces between them: without user and password, and without the values of options.
#[must_use]
pub fn without_password(urls: &str) -> String {
    let each: Option<Vec<_>> = urls.split_whitespace().map(shown_url).collect();
    // Half of a URL with a space in it would show half of a password.
    let each = each.filter(|each| !each.is_empty());
    each.map_or_else(|| "…".to_owned(), |each| each.join(" "))
}

fn shown_url(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    if !semel::is_scheme(scheme) {
        return None;
    }
    let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
    if options.contains('@') {
        // An option's, or the end of a password with a question mark in it: nobody can tell.
        return Some(format!("{scheme}://…"));
    }
    // A password may have a slash in it too; a file's path may have an @.
    let is_file = scheme == "sqlite" && place.starts_with('/');
    let login = place.rsplit_once('@').filter(|_| !is_file);
    let place = login.map_or(place, |(_, place)| place);
    let more = if options.is_empty() { "" } else { "?…" };
    Some(format!("{scheme}://{place}{more}"))
}

/// What one setting is, for people; `None` with the nearest name where there is none.
///
/// # Errors
/// The name of a setting that may have been meant.
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
    let explained: Vec<String> = found.into_iter().map(explained).collect();
    Ok(explained.join("\n\n"))
}

fn explained(field: &Field) -> String {
    let mut text = format!(
        "{}\n  {}\n  takes: {}",
        field.path,
        field.about,
        field.kind.in_words()
    );
    if let Kind::Word(words) = &field.kind {
        for (word, about) in words {
            let _ = write!(text, "\n    {word}: {about}");
        }
    }
    let default = field
        .default
        .as_ref()
        .map_or_else(|| default_of(field), Value::to_string);
    let _ = write!(text, "\n  default: {default}");
    if let Some(env) = &field.env {
        let _ = write!(text, "\n  environment: {env}");
    }
    let _ = write!(text, "\n  flag: --set {}=…", field.path);
    text
}

fn default_of(field: &Field) -> String {
    match field.path.strip_prefix("routes[].") {
        Some("path") => "none; every route has one".to_owned(),
        Some(member) => format!("that of defaults.{member}"),
        None => "not set".to_owned(),
    }
}

/// `docs/config.md`.
#[must_use]
pub fn reference() -> String {
    let mut page = include_str!("page.txt").to_owned();
    let mut section = None;
    for field in fields() {
        // A route's own are those of the defaults.
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
        if let Kind::Word(words) = &field.kind {
            for (word, meaning) in words {
                let _ = write!(about, "<br>`{word}`: {meaning}");
            }
        }
        let kind = field.kind.in_words();
        let _ = writeln!(page, "| `{name}` | {kind} | {default} | {about} |");
    }
    page.push_str(
        "\nEverything in `[defaults]` can be said in a `[[routes]]` as well, for that route.\n",
    );
    page
}

fn heading(table: &str) -> String {
    let title = match table {
        "" => "At the top".to_owned(),
        "routes[]" => "`[[routes]]`".to_owned(),
        table => format!("`[{table}]`"),
    };
    format!("\n## {title}\n\n| setting | takes | default | |\n|---|---|---|---|\n")
}
