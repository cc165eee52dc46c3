//! Whose request it is: tenants and principals from headers, tokens and certificates.

use std::sync::{Arc, OnceLock};

use http::header;
use http::request::Parts;
use jsonwebtoken::{DecodingKey, Validation};
use serde_json::{Map, Value};

use crate::config::{Algorithm, Config, From, Jwt, Verify, Whose};
use crate::listener::Peer;

/// Finds a tenant or a principal in a request's head.
pub(crate) type Find = Arc<dyn Fn(&Parts) -> Option<String> + Send + Sync>;

/// The key of tokens can't be used.
#[derive(Debug, thiserror::Error)]
#[error("jwt.key_file: {0}")]
pub struct KeyFileError(String);

/// Checks tokens.
pub(crate) struct Tokens {
    key: DecodingKey,
    validation: Validation,
}

/// What a request's token turned out to be: found out once, when somebody asks.
#[derive(Clone, Default)]
pub(crate) struct Token(Arc<OnceLock<Result<Map<String, Value>, NoToken>>>);

/// Why there is no token to go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoToken {
    /// The request has none.
    Absent,
    /// It is out of date.
    Expired,
    /// It can't be read, its signature is wrong, or it is for somebody else.
    Invalid,
}

impl Token {
    /// Why there is none, where somebody asked and there was none.
    pub(crate) fn failure(&self) -> Option<NoToken> {
        self.0.get().and_then(|found| found.as_ref().err().copied())
    }
}

/// A principal that no namespace takes: a token that is there and wrong is refused, never treated as no
/// token at all.
const UNUSABLE: &str = "\0";

/// How tenants and principals are found.
pub(crate) struct Finders {
    pub(crate) tenant: Option<Find>,
    pub(crate) principal: Option<Find>,
}

impl Finders {
    pub(crate) fn new(config: &Config) -> Result<Self, KeyFileError> {
        let uses_tokens =
            [&config.tenants, &config.principals].map(|whose| whose.from == From::Jwt);
        let tokens = match uses_tokens.contains(&true) {
            true => Some(Arc::new(Tokens::new(&config.jwt)?)),
            false => None,
        };
        Ok(Self {
            tenant: find(&config.tenants, tokens.as_ref(), false),
            principal: find(&config.principals, tokens.as_ref(), true),
        })
    }
}

/// Tenant and principal of a request's head, as these settings find them: for `fuzz/`.
///
/// # Errors
/// Where the tokens' key can't be used.
#[doc(hidden)]
pub fn whose(
    config: &Config,
) -> Result<impl Fn(&Parts) -> [Option<String>; 2] + Send + Sync + use<>, KeyFileError> {
    let Finders { tenant, principal } = Finders::new(config)?;
    Ok(move |parts: &Parts| {
        [&tenant, &principal].map(|find| find.as_ref().and_then(|find| find(parts)))
    })
}

fn find(whose: &Whose, tokens: Option<&Arc<Tokens>>, is_principal: bool) -> Option<Find> {
    match whose.from {
        From::None => None,
        From::Header => {
            let name = whose.header.clone()?;
            Some(Arc::new(move |parts: &Parts| {
                let mut lines = parts.headers.get_all(&name).iter();
                // Two are as good as none: which of them is meant?
                match (lines.next(), lines.next()) {
                    (Some(one), None) => one.to_str().ok().map(str::to_owned),
                    _ => None,
                }
            }))
        }
        From::Certificate => Some(Arc::new(|parts: &Parts| {
            let peer = parts.extensions.get::<Peer>()?;
            peer.certificate_name.as_deref().map(str::to_owned)
        })),
        From::Jwt => {
            let (tokens, claim) = (Arc::clone(tokens?), whose.claim.clone());
            Some(Arc::new(move |parts: &Parts| match tokens.read(parts) {
                Ok(claims) => as_text(claims.get(&claim)?),
                Err(NoToken::Absent) => None,
                Err(_) => is_principal.then(|| UNUSABLE.to_owned()),
            }))
        }
    }
}

fn as_text(claim: &Value) -> Option<String> {
    match claim {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

impl Tokens {
    fn new(jwt: &Jwt) -> Result<Self, KeyFileError> {
        let algorithm = match jwt.algorithm {
            Algorithm::Hs256 => jsonwebtoken::Algorithm::HS256,
            Algorithm::Rs256 => jsonwebtoken::Algorithm::RS256,
            Algorithm::Es256 => jsonwebtoken::Algorithm::ES256,
        };
        let mut validation = Validation::new(algorithm);
        validation.leeway = jwt.leeway.0.as_secs();
        validation.validate_nbf = true;
        match &jwt.audience {
            Some(audience) => validation.set_audience(&[audience]),
            None => validation.validate_aud = false,
        }
        if let Some(issuer) = &jwt.issuer {
            validation.set_issuer(&[issuer]);
        }
        let key = match (jwt.verify, &jwt.key_file) {
            (Verify::Upstream, _) => {
                validation.insecure_disable_signature_validation();
                DecodingKey::from_secret(b"")
            }
            (Verify::Signature, None) => return Err(KeyFileError("there is none".to_owned())),
            (Verify::Signature, Some(file)) => {
                let bytes = std::fs::read(file)
                    .map_err(|error| KeyFileError(format!("{file}: {error}")))?;
                let key = match jwt.algorithm {
                    Algorithm::Hs256 => shared_secret(&bytes),
                    Algorithm::Rs256 => {
                        DecodingKey::from_rsa_pem(&bytes).map_err(|error| error.to_string())
                    }
                    Algorithm::Es256 => {
                        DecodingKey::from_ec_pem(&bytes).map_err(|error| error.to_string())
                    }
                };
                key.map_err(|error| KeyFileError(format!("{file}: {error}")))?
            }
        };
        Ok(Self { key, validation })
    }

    /// The claims of the request's token. Looked at once for each request.
    fn read(&self, parts: &Parts) -> Result<Map<String, Value>, NoToken> {
        let look = || {
            let mut lines = parts.headers.get_all(header::AUTHORIZATION).iter();
            let (Some(line), None) = (lines.next(), lines.next()) else {
                return Err(NoToken::Absent);
            };
            let text = line.to_str().map_err(|_| NoToken::Invalid)?;
            let token = match text.split_once(' ') {
                Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
                _ => return Err(NoToken::Absent),
            };
            let decoded =
                jsonwebtoken::decode::<Map<String, Value>>(token, &self.key, &self.validation);
            decoded
                .map(|data| data.claims)
                .map_err(|error| match error.kind() {
                    jsonwebtoken::errors::ErrorKind::ExpiredSignature => NoToken::Expired,
                    _ => NoToken::Invalid,
                })
        };
        match parts.extensions.get::<Token>() {
            Some(token) => token.0.get_or_init(look).clone(),
            None => look(),
        }
    }
}

/// As many bytes as the digest has: fewer can be guessed.
const MIN_SECRET: usize = 32;

fn shared_secret(bytes: &[u8]) -> Result<DecodingKey, String> {
    let secret = bytes.trim_ascii_end();
    if secret.len() < MIN_SECRET {
        return Err(format!(
            "the secret has {} bytes; HS256 needs at least {MIN_SECRET}",
            secret.len()
        ));
    }
    Ok(DecodingKey::from_secret(secret))
}
