//! The canary record: detects nodes with different secrets before they serve (P41).
//!
//! Such nodes would silently split the keyspace, and each would run what the other has already run.
//! So every node claims one well-known key with a fingerprint of its secret, and doesn't start if
//! another secret was first.

use std::time::Duration;

use crate::claim::{Claim, ClaimTerms, Claimed, Settlement};
use crate::env::Env;
use crate::error::StoreError;
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::key::Key;
use crate::namespace::Namespace;
use crate::record::Record;
use crate::record::{Answer, CrashPolicy, Token};
use crate::secret::Secret;
use crate::store::{Query, Store, StoreAdmin};

/// The scope of the canary's record.
pub const SCOPE: &str = "semel.canary";

/// Whether `record` is a canary. It keeps nothing secret, so it is never encrypted.
#[must_use]
pub fn is_canary(record: &Record) -> bool {
    let is_empty = |answer: &Answer| answer.head.is_empty() && answer.body.held_bytes() == 0;
    record.namespace.scope() == SCOPE
        && record.checkpoint.is_empty()
        && record.answer.as_deref().is_none_or(is_empty)
}

/// How many pages of records are read if there is no canary.
const PAGES: usize = 16;

/// Why a node must not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CanaryError {
    /// The store was first used with another secret.
    #[error(
        "this store is used with another secret than this node's (id {id}); \
         give every node the same secret, or use another store"
    )]
    OtherSecret {
        /// The id of this node's secret.
        id: u16,
    },
    /// The store gave no answer.
    #[error("could not read from the store which secret it is used with")]
    Store(#[from] StoreError),
}

/// Checks that this store is used with `secret` and no other, for one environment.
///
/// If there is no canary, the first node writes it, unless the environment already has records
/// under the id of another secret: then somebody removed the canary.
///
/// # Errors
/// [`CanaryError`] says why the node must not start.
pub async fn check(
    store: &dyn StoreAdmin,
    env: &Env,
    secret: &Secret,
    environment: &str,
) -> Result<(), CanaryError> {
    let Some(claim) = claim(env, secret, environment) else {
        return Ok(());
    };
    let other = CanaryError::OtherSecret { id: secret.id() };
    let exists = store.read(&claim.identity).await?.is_some();
    if !exists && has_other_secret(store, secret, environment).await? {
        return Err(other);
    }
    match store.claim(&claim).await? {
        Claimed::Mismatch(_) => Err(other),
        Claimed::Won(grant) => {
            let settlement = Settlement::Complete(Answer::from_body("").into());
            store.settle(&grant, &settlement).await?;
            Ok(())
        }
        // Another node with the same secret has claimed it.
        Claimed::Busy(_) | Claimed::Replay(_) | Claimed::InDoubt(_) => Ok(()),
    }
}

/// Whether the first records of the environment were all made with another secret.
async fn has_other_secret(
    store: &dyn StoreAdmin,
    secret: &Secret,
    environment: &str,
) -> Result<bool, StoreError> {
    let mut query = Query {
        environment: Some(environment.to_owned()),
        ..Query::default()
    };
    let mut found = false;
    for _ in 0..PAGES {
        let page = store.list(&query).await?;
        for (_, record) in &page.records {
            if record.secret_id == secret.id() {
                return Ok(false);
            }
            found = true;
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    Ok(found)
}

/// Checks the secret without writing the canary, for a tool that only manages records. It must have
/// the nodes' secret. If no node has started yet, any secret passes.
///
/// # Errors
/// [`CanaryError`] says why the tool would find no records.
pub async fn check_read_only(
    store: &dyn Store,
    env: &Env,
    secret: &Secret,
    environment: &str,
) -> Result<(), CanaryError> {
    let Some(claim) = claim(env, secret, environment) else {
        return Ok(());
    };
    match store.read(&claim.identity).await? {
        Some(record) if record.fingerprint != claim.fingerprint => {
            Err(CanaryError::OtherSecret { id: secret.id() })
        }
        Some(_) | None => Ok(()),
    }
}

/// The claim of the canary's key. `None` only for an invalid environment, because all other parts
/// are constants.
fn claim(env: &Env, secret: &Secret, environment: &str) -> Option<Claim> {
    let namespace = Namespace::new(environment, "", SCOPE).ok()?;
    let key = Key::parse("secret").ok()?;
    let lease = Duration::from_secs(10);
    Some(Claim {
        retry: false,
        // The same identity for every secret, so that different secrets meet.
        identity: Identity::new(&Secret::none(), &namespace, &key),
        fingerprint: Fingerprint::builder(secret).part(b"canary").finish(),
        token: Token(env.entropy.next_u128()),
        terms: ClaimTerms::new(
            lease,
            ClaimTerms::MAX_RETENTION,
            CrashPolicy::Takeover,
            u16::MAX,
        )
        .ok()?,
        secret_id: secret.id(),
        hint: key.hint(),
        namespace,
    })
}
