//! The settings that identify tenants and principals: headers, tokens, certificates.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::units::Span;

/// Where a tenant or a principal is read from.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IdentitySettings {
    /// Where to read it from.
    pub from: IdentitySource,
    /// The header, for `from = "header"`. The proxy in front must set it, so that clients cannot.
    #[schemars(extend("format" = "header"))]
    pub header: Option<String>,
    /// The claim of the token, for `from = "jwt"`.
    pub claim: String,
}

impl IdentitySettings {
    pub(super) fn new(claim: &str) -> Self {
        Self {
            from: IdentitySource::None,
            header: None,
            claim: claim.to_owned(),
        }
    }
}

impl Default for IdentitySettings {
    fn default() -> Self {
        Self::new("sub")
    }
}

/// Where a tenant or a principal is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IdentitySource {
    /// There are none.
    None,
    /// A header that the proxy in front sets.
    Header,
    /// The host name of the request, in lower case and without its port. For services whose
    /// customers have a host name each.
    Host,
    /// A claim of the JSON web token in the `Authorization` header.
    Jwt,
    /// The client certificate: its first DNS name or URI, otherwise `cn=` and its common name.
    Certificate,
}

/// What distinguishes callers if there are no principals.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Credentials {
    /// Headers that carry a credential, besides `Authorization`, `X-Api-Key` and other common ones.
    #[schemars(extend("items" = {"type": "string", "format": "header"}))]
    pub headers: Vec<String>,
    /// The cookies that carry a credential, such as the session cookie. An empty list means all
    /// cookies.
    pub cookies: Vec<String>,
}

/// How JSON web tokens are verified.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Jwt {
    /// Who verifies the signature.
    pub verify: Verify,
    /// The required signature algorithm.
    pub algorithm: Algorithm,
    /// A file with the shared secret (HS256) or the public key (PEM: RS256, ES256).
    #[schemars(extend("format" = "file"))]
    pub key_file: Option<String>,
    /// Files with further keys of the same kind, for key rotation.
    #[schemars(extend("items" = {"type": "string", "format": "file"}))]
    pub key_files: Vec<String>,
    /// A file with a JSON Web Key Set (JWKS, RFC 7517). The `kid` of a token selects the key.
    #[schemars(extend("format" = "file"))]
    pub jwks_file: Option<String>,
    /// The URL of a JWKS. It is fetched at start, then every `jwks_every`, and earlier if a token
    /// names an unknown key. Tokens are refused until the first fetch succeeds.
    #[schemars(extend("format" = "http-url"))]
    pub jwks_url: Option<String>,
    /// How often to fetch `jwks_url`.
    pub jwks_every: Span,
    /// The required issuer of a token (`iss`). Without this setting, any issuer is accepted.
    pub issuer: Option<String>,
    /// The required audience of a token (`aud`). Without this setting, any audience is accepted.
    pub audience: Option<String>,
    /// The tolerated clock difference.
    pub leeway: Span,
}

impl Default for Jwt {
    fn default() -> Self {
        Self {
            verify: Verify::Signature,
            algorithm: Algorithm::Rs256,
            key_file: None,
            key_files: Vec::new(),
            jwks_file: None,
            jwks_url: None,
            jwks_every: Span(std::time::Duration::from_secs(600)),
            issuer: None,
            audience: None,
            leeway: Span(std::time::Duration::from_secs(30)),
        }
    }
}

/// Who verifies the signature of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// Semel, with `key_file`, `key_files`, `jwks_file` or `jwks_url`.
    Signature,
    /// The service. Semel trusts unverified tokens, so a forged token can use up another caller's
    /// key and get a replay of its response. Use this only if a proxy in front has verified the
    /// token.
    Upstream,
}

/// The algorithm of a token's signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Algorithm {
    /// HMAC with SHA-256: one shared secret.
    #[serde(rename = "HS256")]
    Hs256,
    /// RSA with SHA-256.
    #[serde(rename = "RS256")]
    Rs256,
    /// ECDSA on P-256.
    #[serde(rename = "ES256")]
    Es256,
}
