//! The chain of hashes that makes a change of the trail's files show.
//!
//! Each entry of a file has a [`Link`]: its number, and a hash of the entry and of the link before it. Checkpoints sign
//! the chain so far. A name that is erased leaves a digest in its place, so the hashes still hold.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::entry::{ERASED, Entry};
use super::seal::Seal;
use crate::api::hex;

/// The kind of the entries that sign the chain.
pub(super) const CHECKPOINT: &str = "audit.checkpoint";

/// Where an entry stands in the chain of its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Link {
    /// Its number, from 1.
    pub number: u64,
    /// The hash of the entry and of the link before it.
    pub hash: String,
    /// What the actor's name is hashed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub salt: Option<String>,
    /// The hash of the actor's name, once the name is erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub erased: Option<String>,
}

/// The last link of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its number; 0 before the first.
    pub number: u64,
    /// Its hash.
    pub hash: String,
}

impl Head {
    /// Of a chain without links.
    pub(super) fn none() -> Self {
        Self {
            number: 0,
            hash: hex(&[0; 32]),
        }
    }

    pub(super) fn of(link: &Link) -> Self {
        Self {
            number: link.number,
            hash: link.hash.clone(),
        }
    }

    /// Gives `entry` the next link. `salt` is random.
    pub(super) fn add(&mut self, entry: &mut Entry, salt: u128) {
        let salt = entry.actor.is_some().then(|| hex(&salt.to_be_bytes()));
        let mut link = Link {
            number: self.number + 1,
            hash: String::new(),
            salt,
            erased: None,
        };
        link.hash = self.hash_of(entry, &link);
        *self = Self::of(&link);
        entry.chain = Some(link);
    }

    /// The hash of `entry` as the next link.
    pub(super) fn hash_of(&self, entry: &Entry, link: &Link) -> String {
        let mut bare = entry.clone();
        bare.chain = None;
        bare.actor = match (&link.erased, &link.salt, &entry.actor) {
            (Some(erased), _, _) => Some(erased.clone()),
            (None, Some(salt), Some(actor)) => Some(digest(salt, actor)),
            (None, _, actor) => actor.clone(),
        };
        // An entry is made of strings and JSON values, which can always be written as JSON.
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

    /// What a checkpoint says of the chain before it.
    pub(super) fn signed(&self, seal: &Seal) -> serde_json::Map<String, Value> {
        [
            ("number", Value::from(self.number)),
            ("hash", self.hash.clone().into()),
            ("key", seal.public().into()),
            ("signature", seal.sign(&self.message()).into()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }
}

/// Makes an entry nameless; its link still holds.
pub(super) fn erase(entry: &mut Entry) {
    let Some(actor) = entry.actor.replace(ERASED.to_owned()) else {
        return;
    };
    if let Some(link) = &mut entry.chain
        && let Some(salt) = link.salt.take()
    {
        link.erased = Some(digest(&salt, &actor));
    }
}

/// Stands for an actor's name. Without the salt, the name can't be guessed from it.
fn digest(salt: &str, actor: &str) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("semel audit actor v1");
    hasher.update(salt.as_bytes());
    hasher.update(actor.as_bytes());
    hex(hasher.finalize().as_bytes())
}
