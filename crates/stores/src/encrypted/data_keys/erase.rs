//! Destroys data keys: what they have encrypted can't be read any more (P49).

use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use semel_core::claim::{Grant, Settled, Settlement};
use semel_core::store::StoreResult;
use semel_core::{Answer, Certainty, State, StoreError, StoreErrorKind};

use super::DataKeys;
use super::owner::{DataOwner, MAX_GENERATIONS};
use super::wrapped::Place;

/// How many records are looked at at a time.
const AT_ONCE: usize = 16;

/// How often a record that changes meanwhile is looked at again.
const TRIES: usize = 5;

/// What an erasure did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Erased {
    /// Keys that it destroyed. 0 if the owner had none, or an earlier erasure has destroyed them.
    pub destroyed: u32,
    /// Keys that were destroyed before.
    pub before: u32,
    /// A keyed digest of the owner, for the audit trail.
    pub digest: String,
}

enum DestroyOutcome {
    Destroyed,
    Before,
    Nothing,
}

impl DataKeys {
    /// Destroys the keys of a tenant, and with them those of its subjects; or those of one subject.
    /// The record of each key stays, without the key, for the longest retention. An erasure that
    /// was interrupted is made again, and goes on.
    ///
    /// # Errors
    /// If the store gives no answer. Some keys may be destroyed then.
    pub async fn erase(&self, owner: &DataOwner<'_>) -> StoreResult<Erased> {
        let root = self.root(owner.environment).await?;
        let place_of = |generation| {
            let name = root.name(owner, generation);
            Place::of_key(owner.environment, owner.tenant, name)
        };
        let steps = (1..=MAX_GENERATIONS).map(|generation| async move {
            let place = place_of(generation)?;
            self.destroy(&place).await
        });
        let steps = stream::iter(steps).buffered(AT_ONCE);
        let steps: Vec<DestroyOutcome> = steps.try_collect().await?;
        self.forget();
        let count = |wanted: fn(&DestroyOutcome) -> bool| {
            let found = steps.iter().filter(|step| wanted(step)).count();
            u32::try_from(found).unwrap_or(u32::MAX)
        };
        Ok(Erased {
            destroyed: count(|step| matches!(step, DestroyOutcome::Destroyed)),
            before: count(|step| matches!(step, DestroyOutcome::Before)),
            digest: semel_core::hex::hex(root.name(owner, 0).as_bytes()),
        })
    }

    /// A keyed digest of the owner, the same for each erasure. Nobody without the store and its
    /// keys can test names against it.
    ///
    /// # Errors
    /// If the store gives no answer.
    pub async fn digest(&self, owner: &DataOwner<'_>) -> StoreResult<String> {
        let root = self.root(owner.environment).await?;
        Ok(semel_core::hex::hex(root.name(owner, 0).as_bytes()))
    }

    /// One atomic write: the record of the key is settled, and a settled record keeps no
    /// checkpoint.
    async fn destroy(&self, place: &Place) -> StoreResult<DestroyOutcome> {
        let store = &self.0.store;
        for _ in 0..TRIES {
            let Some(record) = store.read(&place.identity).await? else {
                return Ok(DestroyOutcome::Nothing);
            };
            match record.state {
                State::Running | State::InDoubt => {}
                State::Completed | State::Failed => return Ok(DestroyOutcome::Before),
                State::Released => return Ok(DestroyOutcome::Nothing),
            }
            let grant = Grant::from_record(place.identity, &record);
            let settlement = Settlement::Complete(Arc::new(Answer::from_body("")));
            if store.settle(&grant, &settlement).await? == Settled::Done {
                return Ok(DestroyOutcome::Destroyed);
            }
        }
        let reason = "the record of a data key changes all the time";
        let (kind, certainty) = (StoreErrorKind::Unavailable, Certainty::Unknown);
        Err(StoreError::new(kind, certainty, reason))
    }
}
