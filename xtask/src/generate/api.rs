//! `docs/api-reference.md`: every call of the APIs, from the OpenAPI document.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::Output;
use crate::workspace::Workspace;

const DOCUMENT: &str = "spec/openapi.json";

const HEAD: &str = "<!-- Made by `cargo xtask generate`; do not edit. -->\n\n# Every call of the APIs\n\n\
From [openapi.json](../spec/openapi.json), which programs read. The guides are [the protocol API](api.md), [jobs](jobs.md) and [the admin API](admin.md); \
what can go wrong has [a page for each code](errors/README.md). Members in bold are mandatory.\n";

pub(crate) fn page(workspace: &Workspace) -> Result<Vec<Output>> {
    let text = std::fs::read_to_string(workspace.path(DOCUMENT))
        .with_context(|| format!("cannot read {DOCUMENT}"))?;
    let document: Value = serde_json::from_str(&text).context(DOCUMENT)?;
    Ok(vec![Output {
        path: "docs/api-reference.md".to_owned(),
        contents: render(&document),
    }])
}

fn render(document: &Value) -> String {
    let mut page = HEAD.to_owned();
    for tag in list(&document["tags"]) {
        let name = text(&tag["name"]);
        // Writing into a `String` cannot fail.
        let _ = write!(page, "\n## {name}\n\n{}\n", text(&tag["description"]));
        for (path, methods) in document["paths"].as_object().into_iter().flatten() {
            for (method, call) in methods.as_object().into_iter().flatten() {
                if list(&call["tags"]).iter().any(|tag| tag == name) {
                    write_call(
                        &mut page,
                        document,
                        &format!("{} {path}", method.to_uppercase()),
                        call,
                    );
                }
            }
        }
    }
    page
}

fn write_call(page: &mut String, document: &Value, title: &str, call: &Value) {
    let _ = write!(page, "\n### {title}\n\n{}\n", text(&call["summary"]));
    let parameters = list(&call["parameters"]);
    let body = resolve(
        document,
        &call["requestBody"]["content"]["application/json"]["schema"],
    );
    let required: Vec<&str> = list(&body["required"]).iter().map(text).collect();
    let members = body["properties"].as_object();
    if !parameters.is_empty() || members.is_some() {
        page.push_str("\n| member | in | type | |\n|---|---|---|---|\n");
    }
    for parameter in parameters {
        let name = shown(text(&parameter["name"]), parameter["required"] == true);
        let kind = kind(document, &parameter["schema"]);
        let _ = writeln!(
            page,
            "| {name} | {} | {kind} | {} |",
            text(&parameter["in"]),
            cell(&parameter["description"])
        );
    }
    for (name, schema) in members.into_iter().flatten() {
        let name = shown(name, required.contains(&name.as_str()));
        let _ = writeln!(
            page,
            "| {name} | body | {} | {} |",
            kind(document, schema),
            cell(&schema["description"])
        );
    }
    page.push_str("\n| status | |\n|---|---|\n");
    for (status, answer) in call["responses"].as_object().into_iter().flatten() {
        let _ = writeln!(page, "| {status} | {} |", cell(&answer["description"]));
    }
}

fn shown(name: &str, mandatory: bool) -> String {
    if mandatory {
        format!("**`{name}`**")
    } else {
        format!("`{name}`")
    }
}

/// The schema itself, where one stands for another.
fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"]
        .as_str()
        .and_then(|name| name.strip_prefix('#'))
    {
        Some(pointer) => document.pointer(pointer).unwrap_or(&Value::Null),
        None => schema,
    }
}

/// A few words for what is taken.
fn kind(document: &Value, schema: &Value) -> String {
    if let Some(one) = list(&schema["oneOf"])
        .iter()
        .chain(list(&schema["anyOf"]))
        .find(|one| one["type"] != "null")
    {
        return kind(document, one);
    }
    let schema = resolve(document, schema);
    let choices: Vec<String> = list(&schema["enum"])
        .iter()
        .map(|one| format!("`{}`", text(one)))
        .collect();
    if !choices.is_empty() {
        return choices.join(", ");
    }
    let named = match &schema["type"] {
        Value::Array(several) => several.iter().map(text).find(|name| *name != "null"),
        one => one.as_str(),
    };
    match named {
        Some("array") => format!("list of {}", kind(document, &schema["items"])),
        Some(name) => name.to_owned(),
        None => "any JSON".to_owned(),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// In a table there is one line, and no bar.
fn cell(value: &Value) -> String {
    let words: Vec<&str> = text(value).split_whitespace().collect();
    words.join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_shown_with_what_it_takes_and_gives() {
        let document = serde_json::json!({
            "tags": [{"name": "protocol", "description": "Claim."}],
            "paths": {"/v1/claims": {"post": {
                "tags": ["protocol"], "summary": "Claim a key.",
                "parameters": [{"name": "wait_ms", "in": "query", "schema": {"type": ["integer", "null"]}, "description": "a | b"}],
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Claim"}}}},
                "responses": {"201": {"description": "Yours."}},
            }}},
            "components": {"schemas": {"Claim": {"required": ["key"], "properties": {
                "key": {"type": "string", "description": "Which."}, "tags": {"type": "array", "items": {"enum": ["x", "y"]}},
            }}}},
        });
        let page = render(&document);
        for line in [
            "### POST /v1/claims",
            "| `wait_ms` | query | integer | a \\| b |",
            "| **`key`** | body | string | Which. |",
            "| `tags` | body | list of `x`, `y` |  |",
            "| 201 | Yours. |",
        ] {
            assert!(page.contains(line), "{line} in\n{page}");
        }
    }
}
