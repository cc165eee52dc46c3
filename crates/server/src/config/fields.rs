//! The JSON schema of the settings, and the list of all settings. Checks and documentation use
//! both.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::tree::Config;

/// A setting.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its path, such as `upstream.urls` or `routes[].path`.
    pub path: String,
    /// Its description.
    pub about: String,
    /// Its kind of value.
    pub kind: FieldKind,
    /// Its default value, if it has one.
    pub default: Option<Value>,
    /// Its environment variable. Settings of routes have none.
    pub env: Option<String>,
}

/// The kind of value of a setting.
#[derive(Clone, Debug)]
pub enum FieldKind {
    /// A text, optionally of a form such as `header` or `span`.
    Text {
        /// The name of the form.
        form: Option<String>,
    },
    /// A whole number within bounds.
    Number {
        /// The minimum.
        least: u64,
        /// The maximum.
        most: u64,
    },
    /// A boolean.
    Boolean,
    /// One of several words, each with its meaning.
    Choice(Vec<(String, String)>),
    /// A list.
    List(Box<FieldKind>),
    /// A table of settings.
    Table(Vec<(String, Node)>),
}

/// A kind, with its description.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its description.
    pub about: String,
    /// Its kind of value.
    pub kind: FieldKind,
}

/// The JSON schema of the configuration. It allows no unknown settings.
#[must_use]
pub fn schema() -> Value {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let schema = settings.into_generator().into_root_schema_for::<Config>();
    let mut schema = schema.to_value();
    close(&mut schema);
    schema
}

/// Forbids unknown members everywhere, because flattened structs cannot declare this.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.contains_key("properties") {
                members.insert("additionalProperties".to_owned(), false.into());
            }
            members.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// The schema as a tree of kinds.
#[must_use]
pub(super) fn tree() -> &'static Node {
    static TREE: LazyLock<Node> = LazyLock::new(|| read_node(&schema()));
    &TREE
}

/// All settings, in the order of the schema.
#[must_use]
pub fn fields() -> &'static [Field] {
    static FIELDS: LazyLock<Vec<Field>> = LazyLock::new(|| {
        let defaults = serde_json::to_value(Config::default()).unwrap_or_default();
        let mut fields = Vec::new();
        collect_fields(tree(), "", Some(&defaults), &mut fields);
        fields
    });
    &FIELDS
}

fn collect_fields(node: &Node, path: &str, default: Option<&Value>, fields: &mut Vec<Field>) {
    let members = match &node.kind {
        FieldKind::Table(members) => members,
        FieldKind::List(inner) => match &**inner {
            FieldKind::Table(_) => {
                let inner = Node {
                    about: node.about.clone(),
                    kind: (**inner).clone(),
                };
                collect_fields(&inner, &format!("{path}[]"), None, fields);
                return;
            }
            _ => return push_field(node, path, default, fields),
        },
        _ => return push_field(node, path, default, fields),
    };
    for (name, member) in members {
        let path = match path {
            "" => name.clone(),
            path => format!("{path}.{name}"),
        };
        collect_fields(
            member,
            &path,
            default.and_then(|value| value.get(name)),
            fields,
        );
    }
}

fn push_field(node: &Node, path: &str, default: Option<&Value>, fields: &mut Vec<Field>) {
    let env = (!path.contains("[]")).then(|| env_name(path));
    fields.push(Field {
        path: path.to_owned(),
        about: node.about.clone(),
        kind: node.kind.clone(),
        default: default.filter(|value| !value.is_null()).cloned(),
        env,
    });
}

/// The environment variable of a setting: `SEMEL_UPSTREAM_URLS` for `upstream.urls`.
#[must_use]
pub fn env_name(path: &str) -> String {
    format!("SEMEL_{}", path.replace('.', "_").to_uppercase())
}

fn member_text<'a>(schema: &'a Value, member: &str) -> &'a str {
    schema.get(member).and_then(Value::as_str).unwrap_or("")
}

fn read_node(schema: &Value) -> Node {
    Node {
        about: member_text(schema, "description").replace('\n', " "),
        kind: read_kind(schema),
    }
}

