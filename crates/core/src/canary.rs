//! The canary: nodes with different secrets would silently split the keyspace, each running what the
//! other has already run. So every node claims one well-known key with a fingerprint of its secret
//! before it serves, and doesn't start where another secret was there first (P41).

use std::time::Duration;

use crate::claim::{Claim, Claimed, Settlement, Terms};
use crate::env::Env;
use crate::error::StoreError;
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::key::Key;
use crate::namespace::Namespace;
use crate::record::{Answer, CrashPolicy, Token};
use crate::secret::Secret;
use crate::store::{Query, Store, StoreAdmin};

/// The scope of the canary's record.
pub const SCOPE: &str = "semel.canary";

/// How many pages of records are looked at where there is no canary.
const PAGES: usize = 16;

/// Why a node must not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CanaryError {
    /// The store was first used with another secret.
    #[error(
        "this store is used with another secret than this node's (id {id}); \
         give every node the same one, or use another store"
    )]
    OtherSecret {
        /// Of this node's secret.
        id: u16,
    },
    /// The store gave no answer.
    #[error("the store could not be asked which secret it is used with")]
    Store(#[from] StoreError),
}

/// Checks that this store is used with `secret` and no other, for one environment.
///
/// Where there is no canary, the first node makes it; but not if records of the environment were made with another secret, as
/// far as their secrets' ids tell: somebody removed the canary.
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
    let is_there = store.read(&claim.identity).await?.is_some();
    if !is_there && is_anothers(store, secret, environment).await? {
        return Err(other);
    }
    match store.claim(&claim).await? {
        Claimed::Mismatch => Err(other),
        Claimed::Won(grant) => {
            let settlement = Settlement::Complete(Answer::of("").into());
            store.settle(&grant, &settlement).await?;
            Ok(())
        }
        // Another node of the same secret has just asked, or did before.
        Claimed::Busy(_) | Claimed::Replay(_) | Claimed::InDoubt(_) => Ok(()),
    }
}

/// Whether the first records of the environment were made with another secret than this, and none with this one.
async fn is_anothers(
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

/// The same for a tool that looks after records and serves nobody: it must have the nodes' secret, and where there was no node yet
/// it leaves the choice to the first.
///
/// # Errors
/// [`CanaryError`] says why the tool would find nothing.
pub async fn look(
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

/// All parts are constants, so making them only fails for an environment that nobody could use.
fn claim(env: &Env, secret: &Secret, environment: &str) -> Option<Claim> {
    let namespace = Namespace::new(environment, "", SCOPE).ok()?;
    let key = Key::parse("secret").ok()?;
    let lease = Duration::from_secs(10);
    Some(Claim {
        retry: false,
        // The same place for every secret: that is the point.
        identity: Identity::of(&Secret::none(), &namespace, &key),
        fingerprint: Fingerprint::builder(secret).part(b"canary").finish(),
        token: Token(env.entropy.next_u128()),
        terms: Terms::new(lease, Terms::MAX_RETENTION, CrashPolicy::Takeover, u16::MAX).ok()?,
        secret_id: secret.id(),
        hint: key.hint(),
        namespace,
    })
}
