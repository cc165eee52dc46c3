//! [`CredentialRules`]: which credentials separate callers if no principal is known.

use std::borrow::Cow;
use std::sync::LazyLock;

use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, StatusCode};

/// Headers that count as credentials. `spec/vectors/credentials.json` has the same list, in the
/// same order.
///
/// The first two are always part of a fingerprint, even if a request has none of them. The others
/// count only if they are present, so that older fingerprints stay valid.
pub static CREDENTIAL_HEADERS: [HeaderName; 36] = [
    header::AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("api-key"),
    HeaderName::from_static("apikey"),
    HeaderName::from_static("x-apikey"),
    HeaderName::from_static("x-auth-token"),
    HeaderName::from_static("x-access-token"),
    HeaderName::from_static("x-session-token"),
    HeaderName::from_static("private-token"),
    HeaderName::from_static("job-token"),
    HeaderName::from_static("ocp-apim-subscription-key"),
    HeaderName::from_static("x-functions-key"),
    HeaderName::from_static("x-goog-api-key"),
    HeaderName::from_static("x-goog-iap-jwt-assertion"),
    HeaderName::from_static("x-amz-security-token"),
    HeaderName::from_static("x-amzn-oidc-data"),
    HeaderName::from_static("x-amzn-oidc-accesstoken"),
    HeaderName::from_static("x-amzn-oidc-identity"),
    HeaderName::from_static("x-ms-client-principal"),
    HeaderName::from_static("cf-access-jwt-assertion"),
    HeaderName::from_static("cf-access-client-id"),
    HeaderName::from_static("cf-access-client-secret"),
    HeaderName::from_static("x-auth-request-user"),
    HeaderName::from_static("x-auth-request-email"),
    HeaderName::from_static("x-auth-request-access-token"),
    HeaderName::from_static("x-forwarded-user"),
    HeaderName::from_static("x-forwarded-email"),
    HeaderName::from_static("x-forwarded-preferred-username"),
    HeaderName::from_static("x-forwarded-access-token"),
    HeaderName::from_static("x-remote-user"),
    HeaderName::from_static("remote-user"),
    HeaderName::from_static("client-cert"),
    HeaderName::from_static("x-forwarded-client-cert"),
    HeaderName::from_static("x-client-cert"),
    HeaderName::from_static("x-ssl-client-cert"),
];

/// The positions of [`CREDENTIAL_HEADERS`] by the length of their names.
static BY_LENGTH: LazyLock<Vec<Vec<usize>>> = LazyLock::new(|| {
    let mut positions: Vec<Vec<usize>> = Vec::new();
    for (at, name) in CREDENTIAL_HEADERS.iter().enumerate() {
        let length = name.as_str().len();
        positions.resize_with(positions.len().max(length + 1), Vec::new);
        positions[length].push(at);
    }
    positions
});

/// Which credentials these headers have: a bit for each of [`CREDENTIAL_HEADERS`], and whether
/// there are cookies. A request has fewer headers than there are names, so this looks at each
/// header once, by its length first.
fn present(headers: &HeaderMap) -> (u64, bool) {
    const { assert!(CREDENTIAL_HEADERS.len() <= 64, "a bit for each") };
    let by_length = &*BY_LENGTH;
    let (mut usual, mut has_cookies) = (0, false);
    for name in headers.keys() {
        has_cookies |= *name == header::COOKIE;
        let candidates = by_length.get(name.as_str().len());
        let mut candidates = candidates.into_iter().flatten();
        if let Some(at) = candidates.find(|at| CREDENTIAL_HEADERS[**at] == *name) {
            usual |= 1 << at;
        }
    }
    (usual, has_cookies)
}

/// The positions of the bits that are set, the lowest first.
fn positions(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (bits != 0).then(|| bits.trailing_zeros() as usize);
        bits &= bits.wrapping_sub(1);
        lowest
    })
}

/// The number of [`CREDENTIAL_HEADERS`] that count even if they are absent.
const ALWAYS: usize = 2;

/// The name under which a certificate counts. No header has this name.
const CERTIFICATE: &str = ":client-certificate";

