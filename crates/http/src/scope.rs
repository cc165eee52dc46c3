//! [`ScopeTemplate`]: a scope that takes parts of the path, such as `intake:{intake}`.

use semel_core::namespace::MAX_PART_BYTES;

use crate::error::BuildError;
use crate::pattern::Pattern;
use crate::problem::Refusal;
use crate::reading::{Readings, readings, soften};

/// The longest part of a path that a scope takes.
const MAX_VALUE_BYTES: usize = 64;

/// A scope with places for segments of the path.
pub(crate) struct ScopeTemplate(Vec<ScopePart>);

#[derive(Debug, PartialEq, Eq)]
enum ScopePart {
    Text(String),
    /// The position of a segment in the path.
    Segment(usize),
}

impl ScopeTemplate {
    /// Parses the scope of a route. `None` if it takes nothing from the path.
    pub(crate) fn parse(scope: &str, path: Option<&Pattern>) -> Result<Option<Self>, BuildError> {
        if !scope.contains(['{', '}']) {
            return Ok(None);
        }
        let refuse = || BuildError::ScopeParameter {
            route: path.map_or("*", |path| &*path.text).to_owned(),
            scope: scope.to_owned(),
        };
        let mut parts = Vec::new();
        let mut rest = scope;
        while let Some((text, more)) = rest.split_once('{') {
            let (name, more) = more.split_once('}').ok_or_else(refuse)?;
            let segment = path.and_then(|path| path.parameter(name));
            parts.push(ScopePart::Text(text.to_owned()));
            parts.push(ScopePart::Segment(segment.ok_or_else(refuse)?));
            rest = more;
        }
        parts.push(ScopePart::Text(rest.to_owned()));
        let texts = parts.iter().filter_map(|part| match part {
            ScopePart::Text(text) => Some(text.as_str()),
            ScopePart::Segment(_) => None,
        });
        let text = texts.collect::<String>();
        // Otherwise a caller could name the scope of another route, or one of Semel's own.
        let is_open = scope.starts_with('{');
        let is_too_long = text.len() > MAX_PART_BYTES - MAX_VALUE_BYTES;
        if is_open || is_too_long || text.contains('}') {
            return Err(refuse());
        }
        Ok(Some(Self(parts)))
    }

    /// The scope of a request to `path`, which matches the pattern of the route. A value is taken
    /// as most services read it; a path with several readings is refused, because they could
    /// have different values.
    pub(crate) fn fill(&self, path: &str) -> Result<String, Refusal> {
        if !matches!(readings(path), Readings::Plain) {
            return Err(Refusal::PathAmbiguous);
        }
        let path = soften(path);
        let mut scope = String::new();
        for part in &self.0 {
            scope.push_str(match part {
                ScopePart::Text(text) => text.as_str(),
                ScopePart::Segment(at) => {
                    let value = path.split('/').nth(*at).unwrap_or_default();
                    is_valid(value).then_some(value).ok_or(Refusal::Scope)?
                }
            });
        }
        // Several values may be too long together.
        let fits = scope.len() <= MAX_PART_BYTES;
        fits.then_some(scope).ok_or(Refusal::Scope)
    }
}

/// Whether a segment can be a part of a scope.
fn is_valid(value: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@".contains(&byte);
    (1..=MAX_VALUE_BYTES).contains(&value.len()) && value.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(scope: &str, path: &str) -> Result<Option<ScopeTemplate>, BuildError> {
        ScopeTemplate::parse(scope, Some(&Pattern::new(path).unwrap()))
    }

    #[test]
    fn parts_of_the_path_become_parts_of_the_scope() {
        let fill = |scope: &str, pattern: &str, path: &str| {
            let template = parse(scope, pattern).unwrap().unwrap();
            template.fill(path)
        };
        for (scope, pattern, path, filled) in [
            ("i:{i}", "/i/{i}/submit", "/i/vendor-1/submit", "i:vendor-1"),
            ("i:{i}", "/i/{i}/{*rest}", "/i/a/b/c", "i:a"),
            ("x{b}/{a}.", "/{a}/{b}", "/1/2/", "x2/1."),
            ("i:{i}", "/i/{i}", "/i/%61", "i:a"),
            ("i:{i}", "/i/{i}", "/i/A", "i:A"),
        ] {
            assert_eq!(fill(scope, pattern, path).unwrap(), filled, "{path}");
        }
        let long = format!("/i/{}", "a".repeat(MAX_VALUE_BYTES + 1));
        for path in ["/i/a%20b", "/i/caf%C3%A9", "/i/a&b", &long] {
            assert_eq!(fill("i:{i}", "/i/{i}", path), Err(Refusal::Scope), "{path}");
        }
        let two = |length: usize| {
            let value = "a".repeat(length);
            fill("x{a}{b}", "/{a}/{b}", &format!("/{value}/{value}"))
        };
        assert_eq!(two(60).unwrap().len(), 121);
        assert_eq!(two(64), Err(Refusal::Scope));
        for path in ["/i/a;x=1", "/i/a%2Fb", "/i//a", "/i/a%00"] {
            let filled = fill("i:{i}", "/i/{i}", path);
            assert_eq!(filled, Err(Refusal::PathAmbiguous), "{path}");
        }
    }

    #[test]
    fn scopes_that_cannot_be_filled_are_refused() {
        assert!(parse("orders", "/orders/{id}").unwrap().is_none());
        let long = format!("{}{{i}}", "x".repeat(MAX_PART_BYTES - MAX_VALUE_BYTES));
        assert!(parse(&long, "/i/{i}").is_ok());
        for scope in [
            "{i}",
            "i:{other}",
            "i:{rest}",
            "i:{*rest}",
            "i:{i",
            "i:i}",
            "i:{}",
            &format!("x{long}"),
        ] {
            let refused = parse(scope, "/i/{i}/{*rest}");
            assert!(
                matches!(refused, Err(BuildError::ScopeParameter { .. })),
                "{scope}"
            );
        }
        assert!(ScopeTemplate::parse("i:{i}", None).is_err());
    }
}
