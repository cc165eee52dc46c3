//! JSON web tokens: signature, claims, and what of a token's head is taken.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use http::header;
use http::request::Parts;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{DecodingKey, Header, Validation, dangerous, decode, decode_header};
use serde_json::{Map, Value};
use tokio::sync::Notify;

use super::keys::Keys;
use super::{KeyFileError, crypto};
use crate::config::{Algorithm, Jwt, Verify};

/// Checks tokens.
pub(crate) struct Tokens {
    jwt: Jwt,
    validation: Validation,
    /// Of files: they are read once.
    files: Keys,
    /// Of a URL: as they were fetched last.
    pub(super) fetched: ArcSwap<Keys>,
    /// A token named a key that isn't known.
    pub(super) unknown: Notify,
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

/// The kinds of tokens that say who somebody is. Others, such as a logout token, are signed with the same keys.
const KINDS: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

impl Tokens {
    pub(super) fn new(jwt: &Jwt) -> Result<Self, KeyFileError> {
        crypto::install();
        let files = Keys::of_files(jwt)?;
        if jwt.verify == Verify::Signature && files.is_empty() && jwt.jwks_url.is_none() {
            return Err(KeyFileError("there is none".to_owned()));
        }
        Ok(Self {
            validation: validation(jwt),
            jwt: jwt.clone(),
            files,
            fetched: ArcSwap::default(),
            unknown: Notify::new(),
        })
    }

    pub(super) fn settings(&self) -> &Jwt {
        &self.jwt
    }

    /// The claims of the request's token. Looked at once for each request.
    pub(super) fn read(&self, parts: &Parts) -> Result<Map<String, Value>, NoToken> {
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
            self.check(token)
        };
        match parts.extensions.get::<Token>() {
            Some(token) => token.0.get_or_init(look).clone(),
            None => look(),
        }
    }

    fn check(&self, token: &str) -> Result<Map<String, Value>, NoToken> {
        let head = decode_header(token).map_err(|_| NoToken::Invalid)?;
        if !is_usable(&head) {
            return Err(NoToken::Invalid);
        }
        let claims = match self.jwt.verify {
            Verify::Signature => self.signed(token, head.kid.as_deref())?,
            Verify::Upstream => {
                let read = dangerous::insecure_decode(token);
                read.map_err(|_| NoToken::Invalid)?.claims
            }
        };
        fits(&self.jwt, &claims)?;
        Ok(claims)
    }

    /// The claims of a token that one of our keys has signed.
    fn signed(&self, token: &str, id: Option<&str>) -> Result<Map<String, Value>, NoToken> {
        let fetched = self.fetched.load();
        let mut keys = self.files.for_id(id).chain(fetched.for_id(id)).peekable();
        if keys.peek().is_none() {
            self.unknown.notify_one();
        }
        let mut why = NoToken::Invalid;
        for key in keys {
            match self.decoded(token, key) {
                Ok(claims) => return Ok(claims),
                Err(ErrorKind::ExpiredSignature) => why = NoToken::Expired,
                Err(_) => {}
            }
        }
        Err(why)
    }

    fn decoded(&self, token: &str, key: &DecodingKey) -> Result<Map<String, Value>, ErrorKind> {
        let decoded = decode(token, key, &self.validation);
        decoded
            .map(|data| data.claims)
            .map_err(|error| error.into_kind())
    }
}

fn validation(jwt: &Jwt) -> Validation {
    let mut validation = Validation::new(match jwt.algorithm {
        Algorithm::Hs256 => jsonwebtoken::Algorithm::HS256,
        Algorithm::Rs256 => jsonwebtoken::Algorithm::RS256,
        Algorithm::Es256 => jsonwebtoken::Algorithm::ES256,
    });
    validation.leeway = jwt.leeway.0.as_secs();
    validation.validate_nbf = true;
    let mut required = vec!["exp"];
    match &jwt.audience {
        Some(audience) => {
            validation.set_audience(&[audience]);
            required.push("aud");
        }
        None => validation.validate_aud = false,
    }
    if let Some(issuer) = &jwt.issuer {
        validation.set_issuer(&[issuer]);
        required.push("iss");
    }
    validation.set_required_spec_claims(&required);
    validation
}

/// An extension that must be understood (`crit`) is one that isn't, and other kinds of tokens are for others.
fn is_usable(head: &Header) -> bool {
    let kind = head.typ.as_deref().map(str::to_ascii_lowercase);
    head.crit.is_none() && kind.is_none_or(|kind| KINDS.contains(&kind.as_str()))
}

/// Whether the claims are of the kinds that they have to be, and say what they have to: whoever checks the signature.
fn fits(jwt: &Jwt, claims: &Map<String, Value>) -> Result<(), NoToken> {
    let now = jsonwebtoken::get_current_timestamp();
    let leeway = jwt.leeway.0.as_secs();
    let seconds = |name: &str| claims.get(name).map(Value::as_f64);
    #[expect(
        clippy::cast_precision_loss,
        reason = "seconds since 1970 are exact as a double"
    )]
    match (seconds("exp"), seconds("nbf")) {
        (Some(Some(end)), _) if end < now.saturating_sub(leeway) as f64 => {
            return Err(NoToken::Expired);
        }
        (Some(Some(_)), None) => {}
        (Some(Some(_)), Some(Some(begin))) if begin <= now.saturating_add(leeway) as f64 => {}
        _ => return Err(NoToken::Invalid),
    }
    let names = |claim: &str, wanted: &str| match claims.get(claim) {
        Some(Value::String(one)) => one == wanted,
        Some(Value::Array(several)) if claim == "aud" => several.iter().any(|one| one == wanted),
        _ => false,
    };
    let is_named =
        |claim: &str, wanted: Option<&String>| wanted.is_none_or(|wanted| names(claim, wanted));
    match is_named("aud", jwt.audience.as_ref()) && is_named("iss", jwt.issuer.as_ref()) {
        true => Ok(()),
        false => Err(NoToken::Invalid),
    }
}
