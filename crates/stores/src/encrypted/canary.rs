//! The canaries of encryption keys: a node with a wrong key learns it before it serves.
//!
//! Every key that a store was ever used with has a record of its own, with a digest of the key as
//! its fingerprint. A node whose key has the same id and another digest does not start, nor does
//! one of whose keys the store knows none. The records keep nothing secret and are not encrypted,
//! so that any node can read them, whichever keys it has.

use std::time::Duration;

use semel_core::canary::SCOPE;
use semel_core::store::{Query, Store, StoreAdmin};
use semel_core::{
    Answer, Claim, ClaimTerms, Claimed, CrashPolicy, Env, Fingerprint, Identity, Key, Namespace,
    Record, Secret, Settlement, State, StoreError, Token,
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
    /// The store is used with encryption keys, and this node has no key at all.
    #[error(
        "records of this store are encrypted, and this node has no encryption key; give it the keys of the other nodes"
    )]
    NoKey,
    /// Records would be written in plain text, and refused when they are read.
    #[error(
        "records in plain text are refused, and no encryption key is there to write with; name the key to write with, or accept plain text"
    )]
    PlainRefused,
    /// Records are kept in two stores, which would create different data keys.
    #[error(
        "data keys are created in one store, and records are kept in two; leave data keys off until the move is done"
    )]
    DataKeysOfTwoStores,
    /// It was opened without encryption.
    #[error("records are not encrypted; keys can be changed only where there were some at start")]
    NotEncrypted,
    /// The store gave no answer.
    #[error("could not read from the store which encryption keys it is used with")]
    Store(#[from] StoreError),
}

/// Checks the keys against the store's canaries, and adds canaries for new keys. At start, and
/// before every reload of keys. `store` is the store without encryption.
///
/// Without a key to write with, nothing is added: such a node leaves the store open to nodes
/// without keys.
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
    let Some(anchor) = anchor(env, environment, secret_id).filter(|_| keys.write_key().is_some())
    else {
        return Ok(());
    };
    // The anchor decides which node is the first: any other waits for its canaries, and must have
    // one of its keys.
    loop {
        match store.claim(&anchor).await? {
            Claimed::Won(grant) => {
                let added = add_all(store, env, keys, environment, secret_id).await;
                let settlement = match added {
                    Ok(()) => Settlement::Complete(Answer::from_body("").into()),
                    Err(_) => Settlement::Release,
                };
                store.settle(&grant, &settlement).await?;
                return added;
            }
            Claimed::Busy(busy) => {
                let pause = busy.retry_after.clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
                env.clock.sleep(pause).await;
            }
            Claimed::Replay(_) | Claimed::InDoubt(_) | Claimed::Mismatch(_) => break,
        }
    }
    check_read_only(store, env, keys, environment).await?;
    add_all(store, env, keys, environment, secret_id).await
}

/// How long a node waits between two looks for the canaries of the first one.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Adds the canaries that are missing.
async fn add_all(
    store: &dyn StoreAdmin,
    env: &Env,
    keys: &Keyring,
    environment: &str,
    secret_id: u16,
) -> Result<(), KeyCanaryError> {
    for key in keys.keys() {
        let Some(claim) = claim_of(env, keys, key.id(), environment, secret_id) else {
            continue;
        };
        if !write(store, &claim).await? {
            return Err(KeyCanaryError::OtherKey(key.id()));
        }
    }
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
    if is_known {
        return Ok(());
    }
    let Some(anchor) = anchor(env, environment, 0) else {
        return Ok(());
    };
    // While it is running, the first node adds its canaries.
    match store.read(&anchor.identity).await? {
        Some(record) if record.state == State::Completed => Err(match keys.keys() {
            [] => KeyCanaryError::NoKey,
            _ => KeyCanaryError::NoKnownKey,
        }),
        Some(_) | None => Ok(()),
    }
}

/// What was forgotten of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgotten {
    /// The store is used with other keys.
    Key,
    /// It was the last key: nodes without keys, or with any key, may use the store again.
    LastKey,
    /// The store was never used with a key of that id.
    Nothing,
}

/// Removes the canary of a key that is lost, or that no record needs. Another key may then have its
/// id. `store` is the store without encryption.
///
/// # Errors
/// If the store gives no answer. The same call may be made again.
pub async fn forget(
    store: &dyn StoreAdmin,
    env: &Env,
    environment: &str,
    id: u32,
) -> Result<Forgotten, KeyCanaryError> {
    let (canary, anchor) = (
        claim(env, &canary_name(id), fingerprint_of(b""), environment, 0),
        anchor(env, environment, 0),
    );
    let (Some(canary), Some(anchor)) = (canary, anchor) else {
        return Ok(Forgotten::Nothing);
    };
    let was_there = store.delete(&canary.identity).await?;
    let mut query = Query::default()
        .with_environment(environment.to_owned())
        .with_scope(SCOPE.to_owned());
    loop {
        let page = store.list(&query).await?;
        // The other canaries are of the secret.
        let is_key = |record: &Record| record.hint.as_str().starts_with("encryp");
        let others = page.records.iter();
        if others
            .filter(|(identity, _)| *identity != anchor.identity)
            .any(|(_, record)| is_key(record))
        {
            return Ok(match was_there {
                true => Forgotten::Key,
                false => Forgotten::Nothing,
            });
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    let was_anchored = store.delete(&anchor.identity).await?;
    Ok(match was_there || was_anchored {
        true => Forgotten::LastKey,
        false => Forgotten::Nothing,
    })
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
    claim(env, &canary_name(id), fingerprint, environment, secret_id)
}

fn canary_name(id: u32) -> String {
    format!("encryption-{id}")
}

fn fingerprint_of(part: &[u8]) -> Fingerprint {
    Fingerprint::builder(&Secret::none()).part(part).finish()
}

/// The record that is there once any key was used.
fn anchor(env: &Env, environment: &str, secret_id: u16) -> Option<Claim> {
    let fingerprint = fingerprint_of(b"encryption");
    claim(env, "encryption", fingerprint, environment, secret_id)
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
