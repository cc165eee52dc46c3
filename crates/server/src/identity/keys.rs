//! The keys that tokens may be signed with: files, and sets of keys (RFC 7517).

use jsonwebtoken::DecodingKey;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse};

use super::KeyFileError;
use crate::config::{Algorithm, Jwt};

/// Some keys, each with the id that tokens name it by, where it has one.
#[derive(Default)]
pub(super) struct Keys(Vec<(Option<String>, DecodingKey)>);

impl Keys {
    /// Those of all files that the settings name.
    pub(super) fn of_files(jwt: &Jwt) -> Result<Self, KeyFileError> {
        let mut keys = Vec::new();
        for file in jwt.key_file.iter().chain(&jwt.key_files) {
            let broken = |why: String| KeyFileError(format!("{file}: {why}"));
            let bytes = std::fs::read(file).map_err(|error| broken(error.to_string()))?;
            let key = match jwt.algorithm {
                Algorithm::Hs256 => shared_secret(&bytes),
                Algorithm::Rs256 => {
                    DecodingKey::from_rsa_pem(&bytes).map_err(|error| error.to_string())
                }
                Algorithm::Es256 => {
                    DecodingKey::from_ec_pem(&bytes).map_err(|error| error.to_string())
                }
            };
            keys.push((None, key.map_err(broken)?));
        }
        if let Some(file) = &jwt.jwks_file {
            let broken = |why: String| KeyFileError(format!("{file}: {why}"));
            let bytes = std::fs::read(file).map_err(|error| broken(error.to_string()))?;
            keys.extend(Self::of_set(&bytes, jwt.algorithm).map_err(broken)?.0);
        }
        Ok(Self(keys))
    }

    /// Those of a set that fit the algorithm. Others are none of ours: a provider's set has keys for other purposes too.
    pub(super) fn of_set(text: &[u8], algorithm: Algorithm) -> Result<Self, String> {
        let set: JwkSet =
            serde_json::from_slice(text).map_err(|_| "this is no set of keys".to_owned())?;
        let fitting = set.keys.iter().filter(|key| fits(key, algorithm));
        let keys: Vec<_> = fitting
            .filter_map(|key| {
                let id = key.common.key_id.clone();
                Some((id, DecodingKey::from_jwk(key).ok()?))
            })
            .collect();
        match keys.is_empty() {
            true => Err("there is no key in it that fits jwt.algorithm".to_owned()),
            false => Ok(Self(keys)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that a token with this `kid` may be signed with: the one of that name, else those without a name. A token
    /// that names none may be signed with any.
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
        // A shared secret doesn't belong into a set that is meant to be published.
        _ => false,
    };
    let name = match algorithm {
        Algorithm::Hs256 => "HS256",
        Algorithm::Rs256 => "RS256",
        Algorithm::Es256 => "ES256",
    };
    is_for_signatures && is_of_kind && named.is_none_or(|named| named == name)
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