/// The digest of a client certificate, as an extension of the request. It counts as a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientCertificate(pub [u8; 32]);

/// What counts as credentials where no principal is known.
///
/// All of [`CREDENTIAL_HEADERS`], the cookies and the [`ClientCertificate`] count as payload: a key
/// that is used with other credentials is refused rather than answered with another's answer, and a
/// token that was refreshed doesn't make a new key.
///
/// ```
/// use semel_http::CredentialRules;
///
/// let credentials = CredentialRules::default()
///     .with_headers(vec![http::HeaderName::from_static("x-account")])
///     .with_cookies(vec!["session".to_owned()]);
/// # let _ = credentials;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CredentialRules {
    /// Further headers that count. None by default.
    pub headers: Vec<HeaderName>,
    /// The cookies that count. If the list is empty, the whole `Cookie` header counts.
    pub cookies: Vec<String>,
}

/// One credential of a request: its name, and its values in order.
pub type CountedCredential<'a> = (&'a str, Vec<Cow<'a, [u8]>>);

impl CredentialRules {
    /// The credentials of a request, in a stable order.
    pub fn counted<'a>(&'a self, parts: &'a Parts) -> Vec<CountedCredential<'a>> {
        let mut counted = self.from_headers(&parts.headers);
        if let Some(ClientCertificate(digest)) = parts.extensions.get() {
            counted.push((CERTIFICATE, vec![Cow::Borrowed(&digest[..])]));
        }
        counted
    }

    /// The credentials in the headers alone.
    pub fn from_headers<'a>(&'a self, headers: &'a HeaderMap) -> Vec<CountedCredential<'a>> {
        let (present, has_cookies) = present(headers);
        let values = |name: &HeaderName| {
            let lines = headers.get_all(name).iter();
            lines.map(|line| Cow::Borrowed(line.as_bytes())).collect()
        };
        let usual = positions(present | ((1 << ALWAYS) - 1));
        let usual = usual.map(|at| (&CREDENTIAL_HEADERS[at], present & (1 << at) != 0));
        let more = self.headers.iter();
        let more =
            more.filter(|name| !CREDENTIAL_HEADERS.contains(name) && headers.contains_key(*name));
        let mut counted: Vec<CountedCredential<'a>> = usual
            .chain(more.map(|name| (name, true)))
            .map(|(name, is_present)| {
                let values = if is_present { values(name) } else { Vec::new() };
                (name.as_str(), values)
            })
            .collect();
        if has_cookies {
            let cookies = self.of_cookies(headers);
            if !cookies.is_empty() {
                counted.push(("cookie", cookies));
            }
        }
        counted
    }

    /// Cookies count as pairs. HTTP/2 may split them into several lines (RFC 9113, 8.2.3).
    fn of_cookies<'a>(&self, headers: &'a HeaderMap) -> Vec<Cow<'a, [u8]>> {
        let lines = headers.get_all(header::COOKIE).iter();
        let lines = lines.map(HeaderValue::as_bytes);
        let lines: Vec<&[u8]> = lines.filter(|line| !line.is_empty()).collect();
        match lines.as_slice() {
            [] => Vec::new(),
            [one] if self.cookies.is_empty() => vec![Cow::Borrowed(*one)],
            more if self.cookies.is_empty() => vec![more.join(&b"; "[..]).into()],
            _ => {
                let pairs = || {
                    lines
                        .iter()
                        .flat_map(|line| line.split(|byte| *byte == b';'))
                };
                let named = self.cookies.iter().flat_map(|name| {
                    let pairs = pairs().map(<[u8]>::trim_ascii);
                    pairs.filter(move |pair| {
                        let value = pair.strip_prefix(name.as_bytes());
                        value.is_some_and(|value| value.starts_with(b"="))
                    })
                });
                named.map(Cow::Borrowed).collect()
            }
        }
    }

    /// Sets [`headers`](Self::headers).
    #[must_use]
    pub fn with_headers(mut self, headers: Vec<HeaderName>) -> Self {
        self.headers = headers;
        self
    }

    /// Sets [`cookies`](Self::cookies).
    #[must_use]
    pub fn with_cookies(mut self, cookies: Vec<String>) -> Self {
        self.cookies = cookies;
        self
    }
}

