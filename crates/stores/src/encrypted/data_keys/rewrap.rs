//! Wraps data keys again with the newest key of the process, so that older ones can be removed
//! (P48).

use semel_core::claim::{Grant, Renewed};
use semel_core::record::Record;
use semel_core::store::{Query, StoreResult};
use semel_core::{Identity, RecordError};

use super::DataKeys;
use super::owner;
use super::wrapped::{SCOPE, WrappedKey, unwrap, wrap};
use crate::encrypted::key::EncryptionKey;
use crate::encrypted::keyring::Keyring;

/// How far a pass over the wrapped keys of a store has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RewrapProgress {
    /// Records looked at.
    pub seen: u64,
    /// Keys wrapped again.
    pub rewrapped: u64,
    /// Keys that are wrapped with the newest key, or with their tenant's.
    pub current: u64,
    /// Keys that can't be unwrapped: they need a key that is not there, or were changed.
    pub unreadable: u64,
}

enum RewrapOutcome {
    Rewrapped,
    Current,
    Destroyed,
    Unreadable,
}

impl DataKeys {
    /// Wraps every key of an environment again that isn't wrapped with the newest key, and calls
    /// `report` after each page. Made again after an interruption, it goes on with what is left.
    ///
    /// # Errors
    /// If the store gives no answer, or there is no key to write with.
    pub async fn rewrap(
        &self,
        environment: &str,
        mut report: impl FnMut(&RewrapProgress),
    ) -> StoreResult<RewrapProgress> {
        let ring = self.0.keys.current();
        let write_key = ring.write_key().ok_or_else(owner::no_key)?;
        let mut query = Query::default()
            .with_environment(environment.to_owned())
            .with_scope(SCOPE.to_owned());
        let mut progress = RewrapProgress::default();
        loop {
            let page = self.0.store.list(&query).await?;
            for (identity, record) in page.records {
                progress.seen += 1;
                match self.rewrap_one(&ring, write_key, &identity, record).await? {
                    RewrapOutcome::Rewrapped => progress.rewrapped += 1,
                    RewrapOutcome::Current => progress.current += 1,
                    RewrapOutcome::Unreadable => progress.unreadable += 1,
                    RewrapOutcome::Destroyed => {}
                }
            }
            report(&progress);
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(progress),
            }
        }
    }

    /// One atomic write: renewing keeps a new checkpoint, unless the key was destroyed meanwhile.
    async fn rewrap_one(
        &self,
        ring: &Keyring,
        write_key: &EncryptionKey,
        identity: &Identity,
        record: Record,
    ) -> StoreResult<RewrapOutcome> {
        let (record, header) = match WrappedKey::of(record) {
            Ok(WrappedKey::Kept(_, _, Some(_))) => return Ok(RewrapOutcome::Current),
            Ok(WrappedKey::Kept(_, header, None)) if header.key_id == write_key.id() => {
                return Ok(RewrapOutcome::Current);
            }
            Ok(WrappedKey::Kept(record, header, None)) => (record, header),
            Ok(WrappedKey::Destroyed) => return Ok(RewrapOutcome::Destroyed),
            Err(_) => return Ok(RewrapOutcome::Unreadable),
        };
        debug_assert_ne!(header.key_id, write_key.id());
        let rewrapped = unwrap(ring, identity, &record.checkpoint)
            .and_then(|material| wrap(write_key, identity, &material));
        let wrapped = match rewrapped {
            Ok(wrapped) => wrapped,
            Err(RecordError::NoKey(_) | RecordError::NotAuthentic) => {
                return Ok(RewrapOutcome::Unreadable);
            }
            Err(error) => return Err(error.into()),
        };
        let grant = Grant::from_record(*identity, &record);
        match self.0.store.renew(&grant, Some(&wrapped)).await? {
            Renewed::Held => Ok(RewrapOutcome::Rewrapped),
            Renewed::Lost => Ok(RewrapOutcome::Destroyed),
        }
    }
}
