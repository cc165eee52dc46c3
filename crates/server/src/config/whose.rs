//! Whose request it is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::units::Span;

/// Where a tenant or a principal is read from.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Whose {
    /// Where it is read from.
    pub from: From,
    /// The header, where it is a header. Clients must not be able to choose it: whatever is in front has to set it.
    #[schemars(extend("format" = "header"))]
    pub header: Option<String>,
    /// The claim, where it is a JSON web token.
    pub claim: String,
}

impl Whose {
    pub(super) fn new(claim: &str) -> Self {
        Self {
            from: From::None,
            header: None,
            claim: claim.to_owned(),
        }
    }
}

impl Default for Whose {
    fn default() -> Self {
        Self::new("sub")
    }
}

/// Where a tenant or a principal is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum From {
    /// From nowhere: there are none.
    None,
    /// From a header that is set by whatever is in front.
    Header,
    /// From a claim of a JSON web token in the `Authorization` header.
    Jwt,
    /// From the client's certificate: its first DNS name or URI, else its common name after `cn=`.
    Certificate,
}

/// What tells callers apart where `principals` finds nobody.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Credentials {
    /// Headers that count besides `Authorization`, `X-Api-Key` and the others that usually carry a credential.
    #[schemars(extend("items" = {"type": "string", "format": "header"}))]
    pub headers: Vec<String>,
    /// The cookies that count, such as the session's. All of them, where none is named.
    pub cookies: Vec<String>,
}

/// How JSON web tokens are read.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Jwt {
    /// Who checks the signature.
    pub verify: Verify,
    /// The algorithm that tokens must be signed with.
    pub algorithm: Algorithm,
    /// The secret (HS256) or the public key (PEM: RS256, ES256).
    #[schemars(extend("format" = "file"))]
    pub key_file: Option<String>,
    /// Further keys of the same kind: while one takes the place of another, tokens of both are taken.
    #[schemars(extend("items" = {"type": "string", "format": "file"}))]
    pub key_files: Vec<String>,
    /// A file with a set of public keys (JWKS, RFC 7517). A token is checked with the key that its `kid` names.
    #[schemars(extend("format" = "file"))]
    pub jwks_file: Option<String>,
    /// The URL of such a set. It is fetched at start, then as often as `jwks_every` says, and sooner when a token names a key that isn't known. Until it was fetched once, tokens are refused.
    #[schemars(extend("format" = "http-url"))]
    pub jwks_url: Option<String>,
    /// How often `jwks_url` is fetched.
    pub jwks_every: Span,
    /// The issuer that a token must name. Where set, a token without one is refused.
    pub issuer: Option<String>,
    /// The audience that a token must name. Where set, a token without one is refused.
    pub audience: Option<String>,
    /// How far clocks may be apart.
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

/// Who checks the signature of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// Semel does, with `key_file`, `key_files`, `jwks_file` or `jwks_url`.
    Signature,
    /// The service does. Until it has, anybody can claim to be anybody: a forged token can use up another's key, and get a replay of another's answer. Only where something in front has checked it already.
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
