//! The OpenAPI fragment of the routes that take keys.

use http::Method;
use semel_core::policy::Mode;
use semel_core::time::iso8601;
use serde_json::{Map, Value, json};

use crate::announce::{IDEMPOTENCY_KEY_LIFETIME, KeyTerms};
use crate::rules::Rules;

/// The fragment: the routes by their paths, and the requests outside of them as a component.
pub(crate) fn fragment<'a>(routes: impl Iterator<Item = &'a Rules>, defaults: &Rules) -> Value {
    let mut paths = Map::new();
    for rules in routes {
        let Some(pattern) = &rules.path else { continue };
        if rules.policy.mode != Mode::Enforce {
            continue;
        }
        let path = pattern.text.replace("{*", "{");
        let mut methods = Map::new();
        for method in &rules.methods {
            if let Some(name) = known(method) {
                methods.insert(name.to_owned(), operation(rules));
            }
        }
        paths.insert(path, methods.into());
    }
    let mut components = json!({
        "headers": { "IdempotencyKeyLifetime": lifetime_header() },
        "schemas": { "IdempotencyProblem": problem_schema() },
    });
    if defaults.policy.mode == Mode::Enforce {
        if let Some(parameter) = defaults.key_terms.parameter() {
            components["parameters"] = json!({ "IdempotencyKey": parameter });
        }
        components["responses"] = responses(defaults);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Idempotency keys",
            "version": "1",
            "description": "What the routes of this API say about idempotency keys: to be merged \
                            into the API's own document. The components are for operations that \
                            no path names.",
        },
        "paths": paths,
        "components": components,
    })
}

/// The name of a method in OpenAPI 3.1, if it has one.
fn known(method: &Method) -> Option<&'static str> {
    let names = [
        "get", "put", "post", "delete", "options", "head", "patch", "trace",
    ];
    let mut names = names.into_iter();
    names.find(|name| name.eq_ignore_ascii_case(method.as_str()))
}

fn operation(rules: &Rules) -> Value {
    let terms = &rules.key_terms;
    let mut operation = json!({
        "responses": responses(rules),
        "x-idempotency-key": extension(terms),
    });
    if let Some(parameter) = terms.parameter() {
        operation["parameters"] = json!([parameter]);
    }
    operation
}

/// The same facts for programs, and for keys that are no parameter.
fn extension(terms: &KeyTerms) -> Value {
    let mut document = terms.document();
    document["description"] = terms.description().into();
    document
}

/// The problems that a client of the route must expect, by status.
fn responses(rules: &Rules) -> Value {
    let terms = rules.terms;
    let mut lines: Vec<(u16, &str)> = vec![
        (400, "The key is missing, malformed or given twice."),
        (terms.mismatch, "The key was used with another payload."),
        (
            terms.waited_too_long,
            "A request with this key is still running.",
        ),
        (429, "Too many requests wait for this key."),
        (
            503,
            "The store is unavailable; the request was not started.",
        ),
    ];
    if !terms.waits {
        lines.push((terms.in_flight, "A request with this key is still running."));
    }
    if rules.key_age.is_some() {
        lines.push((412, "The key is too old."));
    }
    let mut found: Map<String, Value> = Map::new();
    for (status, text) in lines {
        let name = status.to_string();
        let earlier = found.get(&name).and_then(|one| one["description"].as_str());
        let text = match earlier {
            Some(earlier) if earlier.contains(text) => continue,
            Some(earlier) => format!("{earlier} {text}"),
            None => text.to_owned(),
        };
        let response = json!({
            "description": text,
            "content": { "application/problem+json": {
                "schema": { "$ref": "#/components/schemas/IdempotencyProblem" }
            } },
        });
        found.insert(name, response);
    }
    if rules.announces {
        let header = json!({ "$ref": "#/components/headers/IdempotencyKeyLifetime" });
        let headers = json!({ IDEMPOTENCY_KEY_LIFETIME.as_str(): header });
        found.insert(
            "default".to_owned(),
            json!({ "description": "The response of the service.", "headers": headers }),
        );
    }
    found.into()
}

fn lifetime_header() -> Value {
    json!({
        "description": "For how long a retry with the same key gets the first response.",
        "schema": { "type": "string", "format": "duration", "example": iso8601(std::time::Duration::from_secs(86_400)) },
    })
}

/// A problem document (RFC 9457) of the layer.
fn problem_schema() -> Value {
    json!({
        "type": "object",
        "required": ["type", "title", "status", "detail", "code", "retryable"],
        "properties": {
            "type": { "type": "string", "format": "uri-reference" },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string" },
            "code": { "type": "string" },
            "retryable": { "type": "boolean" },
            "retryAfterMs": { "type": "integer" },
            "keyRules": { "type": "object" },
        },
    })
}
