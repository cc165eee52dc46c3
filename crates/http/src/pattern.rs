//! Path patterns of routes, matched segment by segment.

use crate::error::BuildError;
use crate::reading::soften;

/// A path with parameters: `/charges/{id}/refunds` or `/hooks/{*rest}`.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    pub(crate) text: String,
    /// The pattern after [`soften`].
    soft: String,
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Result<Self, BuildError> {
        let segments = text.split('/').skip(1);
        let mut ended = false;
        for segment in segments {
            let braces = segment.contains(['{', '}']);
            let place = segment.len() > 2 && segment.starts_with('{') && segment.ends_with('}');
            if ended || (braces && !place) {
                return Err(BuildError::Path(text.to_owned()));
            }
            ended = segment.starts_with("{*");
        }
        if !text.starts_with('/') {
            return Err(BuildError::Path(text.to_owned()));
        }
        Ok(Self {
            text: text.to_owned(),
            soft: soften(text).into_owned(),
        })
    }

    /// The position of the segment that the parameter `name` matches. None for a parameter that
    /// matches several segments.
    pub(crate) fn parameter(&self, name: &str) -> Option<usize> {
        let is_named = |segment: &str| {
            let inner = segment
                .strip_prefix('{')
                .and_then(|it| it.strip_suffix('}'));
            inner == Some(name) && !name.starts_with('*')
        };
        self.text.split('/').position(is_named)
    }

    pub(crate) fn matches(&self, path: &str) -> bool {
        matches(&self.text, path, |wanted, found| wanted == found)
    }

    /// Whether it matches a softened path, ignoring case.
    pub(crate) fn matches_soft(&self, path: &str) -> bool {
        matches(&self.soft, path, str::eq_ignore_ascii_case)
    }
}

fn matches(pattern: &str, path: &str, same: impl Fn(&str, &str) -> bool) -> bool {
    let mut wanted = pattern.split('/');
    let mut found = path.split('/');
    loop {
        match (wanted.next(), found.next()) {
            (None, None) => return true,
            (Some(rest), Some(_)) if rest.starts_with("{*") => return true,
            (Some(place), Some(value)) if place.starts_with('{') && !value.is_empty() => {}
            (Some(wanted), Some(found)) if same(wanted, found) => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_by_segments() {
        let matches = |pattern: &str, path: &str| Pattern::new(pattern).unwrap().matches(path);
        assert!(matches("/charges", "/charges"));
        assert!(matches("/charges/{id}/refunds", "/charges/7/refunds"));
        assert!(matches("/hooks/{*rest}", "/hooks/a/b"));
        assert!(!matches("/charges", "/charges/"));
        assert!(!matches("/charges/{id}", "/charges/"));
        assert!(!matches("/charges/{id}", "/charges/7/refunds"));
        let soft = |pattern: &str, path: &str| Pattern::new(pattern).unwrap().matches_soft(path);
        assert!(soft("/Charges/", "/charges") && soft("/%63harges", "/CHARGES"));
        assert!(!soft("/charges/{id}", "/charges"));
        for bad in ["charges", "/a{b}", "/{*rest}/more", "/{}"] {
            assert!(Pattern::new(bad).is_err(), "{bad}");
        }
    }
}