fn read_kind(schema: &Value) -> FieldKind {
    if let Some(members) = schema.get("properties").and_then(Value::as_object) {
        return read_table(members);
    }
    // Optional values and choices between words.
    let choices = ["anyOf", "oneOf"];
    for choice in choices {
        let Some(options) = schema.get(choice).and_then(Value::as_array) else {
            continue;
        };
        let is_value = |option: &&Value| member_text(option, "type") != "null";
        let mut options = options.iter().filter(is_value);
        if options.clone().any(|option| option.get("const").is_some()) {
            let word = |option: &Value| {
                let about = member_text(option, "description").replace('\n', " ");
                (member_text(option, "const").to_owned(), about)
            };
            return FieldKind::Choice(options.map(word).collect());
        }
        if let Some(one) = options.next() {
            return read_kind(one);
        }
    }
    match type_name(schema) {
        "boolean" => FieldKind::Boolean,
        "integer" => {
            let bound = |name| schema.get(name).and_then(Value::as_u64);
            FieldKind::Number {
                least: bound("minimum").unwrap_or(0),
                most: bound("maximum").unwrap_or(u64::from(u32::MAX)),
            }
        }
        "array" => FieldKind::List(Box::new(
            schema
                .get("items")
                .map_or(FieldKind::Text { form: None }, read_kind),
        )),
        _ => FieldKind::Text {
            form: schema
                .get("format")
                .and_then(Value::as_str)
                .map(str::to_owned),
        },
    }
}

fn read_table(members: &Map<String, Value>) -> FieldKind {
    let member = |(name, schema): (&String, &Value)| (name.clone(), read_node(schema));
    FieldKind::Table(members.iter().map(member).collect())
}

/// The JSON type, ignoring `null`.
fn type_name(schema: &Value) -> &str {
    match schema.get("type") {
        Some(Value::Array(types)) => {
            let mut names = types.iter().filter_map(Value::as_str);
            names.find(|name| *name != "null").unwrap_or("")
        }
        Some(Value::String(name)) => name,
        _ => "",
    }
}

impl FieldKind {
    /// A description for people.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Text { form } => match form.as_deref() {
                Some("span") => "span of time, such as \"30s\"".to_owned(),
                Some("size") => "size, such as \"1MiB\"".to_owned(),
                Some("file") => "path of a file".to_owned(),
                Some("header") => "name of a header".to_owned(),
                Some("network") => "address or network".to_owned(),
                Some("method") => "method".to_owned(),
                Some("address") => "address and port, such as \"127.0.0.1:8080\"".to_owned(),
                Some("http-url") => "URL, such as \"http://127.0.0.1:3000\"".to_owned(),
                Some("store-url") => "URL, such as \"redis://127.0.0.1\"".to_owned(),
                Some("pointer") => "JSON pointer".to_owned(),
                Some("route") => "path of a route".to_owned(),
                _ => "text".to_owned(),
            },
            Self::Number { .. } => "whole number".to_owned(),
            Self::Boolean => "true or false".to_owned(),
            Self::Choice(words) => {
                let quoted: Vec<String> = words
                    .iter()
                    .map(|(word, _)| format!("\"{word}\""))
                    .collect();
                quoted.join(", ")
            }
            Self::List(inner) => format!("list: {}", inner.describe()),
            Self::Table(_) => "table".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_a_description_and_its_own_variable() {
        let fields = fields();
        assert!(fields.len() > 60, "{}", fields.len());
        for field in fields {
            assert!(field.about.len() > 3, "{} has no description", field.path);
            if let FieldKind::Choice(words) = &field.kind {
                assert!(
                    words
                        .iter()
                        .all(|(word, about)| !word.is_empty() && !about.is_empty()),
                    "{}",
                    field.path
                );
            }
        }
        let mut names: Vec<&str> = fields
            .iter()
            .filter_map(|field| field.env.as_deref())
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "two settings share a variable");
    }

    #[test]
    fn kinds_match_the_schema() {
        let kind_of = |path: &str| {
            let found = fields().iter().find(|field| field.path == path);
            found.unwrap().kind.describe()
        };
        assert_eq!(kind_of("drain_time"), "span of time, such as \"30s\"");
        assert_eq!(kind_of("routes[].crash"), "\"takeover\", \"hold\"");
        assert_eq!(
            kind_of("routes[].caller_retention"),
            "span of time, such as \"30s\""
        );
        assert_eq!(kind_of("defaults.on_busy"), "\"wait\", \"refuse\"");
        assert_eq!(kind_of("listener.trust_forwarded"), "true or false");
        assert_eq!(
            kind_of("upstream.urls"),
            "list: URL, such as \"http://127.0.0.1:3000\""
        );
        assert_eq!(kind_of("store.secret_id"), "whole number");
    }
}