/// Whether any of these credentials is present.
#[must_use]
pub fn has_credentials(counted: &[CountedCredential<'_>]) -> bool {
    counted.iter().any(|(_, values)| !values.is_empty())
}

/// Whether a response to a request without credentials asks for them. The effect did not happen,
/// and the next request with the key may have credentials.
///
/// A 303 does not count: it reports that something was done, and where to find it.
#[must_use]
pub fn asks_to_sign_in(status: StatusCode, headers: &HeaderMap) -> bool {
    match status.as_u16() {
        401 | 403 | 407 => true,
        301 | 302 | 307 | 308 => {
            let location = headers.get(header::LOCATION);
            location.is_some_and(|location| leads_to_sign_in(location.as_bytes()))
        }
        _ => false,
    }
}

/// Path segments of sign-in pages, compared up to the first dot.
const SIGN_IN: [&str; 17] = [
    "login",
    "log-in",
    "log_in",
    "logon",
    "signin",
    "sign-in",
    "sign_in",
    "auth",
    "authorize",
    "authenticate",
    "oauth",
    "oauth2",
    "oidc",
    "openid-connect",
    "sso",
    "saml",
    "saml2",
];

fn leads_to_sign_in(location: &[u8]) -> bool {
    let path = location.split(|byte| b"?#".contains(byte)).next();
    let mut segments = path.unwrap_or_default().split(|byte| *byte == b'/');
    segments.any(|segment| {
        let word = segment.split(|byte| b".;".contains(byte)).next();
        let word = word.unwrap_or_default();
        SIGN_IN
            .iter()
            .any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn vectors() -> Value {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../spec/vectors/credentials.json"
        );
        serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
    }

    fn texts(list: &Value) -> Vec<String> {
        let list = list.as_array().unwrap().iter();
        list.map(|text| text.as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_same_headers_count_in_every_language() {
        let names: Vec<&str> = CREDENTIAL_HEADERS.iter().map(HeaderName::as_str).collect();
        assert_eq!(texts(&vectors()["headers"]), names);
    }

    #[test]
    fn counted_credentials_match_the_vectors() {
        for case in vectors()["cases"].as_array().unwrap() {
            let mut headers = HeaderMap::new();
            for line in case["request"].as_array().unwrap() {
                let [name, value] = texts(line).try_into().unwrap();
                let name: HeaderName = name.parse().unwrap();
                headers.append(name, value.parse().unwrap());
            }
            let more = texts(&case["more"]).into_iter();
            let credentials = CredentialRules {
                headers: more.map(|name| name.parse().unwrap()).collect(),
                cookies: texts(&case["cookies"]),
            };
            let counted = credentials.from_headers(&headers);
            let found: Vec<Value> = counted
                .iter()
                .filter(|(_, values)| !values.is_empty())
                .map(|(name, values)| {
                    let values = values.iter().map(|value| String::from_utf8_lossy(value));
                    serde_json::json!([name, values.collect::<Vec<_>>()])
                })
                .collect();
            assert_eq!(Value::Array(found), case["counts"], "{}", case["name"]);
            assert_eq!(
                has_credentials(&counted),
                !case["counts"].as_array().unwrap().is_empty()
            );
        }
    }

    #[test]
    fn sign_in_responses_match_the_vectors() {
        for case in vectors()["answers"].as_array().unwrap() {
            let status = u16::try_from(case["status"].as_u64().unwrap()).unwrap();
            let mut headers = HeaderMap::new();
            if let Some(location) = case["location"].as_str() {
                headers.insert(header::LOCATION, location.parse().unwrap());
            }
            let asks = asks_to_sign_in(StatusCode::from_u16(status).unwrap(), &headers);
            if case["anonymous"] == true {
                assert_eq!(!asks, case["kept"].as_bool().unwrap(), "{case}");
            }
        }
    }
}
