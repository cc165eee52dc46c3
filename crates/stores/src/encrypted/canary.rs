//! The canaries of encryption keys: a node with a wrong key learns it before it serves.
//!
//! Every key that a store was ever used with has a record of its own, with a digest of the key as its fingerprint. A node
//! whose key has the same id and another digest does not start, nor does one of whose keys the store knows none. The records
//! keep nothing secret and are not encrypted, so that any node can read them, whichever keys it has.

use std::time::Duration;

use semel_core::canary::SCOPE;
use semel_core::store::{Store, StoreAdmin};
use semel_core::{
    Answer, Claim, ClaimTerms, Claimed, CrashPolicy, Env, Fingerprint, Identity, Key, Namespace,
    Secret, Settlement, StoreError, Token,
};

use super::keyring::Keyring;

/// Why a node must not start, or not use new keys.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyCanaryError {
    /// The store is used with another key of that id.
    #[error(
        "this store is used with another encryption key {0} than this node's; give every node the same keys"
    )]
    OtherKey(u32),
    /// The store is used with encryption keys, none of which this node has.
    #[error(
        "this store is used with encryption keys, and this node has none of them; give it the keys of the other nodes"
    )]
    NoKnownKey,
    /// It was opened without encryption.
    #[error("records are not encrypted; keys can be changed only where there were some at start")]
    NotEncrypted,
    /// The store gave no answer.
    #[error("could not read from the store which encryption keys it is used with")]
    Store(#[from] StoreError),
}

/// Checks the keys against the store's canaries, and adds canaries for new keys. At start, and before every reload of keys.
/// `store` is the store without encryption.
///
/// # Errors
/// [`KeyCanaryError`] says why these keys must not be used.
pub async fn check(
    store: &dyn StoreAdmin,
    env: &Env,
    keys: &Keyring,
    environment: &str,
    secret_id: u16,
) -> Result<(), KeyCanaryError> {
    check_read_only(store, env, keys, environment).await?;
    let Some(anchor) = anchor(env, environment, secret_id).filter(|_| !keys.keys().is_empty())
    else {
        return Ok(());
    };
    for key in keys.keys() {
        let Some(claim) = claim_of(env, keys, key.id(), environment, secret_id) else {
            continue;
        };
        if !write(store, &claim).await? {
            return Err(KeyCanaryError::OtherKey(key.id()));
        }
    }
    write(store, &anchor).await?;
    Ok(())
}

/// The same without writing, for a tool that only manages records.
///
/// # Errors
/// [`KeyCanaryError`] says why these keys must not be used.
pub async fn check_read_only(
    store: &dyn Store,
    env: &Env,
    keys: &Keyring,
    environment: &str,
) -> Result<(), KeyCanaryError> {
    let mut is_known = false;
    for key in keys.keys() {
        let Some(claim) = claim_of(env, keys, key.id(), environment, 0) else {
            continue;
        };
        if let Some(record) = store.read(&claim.identity).await? {
            if record.fingerprint != claim.fingerprint {
                return Err(KeyCanaryError::OtherKey(key.id()));
            }
            is_known = true;
        }
    }
    if is_known || keys.keys().is_empty() {
        return Ok(());
    }
    let Some(anchor) = anchor(env, environment, 0) else {
        return Ok(());
    };
    match store.read(&anchor.identity).await? {
        Some(_) => Err(KeyCanaryError::NoKnownKey),
        None => Ok(()),
    }
}

/// Makes sure that the record of `claim` is there. `false` if it is there with another fingerprint.
async fn write(store: &dyn StoreAdmin, claim: &Claim) -> Result<bool, StoreError> {
    match store.claim(claim).await? {
        Claimed::Mismatch(_) => Ok(false),
        Claimed::Won(grant) => {
            let settlement = Settlement::Complete(Answer::from_body("").into());
            store.settle(&grant, &settlement).await?;
            Ok(true)
        }
        Claimed::Busy(_) | Claimed::Replay(_) | Claimed::InDoubt(_) => Ok(true),
    }
}

fn claim_of(
    env: &Env,
    keys: &Keyring,
    id: u32,
    environment: &str,
    secret_id: u16,
) -> Option<Claim> {
    let fingerprint = keys.get(id)?.fingerprint();
    let name = format!("encryption-{id}");
    claim(env, &name, fingerprint, environment, secret_id)
}

/// The record that is there once any key was used.
fn anchor(env: &Env, environment: &str, secret_id: u16) -> Option<Claim> {
    let fingerprint = Fingerprint::builder(&Secret::none()).part(b"encryption");
    claim(
        env,
        "encryption",
        fingerprint.finish(),
        environment,
        secret_id,
    )
}

/// `None` only for an invalid environment.
fn claim(
    env: &Env,
    name: &str,
    fingerprint: Fingerprint,
    environment: &str,
    secret_id: u16,
) -> Option<Claim> {
    let namespace = Namespace::new(environment, "", SCOPE).ok()?;
    let key = Key::parse(name).ok()?;
    let (lease, retention) = (Duration::from_secs(10), ClaimTerms::MAX_RETENTION);
    Some(Claim {
        retry: false,
        // The same identity whatever the secret, so that different keys meet.
        identity: Identity::new(&Secret::none(), &namespace, &key),
        fingerprint,
        token: Token(env.entropy.next_u128()),
        terms: ClaimTerms::new(lease, retention, CrashPolicy::Takeover, u16::MAX).ok()?,
        secret_id,
        hint: key.hint(),
        namespace,
    })
}
