//! Sources of settings: a file, environment variables and flags, with the origin of each value.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};

use super::SettingsFinding;
use super::fields::{FieldKind, fields};
use super::nearest::nearest;

/// The sources of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The configuration file, if any.
    pub file: Option<PathBuf>,
    /// The environment variables.
    pub env: Vec<(String, String)>,
    /// The settings from the command line.
    pub flags: Vec<Flag>,
}

/// A setting from the command line.
#[derive(Clone, Debug)]
pub struct Flag {
    /// The flag as written, such as `--store`.
    pub name: String,
    /// The setting's path.
    pub path: String,
    /// The value. The values of repeated flags of a list setting are combined.
    pub value: String,
}

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// No source sets it.
    Default,
    /// The configuration file.
    File {
        /// The line, counted from 1.
        line: usize,
    },
    /// An environment variable.
    Env(String),
    /// A command-line flag.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { line } => write!(f, "file, line {line}"),
            Self::Env(name) => write!(f, "environment, {name}"),
            Self::Flag(name) => write!(f, "flag, {name}"),
        }
    }
}

/// The values from all sources before validation, and their origins by path.
#[derive(Clone, Debug, Default)]
pub(super) struct RawSettings {
    pub(super) value: Value,
    pub(super) origins: BTreeMap<String, Origin>,
}

impl RawSettings {
    pub(super) fn new() -> Self {
        Self {
            value: Value::Object(Map::new()),
            origins: BTreeMap::new(),
        }
    }

    /// The origin of a value, or of the table or list that contains it.
    pub(super) fn origin(&self, path: &str) -> Origin {
        let mut path = path;
        loop {
            if let Some(origin) = self.origins.get(path) {
                return origin.clone();
            }
            let Some(end) = path.rfind(['.', '[']) else {
                return Origin::Default;
            };
            path = &path[..end];
        }
    }
}

/// Reads all sources, and reports syntax errors and unknown names.
pub(super) fn read(sources: &Sources, findings: &mut Vec<SettingsFinding>) -> RawSettings {
    let mut raw = RawSettings::new();
    if let Some(file) = &sources.file {
        match std::fs::read_to_string(file) {
            Ok(text) => from_toml(&text, &mut raw, findings),
            Err(error) => findings.push(SettingsFinding {
                path: String::new(),
                origin: Origin::Default,
                message: format!("the file {} can't be read: {error}", file.display()),
                fix: "check the path and the permissions".to_owned(),
            }),
        }
    }
    from_env(&sources.env, &mut raw, findings);
    from_flags(&sources.flags, &mut raw, findings);
    raw
}

fn from_toml(text: &str, raw: &mut RawSettings, findings: &mut Vec<SettingsFinding>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let line_of = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
    for error in errors {
        let line = error.span().map_or(1, |span| line_of(span.start));
        findings.push(SettingsFinding {
            path: String::new(),
            origin: Origin::File { line },
            message: format!("this is not TOML: {}", error.message()),
            fix: "see https://toml.io for the syntax".to_owned(),
        });
    }
    let mut converter = TomlConverter {
        line_of: &line_of,
        origins: &mut raw.origins,
    };
    raw.value = converter.table(table.get_ref(), "");
}

struct TomlConverter<'a> {
    line_of: &'a dyn Fn(usize) -> usize,
    origins: &'a mut BTreeMap<String, Origin>,
}

impl TomlConverter<'_> {
    fn table(&mut self, table: &DeTable<'_>, path: &str) -> Value {
        let mut members = Map::new();
        for (name, value) in table {
            let path = join(path, name.get_ref());
            let line = (self.line_of)(name.span().start);
            self.origins.insert(path.clone(), Origin::File { line });
            members.insert(
                name.get_ref().to_string(),
                self.value(value.get_ref(), &path),
            );
        }
        Value::Object(members)
    }

    fn value(&mut self, value: &DeValue<'_>, path: &str) -> Value {
        match value {
            DeValue::String(text) => text.to_string().into(),
            DeValue::Integer(number) => {
                let number = i64::from_str_radix(number.as_str(), number.radix());
                number.map_or(Value::Null, Into::into)
            }
            DeValue::Float(number) => number
                .as_str()
                .parse::<f64>()
                .map_or(Value::Null, Into::into),
            DeValue::Boolean(truth) => (*truth).into(),
            DeValue::Datetime(time) => time.to_string().into(),
            DeValue::Array(items) => {
                let mut list = Vec::new();
                for (at, item) in items.iter().enumerate() {
                    let path = format!("{path}[{at}]");
                    let line = (self.line_of)(item.span().start);
                    self.origins.insert(path.clone(), Origin::File { line });
                    list.push(self.value(item.get_ref(), &path));
                }
                Value::Array(list)
            }
            DeValue::Table(table) => self.table(table, path),
        }
    }
}

pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// Variables that are not settings: for tests and other commands.
const OTHER_VARIABLES: [&str; 3] = ["SEMEL_CONFIG", "SEMEL_ADMIN_URL", "SEMEL_TEST_"];

fn from_env(env: &[(String, String)], raw: &mut RawSettings, findings: &mut Vec<SettingsFinding>) {
    for (name, text) in env {
        if !name.starts_with("SEMEL_")
            || OTHER_VARIABLES.iter().any(|other| name.starts_with(other))
        {
            continue;
        }
        let field = fields()
            .iter()
            .find(|field| field.env.as_deref() == Some(name));
        let Some(field) = field else {
            let names = fields().iter().filter_map(|field| field.env.as_deref());
            // Reported only if it looks like a typo: other programs may use this prefix too.
            if let Some(near) = nearest(name, names) {
                findings.push(SettingsFinding {
                    path: String::new(),
                    origin: Origin::Env(name.clone()),
                    message: "no setting has this variable".to_owned(),
                    fix: format!("did you mean {near}?"),
                });
            }
            continue;
        };
        let value = parse_value(&field.kind, text);
        set_value(&mut raw.value, &field.path, value);
        raw.origins
            .insert(field.path.clone(), Origin::Env(name.clone()));
    }
}

fn from_flags(flags: &[Flag], raw: &mut RawSettings, findings: &mut Vec<SettingsFinding>) {
    let mut lists: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for flag in flags {
        let origin = Origin::Flag(flag.name.clone());
        let field = fields().iter().find(|field| field.path == flag.path);
        let Some(field) = field else {
            let paths = fields().iter().map(|field| field.path.as_str());
            let near = nearest(&flag.path, paths).map(|near| format!("did you mean {near}?"));
            findings.push(SettingsFinding {
                path: flag.path.clone(),
                origin,
                message: "there is no such setting".to_owned(),
                fix: near.unwrap_or_else(|| "`semel config explain` lists them".to_owned()),
            });
            continue;
        };
        let value = if matches!(field.kind, FieldKind::List(_)) {
            let list = lists.entry(&flag.path).or_default();
            list.push(&flag.value);
            parse_value(&field.kind, &list.join(","))
        } else {
            parse_value(&field.kind, &flag.value)
        };
        set_value(&mut raw.value, &field.path, value);
        raw.origins.insert(field.path.clone(), origin);
    }
}

/// Reads a text as a value of the kind. Text that does not fit stays text, which the checks report.
fn parse_value(kind: &FieldKind, text: &str) -> Value {
    match kind {
        FieldKind::Boolean => text
            .parse::<bool>()
            .map_or_else(|_| text.into(), Into::into),
        FieldKind::Number { .. } => text.parse::<u64>().map_or_else(|_| text.into(), Into::into),
        FieldKind::List(inner) => {
            let items = text
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty());
            Value::Array(items.map(|item| parse_value(inner, item)).collect())
        }
        _ => text.into(),
    }
}

fn set_value(value: &mut Value, path: &str, new: Value) {
    let mut place = value;
    for name in path.split('.') {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        place = &mut place[name];
    }
    *place = new;
}

/// Merges `over` into `under`: tables member by member, other values as a whole.
pub(super) fn merge(under: &Value, over: &Value) -> Value {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            let mut both = under.clone();
            for (name, value) in over {
                let merged = under
                    .get(name)
                    .map_or_else(|| value.clone(), |below| merge(below, value));
                both.insert(name.clone(), merged);
            }
            Value::Object(both)
        }
        (_, over) => over.clone(),
    }
}
