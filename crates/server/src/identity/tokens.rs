//! Verification of JSON web tokens: signature, claims and header.

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

/// Verifies tokens with the keys of files and of a JWKS.
pub(crate) struct TokenVerifier {
    jwt: Jwt,
    validation: Validation,
    /// The keys of files, which are read once.
    files: Keys,
    /// The keys of the JWKS URL, from the last fetch.
    pub(super) fetched: ArcSwap<Keys>,
    /// Signals that a token named an unknown key.
    pub(super) unknown: Notify,
}

/// The token of a request, which is verified at most once.
#[derive(Clone, Default)]
pub(crate) struct RequestToken(Arc<OnceLock<Result<Map<String, Value>, TokenProblem>>>);

/// Why a request has no valid token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenProblem {
    /// The request has no token.
    Absent,
    /// The token has expired.
    Expired,
    /// The token is malformed, its signature is wrong, or its claims do not match.
    Invalid,
}

impl RequestToken {
    /// The problem of the token, if it was verified and is not valid.
    pub(crate) fn problem(&self) -> Option<TokenProblem> {
        self.0.get().and_then(|found| found.as_ref().err().copied())
    }
}

/// The accepted `typ` values. Other tokens, such as logout tokens, are signed with the same keys.
const ACCEPTED_TYPES: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

impl TokenVerifier {
    pub(super) fn new(jwt: &Jwt) -> Result<Self, KeyFileError> {
        crypto::install();
        let files = Keys::from_files(jwt)?;
        if jwt.verify == Verify::Signature && files.is_empty() && jwt.jwks_url.is_none() {
            return Err(KeyFileError("no key is set".to_owned()));
        }
        Ok(Self {
            validation: build_validation(jwt),
            jwt: jwt.clone(),
            files,
            fetched: ArcSwap::default(),
            unknown: Notify::new(),
        })
    }

    pub(super) fn settings(&self) -> &Jwt {
        &self.jwt
    }

    /// The claims of the request's token, which is verified once for each request.
    pub(super) fn read(&self, parts: &Parts) -> Result<Map<String, Value>, TokenProblem> {
        let verify = || {
            let mut lines = parts.headers.get_all(header::AUTHORIZATION).iter();
            let (Some(line), None) = (lines.next(), lines.next()) else {
                return Err(TokenProblem::Absent);
            };
            let text = line.to_str().map_err(|_| TokenProblem::Invalid)?;
            let token = match text.split_once(' ') {
                Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
                _ => return Err(TokenProblem::Absent),
            };
            self.verify(token)
        };
        match parts.extensions.get::<RequestToken>() {
            Some(token) => token.0.get_or_init(verify).clone(),
            None => verify(),
        }
    }

    fn verify(&self, token: &str) -> Result<Map<String, Value>, TokenProblem> {
        let head = decode_header(token).map_err(|_| TokenProblem::Invalid)?;
        if !is_supported(&head) {
            return Err(TokenProblem::Invalid);
        }
        let claims = match self.jwt.verify {
            Verify::Signature => self.verify_signature(token, head.kid.as_deref())?,
            Verify::Upstream => {
                let read = dangerous::insecure_decode(token);
                read.map_err(|_| TokenProblem::Invalid)?.claims
            }
        };
        check_claims(&self.jwt, &claims)?;
        Ok(claims)
    }

    /// The claims of a token that one of the keys has signed.
    fn verify_signature(
        &self,
        token: &str,
        id: Option<&str>,
    ) -> Result<Map<String, Value>, TokenProblem> {
        let fetched = self.fetched.load();
        let mut keys = self.files.for_id(id).chain(fetched.for_id(id)).peekable();
        if keys.peek().is_none() {
            self.unknown.notify_one();
        }
        let mut why = TokenProblem::Invalid;
        for key in keys {
            match self.decode(token, key) {
                Ok(claims) => return Ok(claims),
                Err(ErrorKind::ExpiredSignature) => why = TokenProblem::Expired,
                Err(_) => {}
            }
        }
        Err(why)
    }

    fn decode(&self, token: &str, key: &DecodingKey) -> Result<Map<String, Value>, ErrorKind> {
        let decoded = decode(token, key, &self.validation);
        decoded
            .map(|data| data.claims)
            .map_err(|error| error.into_kind())
    }
}

fn build_validation(jwt: &Jwt) -> Validation {
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

/// Whether the header has an accepted type and no critical extension (`crit`), as none is
/// supported.
fn is_supported(head: &Header) -> bool {
    let kind = head.typ.as_deref().map(str::to_ascii_lowercase);
    head.crit.is_none() && kind.is_none_or(|kind| ACCEPTED_TYPES.contains(&kind.as_str()))
}

/// Checks type, time, audience and issuer of the claims, also if the service verifies the
/// signature.
fn check_claims(jwt: &Jwt, claims: &Map<String, Value>) -> Result<(), TokenProblem> {
    let now = jsonwebtoken::get_current_timestamp();
    let leeway = jwt.leeway.0.as_secs();
    let seconds = |name: &str| claims.get(name).map(Value::as_f64);
    #[expect(
        clippy::cast_precision_loss,
        reason = "seconds since 1970 are exact as a double"
    )]
    match (seconds("exp"), seconds("nbf")) {
        (Some(Some(end)), _) if end < now.saturating_sub(leeway) as f64 => {
            return Err(TokenProblem::Expired);
        }
        (Some(Some(_)), None) => {}
        (Some(Some(_)), Some(Some(begin))) if begin <= now.saturating_add(leeway) as f64 => {}
        _ => return Err(TokenProblem::Invalid),
    }
    let matches = |claim: &str, wanted: &str| match claims.get(claim) {
        Some(Value::String(one)) => one == wanted,
        Some(Value::Array(several)) if claim == "aud" => several.iter().any(|one| one == wanted),
        _ => false,
    };
    let is_expected =
        |claim: &str, wanted: Option<&String>| wanted.is_none_or(|wanted| matches(claim, wanted));
    match is_expected("aud", jwt.audience.as_ref()) && is_expected("iss", jwt.issuer.as_ref()) {
        true => Ok(()),
        false => Err(TokenProblem::Invalid),
    }
}
