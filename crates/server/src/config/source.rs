//! Where settings come from: defaults, a file, the environment, flags; later ones win.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};

use super::Finding;
use super::check::nearest;
use super::fields::{Kind, fields};

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file, if any.
    pub file: Option<PathBuf>,
    /// The variables of the environment.
    pub env: Vec<(String, String)>,
    /// What was said on the command line.
    pub flags: Vec<Flag>,
}

/// A setting from the command line.
#[derive(Clone, Debug)]
pub struct Flag {
    /// As it was written: `--store`.
    pub name: String,
    /// The setting's path.
    pub path: String,
    /// Its value; several of a list are put together.
    pub value: String,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// The file, at this line.
    File {
        /// From 1.
        line: usize,
    },
    /// A variable.
    Env(String),
    /// A flag.
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

/// Values by place, and where each came from.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    pub(super) value: Value,
    pub(super) origins: BTreeMap<String, Origin>,
}

impl Said {
    pub(super) fn new() -> Self {
        Self {
            value: Value::Object(Map::new()),
            origins: BTreeMap::new(),
        }
    }

    /// The origin of a value: its own, or of whatever it is part of.
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

/// All that was said, and what is wrong with how it was said.
pub(super) fn read(sources: &Sources, findings: &mut Vec<Finding>) -> Said {
    let mut said = Said::new();
    if let Some(file) = &sources.file {
        match std::fs::read_to_string(file) {
            Ok(text) => from_toml(&text, &mut said, findings),
            Err(error) => findings.push(Finding {
                path: String::new(),
                origin: Origin::Default,
                message: format!("the file {} can't be read: {error}", file.display()),
                fix: "check its path and who may read it".to_owned(),
            }),
        }
    }
    from_env(&sources.env, &mut said, findings);
    from_flags(&sources.flags, &mut said, findings);
    said
}

fn from_toml(text: &str, said: &mut Said, findings: &mut Vec<Finding>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let line_of = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
    for error in errors {
        let line = error.span().map_or(1, |span| line_of(span.start));
        findings.push(Finding {
            path: String::new(),
            origin: Origin::File { line },
            message: format!("this is not TOML: {}", error.message()),
            fix: "see https://toml.io for what TOML looks like".to_owned(),
        });
    }
    let mut convert = Convert {
        line_of: &line_of,
        origins: &mut said.origins,
    };
    said.value = convert.table(table.get_ref(), "");
}

struct Convert<'a> {
    line_of: &'a dyn Fn(usize) -> usize,
    origins: &'a mut BTreeMap<String, Origin>,
}

impl Convert<'_> {
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

/// Variables that are not settings: which file to read, what tests and other commands use.
const OTHER_VARIABLES: [&str; 3] = ["SEMEL_CONFIG", "SEMEL_ADMIN_URL", "SEMEL_TEST_"];

fn from_env(env: &[(String, String)], said: &mut Said, findings: &mut Vec<Finding>) {
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
            // Only where it looks like a slip: other programs may have variables of that prefix too.
            if let Some(near) = nearest(name, names) {
                findings.push(Finding {
                    path: String::new(),
                    origin: Origin::Env(name.clone()),
                    message: "no setting has this variable".to_owned(),
                    fix: format!("did you mean {near}?"),
                });
            }
            continue;
        };
        let value = typed(&field.kind, text);
        put(&mut said.value, &field.path, value);
        said.origins
            .insert(field.path.clone(), Origin::Env(name.clone()));
    }
}

fn from_flags(flags: &[Flag], said: &mut Said, findings: &mut Vec<Finding>) {
    let mut lists: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for flag in flags {
        let origin = Origin::Flag(flag.name.clone());
        let field = fields().iter().find(|field| field.path == flag.path);
        let Some(field) = field else {
            let paths = fields().iter().map(|field| field.path.as_str());
            let near = nearest(&flag.path, paths).map(|near| format!("did you mean {near}?"));
            findings.push(Finding {
                path: flag.path.clone(),
                origin,
                message: "there is no such setting".to_owned(),
                fix: near.unwrap_or_else(|| "`semel config explain` lists them".to_owned()),
            });
            continue;
        };
        let value = if matches!(field.kind, Kind::List(_)) {
            let list = lists.entry(&flag.path).or_default();
            list.push(&flag.value);
            typed(&field.kind, &list.join(","))
        } else {
            typed(&field.kind, &flag.value)
        };
        put(&mut said.value, &field.path, value);
        said.origins.insert(field.path.clone(), origin);
    }
}

/// A text as the setting's kind has it. What doesn't fit stays a text, and the checks say so.
fn typed(kind: &Kind, text: &str) -> Value {
    match kind {
        Kind::Truth => text
            .parse::<bool>()
            .map_or_else(|_| text.into(), Into::into),
        Kind::Number { .. } => text.parse::<u64>().map_or_else(|_| text.into(), Into::into),
        Kind::List(inner) => {
            let items = text
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty());
            Value::Array(items.map(|item| typed(inner, item)).collect())
        }
        _ => text.into(),
    }
}

fn put(value: &mut Value, path: &str, new: Value) {
    let mut place = value;
    for name in path.split('.') {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        place = &mut place[name];
    }
    *place = new;
}

/// `over` on top of `under`: tables member by member, everything else as a whole.
pub(super) fn merged(under: &Value, over: &Value) -> Value {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            let mut both = under.clone();
            for (name, value) in over {
                let merged = under
                    .get(name)
                    .map_or_else(|| value.clone(), |below| merged(below, value));
                both.insert(name.clone(), merged);
            }
            Value::Object(both)
        }
        (_, over) => over.clone(),
    }
}
