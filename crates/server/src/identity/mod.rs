//! Whose request it is: tenants and principals from headers, tokens and certificates.

mod crypto;
mod fetch;
mod keys;
mod tokens;

use std::sync::Arc;

use http::request::Parts;
use semel::core::Env;
use serde_json::Value;

use crate::config::{Config, From, Whose};
use crate::listener::Peer;
use crate::tls::TlsError;
use tokens::Tokens;
pub(crate) use tokens::{NoToken, Token};

/// Finds a tenant or a principal in a request's head.
pub(crate) type Find = Arc<dyn Fn(&Parts) -> Option<String> + Send + Sync>;

/// The key of tokens can't be used.
#[derive(Debug, thiserror::Error)]
#[error("jwt.key_file: {0}")]
pub struct KeyFileError(String);

/// A principal that no namespace takes: a token that is there and wrong is refused, never treated as no
/// token at all.
const UNUSABLE: &str = "\0";

/// How tenants and principals are found.
pub(crate) struct Finders {
    pub(crate) tenant: Option<Find>,
    pub(crate) principal: Option<Find>,
    tokens: Option<Arc<Tokens>>,
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
            tokens,
        })
    }

    /// Fetches the keys of tokens that are at a URL, for as long as these are used.
    pub(crate) fn fetch_keys(&self, env: &Env) -> Result<(), TlsError> {
        match &self.tokens {
            Some(tokens) => fetch::start(tokens, env),
            None => Ok(()),
        }
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
    let Finders {
        tenant, principal, ..
    } = Finders::new(config)?;
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

/// A claim as the name of somebody. A number is not the text with the same digits: `7` is `#7`, and a text that begins
/// with `#` gets another one.
fn as_text(claim: &Value) -> Option<String> {
    match claim {
        Value::String(text) if text.starts_with('#') => Some(format!("#{text}")),
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(format!("#{number}")),
        _ => None,
    }
}
