//! [`Target`]: a URL of the upstream service.

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};
use semel::http::has_dot_segments;

/// A URL that requests are forwarded to.
pub(super) struct Target {
    pub(super) scheme: Scheme,
    pub(super) authority: Authority,
    base: String,
}

impl Target {
    /// Reads a URL with a scheme and a host.
    pub(super) fn parse(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let base = uri.path().trim_end_matches('/').to_owned();
        let parts = uri.into_parts();
        Some(Self {
            scheme: parts.scheme?,
            authority: parts.authority?,
            base,
        })
    }

    /// The URL of a forwarded request; `None` if it would leave the path of the service's URL.
    pub(super) fn uri(&self, asked: &Uri) -> Option<Uri> {
        if !self.base.is_empty() && has_dot_segments(asked.path()) {
            return None;
        }
        let asked = asked.path_and_query().map_or("/", PathAndQuery::as_str);
        let path = match self.base.as_str() {
            "" => asked.parse().ok()?,
            base => format!("{base}{asked}").parse().ok()?,
        };
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).ok()
    }
}
