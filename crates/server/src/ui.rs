//! The dashboard: files that are part of the program, at `/` and under `/ui` of the admin listener. They carry no
//! secret and load without one; what they show comes from the admin API, which asks for the credential.

use std::borrow::Cow;

use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use rust_embed::{EmbeddedFile, RustEmbed};

use crate::admin::Credential;
use crate::api::{Failure, hex, wrong_method};

#[derive(RustEmbed)]
#[folder = "ui/"]
struct Files;

/// Nothing but our own files, and our own API: neither code nor style from the page itself, no frame around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
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
    // Kept, and asked for again each time: after an upgrade nobody sees half of the old page.
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

/// The page. It asks what to show its caller by `ui/access.json`: a token, or nothing.
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
        answer(&headers, "access.json", "", Cow::Owned(bytes))
    };
    Router::new()
        .route("/", get(|headers| file(headers, "index.html".to_owned())))
        .route("/ui/access.json", get(access))
        .route(
            "/ui/{*path}",
            get(|Path(path): Path<String>, headers| file(headers, path)),
        )
        .method_not_allowed_fallback(wrong_method)
}

async fn file(headers: HeaderMap, path: String) -> Response {
    let Some(EmbeddedFile { data, metadata }) = Files::get(&path) else {
        return Failure::of("not_found", "there is no such file").into_response();
    };
    let hash = metadata.sha256_hash();
    let tag = format!("\"{}\"", hex(hash.get(..16).unwrap_or_default()));
    answer(&headers, &path, &tag, data)
}

fn answer(asked: &HeaderMap, path: &str, tag: &str, body: Cow<'static, [u8]>) -> Response {
    let known = asked.get(header::IF_NONE_MATCH);
    let is_known = !tag.is_empty() && known.is_some_and(|known| known == tag);
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        body.into_response()
    };
    let headers = response.headers_mut();
    headers.extend(HEADERS);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind(path)));
    if let Ok(tag) = HeaderValue::from_str(tag)
        && !tag.is_empty()
    {
        headers.insert(header::ETAG, tag);
    }
    response
}

fn kind(path: &str) -> &'static str {
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
    fn every_file_has_a_kind_and_nothing_comes_from_elsewhere() {
        let mut paths: Vec<_> = Files::iter().collect();
        paths.sort();
        assert!(paths.iter().any(|path| path == "index.html"), "{paths:?}");
        for path in paths {
            let data = Files::get(&path).unwrap().data;
            let text = String::from_utf8_lossy(&data);
            if path.starts_with("vendor/") {
                continue;
            }
            assert_ne!(kind(&path), "text/plain; charset=utf-8", "{path}");
            let is_away = |line: &&str| {
                line.contains("://") && !line.contains("127.0.0.1") && !line.contains("w3.org")
            };
            let away = text.lines().find(is_away);
            assert_eq!(away, None, "{path} names another place");
            let is_page = path.ends_with("index.html");
            assert!(
                !is_page || !text.contains("<style") && !text.contains(" style="),
                "{path}"
            );
        }
    }
}
