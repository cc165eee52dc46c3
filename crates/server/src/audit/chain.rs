//! The hash chain that makes changes of the trail's files detectable.
//!
//! Each entry of a file has a [`Link`]: its number, and a hash of the entry and of the previous
//! link. Checkpoints sign the chain so far. An erased name is replaced by its digest, so the hashes
//! stay valid.

use serde_json::Value;

use super::entry::{ERASED, Entry, Link};
use super::signing_key::SigningKey;
use crate::web::hex;

/// The kind of checkpoint entries.
pub(super) const CHECKPOINT: &str = "audit.checkpoint";

/// The last link of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// The number of the link; 0 for an empty chain.
    pub number: u64,
    /// The hash of the link.
    pub hash: String,
}

impl ChainHead {
    /// The head of an empty chain.
    pub(super) fn empty() -> Self {
        Self {
            number: 0,
            hash: hex(&[0; 32]),
        }
    }

    pub(super) fn from_link(link: &Link) -> Self {
        Self {
            number: link.number,
            hash: link.hash.clone(),
        }
    }

    /// Appends `entry` to the chain. `salt` is random.
    pub(super) fn append(&mut self, entry: &mut Entry, salt: u128) {
        let salt = entry.actor.is_some().then(|| hex(&salt.to_be_bytes()));
        let mut link = Link {
            number: self.number + 1,
            hash: String::new(),
            salt,
            erased: None,
        };
        link.hash = self.compute_hash(entry, &link);
        *self = Self::from_link(&link);
        entry.chain = Some(link);
    }

    /// The hash of `entry` as the next link.
    pub(super) fn compute_hash(&self, entry: &Entry, link: &Link) -> String {
        let mut bare = entry.clone();
        bare.chain = None;
        bare.actor = match (&link.erased, &link.salt, &entry.actor) {
            (Some(erased), _, _) => Some(erased.clone()),
            (None, Some(salt), Some(actor)) => Some(actor_digest(salt, actor)),
            (None, _, actor) => actor.clone(),
        };
        // Strings and JSON values can always be written as JSON.
        let text = serde_json::to_vec(&bare).unwrap_or_default();
        let mut hasher = blake3::Hasher::new_derive_key("semel audit chain v1");
        hasher.update(self.hash.as_bytes());
        hasher.update(&link.number.to_be_bytes());
        hasher.update(&text);
        hex(hasher.finalize().as_bytes())
    }

    /// The message that a checkpoint signs.
    pub(super) fn message(&self) -> Vec<u8> {
        format!("semel audit checkpoint v1\n{}\n{}", self.number, self.hash).into_bytes()
    }

    /// The details of a checkpoint: the signed head of the chain.
    pub(super) fn checkpoint_detail(&self, key: &SigningKey) -> serde_json::Map<String, Value> {
        [
            ("number", Value::from(self.number)),
            ("hash", self.hash.clone().into()),
            ("key", key.public().into()),
            ("signature", key.sign(&self.message()).into()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }
}

/// Erases the actor's name from an entry. Its link stays valid.
pub(super) fn erase_actor(entry: &mut Entry) {
    let Some(actor) = entry.actor.replace(ERASED.to_owned()) else {
        return;
    };
    if let Some(link) = &mut entry.chain
        && let Some(salt) = link.salt.take()
    {
        link.erased = Some(actor_digest(&salt, &actor));
    }
}

/// The digest of an actor's name. Without the salt, the name cannot be guessed from it.
fn actor_digest(salt: &str, actor: &str) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("semel audit actor v1");
    hasher.update(salt.as_bytes());
    hasher.update(actor.as_bytes());
    hex(hasher.finalize().as_bytes())
}
