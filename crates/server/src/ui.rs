//! The dashboard: embedded files, at `/` and under `/ui` of the admin listener.
//!
//! The files contain no secret and load without a credential. Their data comes from the admin API,
//! which requires the credential.

use std::borrow::Cow;

use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use rust_embed::{EmbeddedFile, RustEmbed};
use semel::core::Code;

use crate::operators::Credential;
use crate::web::{Failure, hex, method_not_allowed};

#[derive(RustEmbed)]
#[folder = "ui/"]
struct Files;

/// Allows only our own files and API: no inline code or style, and no frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(POLICY),
    ),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    (
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    ),
    // Caches revalidate every file, so an upgrade never mixes old and new files.
    (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

/// The router of the dashboard. `ui/access.json` tells the page which credential to ask for.
pub(crate) fn router(credential: &Credential) -> Router {
    let asks_for = match credential {
        Credential::None => "nothing",
        Credential::Closed => "token",
        Credential::Token(_) | Credential::Operators(_) => "token",
        Credential::MutualTls(_) => "certificate",
    };
    let access = serde_json::json!({ "asks_for": asks_for }).to_string();
    let access = move |headers: HeaderMap| async move {
        let bytes = access.into_bytes();
        build_response(&headers, "access.json", "", Cow::Owned(bytes))
    };
    Router::new()
        .route(
            "/",
            get(|headers| serve_file(headers, "index.html".to_owned())),
        )
        .route("/ui/access.json", get(access))
        .route(
            "/ui/{*path}",
            get(|Path(path): Path<String>, headers| serve_file(headers, path)),
        )
        .method_not_allowed_fallback(method_not_allowed)
}

async fn serve_file(headers: HeaderMap, path: String) -> Response {
    dashboard_file(&headers, &path)
        .unwrap_or_else(|| Failure::new(Code::NotFound, "the file does not exist").into_response())
}

/// A file of the dashboard, such as `style.css`, with its headers. Another page of the program that
/// should look the same serves it too.
#[must_use]
pub fn dashboard_file(asked: &HeaderMap, path: &str) -> Option<Response> {
    let EmbeddedFile { data, metadata } = Files::get(path)?;
    let hash = metadata.sha256_hash();
    let tag = format!("\"{}\"", hex(hash.get(..16).unwrap_or_default()));
    Some(build_response(asked, path, &tag, data))
}

/// A file of another page, under the dashboard's content security policy.
#[must_use]
pub fn page_file(path: &str, text: &'static str) -> Response {
    let body = Cow::Borrowed(text.as_bytes());
    build_response(&HeaderMap::new(), path, "", body)
}

fn build_response(
    request_headers: &HeaderMap,
    path: &str,
    tag: &str,
    body: Cow<'static, [u8]>,
) -> Response {
    let cached = request_headers.get(header::IF_NONE_MATCH);
    let is_cached = !tag.is_empty() && cached.is_some_and(|cached| cached == tag);
    let mut response = if is_cached {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        body.into_response()
    };
    let headers = response.headers_mut();
    headers.extend(HEADERS);
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(media_type(path)),
    );
    if let Ok(tag) = HeaderValue::from_str(tag)
        && !tag.is_empty()
    {
        headers.insert(header::ETAG, tag);
    }
    response
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_a_media_type_and_no_external_reference() {
        let mut paths: Vec<_> = Files::iter().collect();
        paths.sort();
        assert!(paths.iter().any(|path| path == "index.html"), "{paths:?}");
        for path in paths {
            let data = Files::get(&path).unwrap().data;
            let text = String::from_utf8_lossy(&data);
            if path.starts_with("vendor/") {
                continue;
            }
            assert_ne!(media_type(&path), "text/plain; charset=utf-8", "{path}");
            let is_external = |line: &&str| {
                line.contains("://") && !line.contains("127.0.0.1") && !line.contains("w3.org")
            };
            let external = text.lines().find(is_external);
            assert_eq!(external, None, "{path} has an external reference");
            let is_page = path.ends_with("index.html");
            assert!(
                !is_page || !text.contains("<style") && !text.contains(" style="),
                "{path}"
            );
        }
    }
}
