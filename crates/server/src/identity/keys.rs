//! The keys that verify tokens: from files, and from a JWKS (RFC 7517).

use jsonwebtoken::DecodingKey;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse};

use super::KeyFileError;
use crate::config::{Algorithm, Jwt};

/// Keys, each with its optional key id (`kid`).
#[derive(Default)]
pub(super) struct Keys(Vec<(Option<String>, DecodingKey)>);

impl Keys {
    /// Reads the key files and the JWKS file of the settings.
    pub(super) fn from_files(jwt: &Jwt) -> Result<Self, KeyFileError> {
        let mut keys = Vec::new();
        for file in jwt.key_file.iter().chain(&jwt.key_files) {
            let unusable = |why: String| KeyFileError(format!("{file}: {why}"));
            let bytes = std::fs::read(file).map_err(|error| unusable(error.to_string()))?;
            let key = match jwt.algorithm {
                Algorithm::Hs256 => shared_secret(&bytes),
                Algorithm::Rs256 => {
                    DecodingKey::from_rsa_pem(&bytes).map_err(|error| error.to_string())
                }
                Algorithm::Es256 => {
                    DecodingKey::from_ec_pem(&bytes).map_err(|error| error.to_string())
                }
            };
            keys.push((None, key.map_err(unusable)?));
        }
        if let Some(file) = &jwt.jwks_file {
            let unusable = |why: String| KeyFileError(format!("{file}: {why}"));
            let bytes = std::fs::read(file).map_err(|error| unusable(error.to_string()))?;
            keys.extend(Self::from_jwks(&bytes, jwt.algorithm).map_err(unusable)?.0);
        }
        Ok(Self(keys))
    }

    /// Reads the keys of a JWKS that fit the algorithm. Others are ignored, as a JWKS may have keys
    /// for other purposes.
    pub(super) fn from_jwks(text: &[u8], algorithm: Algorithm) -> Result<Self, String> {
        let set: JwkSet =
            serde_json::from_slice(text).map_err(|_| "this is not a JWKS".to_owned())?;
        let fitting = set.keys.iter().filter(|key| fits(key, algorithm));
        let keys: Vec<_> = fitting
            .filter_map(|key| {
                let id = key.common.key_id.clone();
                Some((id, DecodingKey::from_jwk(key).ok()?))
            })
            .collect();
        match keys.is_empty() {
            true => Err("it has no key that fits jwt.algorithm".to_owned()),
            false => Ok(Self(keys)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The candidate keys for a token with this `kid`: the key with that id, otherwise the keys
    /// without an id. For a token without a `kid`, all keys.
    pub(super) fn for_id<'a>(
        &'a self,
        id: Option<&'a str>,
    ) -> impl Iterator<Item = &'a DecodingKey> + Clone {
        let is_known =
            id.is_some_and(|id| self.0.iter().any(|(known, _)| known.as_deref() == Some(id)));
        let fitting = self.0.iter().filter(move |(known, _)| match id {
            None => true,
            Some(id) if is_known => known.as_deref() == Some(id),
            Some(_) => known.is_none(),
        });
        fitting.map(|(_, key)| key)
    }
}

fn fits(key: &Jwk, algorithm: Algorithm) -> bool {
    let is_for_signatures = matches!(
        key.common.public_key_use,
        None | Some(PublicKeyUse::Signature)
    );
    let named = key.common.key_algorithm.map(|named| named.to_string());
    let is_of_kind = match (algorithm, &key.algorithm) {
        (Algorithm::Rs256, AlgorithmParameters::RSA(_)) => true,
        (Algorithm::Es256, AlgorithmParameters::EllipticCurve(key)) => {
            key.curve == EllipticCurve::P256
        }
        // A JWKS is public, so it must not contain a shared secret.
        _ => false,
    };
    let name = match algorithm {
        Algorithm::Hs256 => "HS256",
        Algorithm::Rs256 => "RS256",
        Algorithm::Es256 => "ES256",
    };
    is_for_signatures && is_of_kind && named.is_none_or(|named| named == name)
}

/// The size of the digest. A shorter secret could be guessed.
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
