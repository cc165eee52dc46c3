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
    /// From the client's certificate: its first DNS name or URI, else its common name.
    Certificate,
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
    /// The issuer that a token must name, where set.
    pub issuer: Option<String>,
    /// The audience that a token must name, where set.
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
    /// Semel does, with `key_file`.
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
