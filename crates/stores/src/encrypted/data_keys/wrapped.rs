//! Keys that the store itself keeps: each in a record of its own, encrypted ("wrapped") with
//! another key (P48).
//!
//! Such a record is a run that nobody owns: state running, a lease that has lapsed, the wrapped key
//! as its checkpoint. So the calls that every store has do the rest, each in one atomic step: to
//! restore creates it, to renew wraps it again, and to settle destroys it, because a settled record
//! keeps no checkpoint.

use bytes::Bytes;
use semel_core::record::{DataKeyId, SealedHeader};
use semel_core::{
    ClaimTerms, CrashPolicy, Env, Fence, Identity, Key, Namespace, Record, RecordError, State,
    StoreError, StoreErrorKind, Timestamp, Token,
};
use zeroize::Zeroizing;

use crate::encrypted::cipher::{BoundField, DATA_KEY, DecryptionKeys};
use crate::encrypted::key::EncryptionKey;

/// The scope of wrapped keys.
pub const SCOPE: &str = "semel.data-keys";

/// The record of a wrapped key: where it is.
pub(super) struct Place {
    pub(super) identity: Identity,
    namespace: Namespace,
    key: Key,
}

impl Place {
    /// Of the key that names are made with.
    pub(super) fn of_root(environment: &str) -> Result<Self, StoreError> {
        Self::new(environment, "", "root")
    }

    /// Of a data key.
    pub(super) fn of_key(
        environment: &str,
        tenant: &str,
        name: DataKeyId,
    ) -> Result<Self, StoreError> {
        Self::new(environment, tenant, &semel_core::hex::hex(name.as_bytes()))
    }

    fn new(environment: &str, tenant: &str, key: &str) -> Result<Self, StoreError> {
        let rejected = |error: &dyn std::fmt::Display| {
            let certainty = semel_core::Certainty::Definite;
            StoreError::new(StoreErrorKind::Rejected, certainty, error.to_string())
        };
        let namespace =
            Namespace::new(environment, tenant, SCOPE).map_err(|error| rejected(&error))?;
        let key = Key::parse(key).map_err(|error| rejected(&error))?;
        Ok(Self {
            // The same identity whatever the secret, so that a new secret finds the same keys.
            identity: Identity::new(&semel_core::Secret::none(), &namespace, &key),
            namespace,
            key,
        })
    }

    /// A record with `wrapped`, at `now` on the store's clock. Its fingerprint is one of the key:
    /// nobody can claim it.
    pub(super) fn record(
        &self,
        env: &Env,
        secret_id: u16,
        material: &[u8; 32],
        wrapped: Bytes,
        now: Timestamp,
    ) -> Option<Record> {
        Some(Record {
            seal: self.identity.seal(),
            state: State::Running,
            crash: CrashPolicy::Takeover,
            fence: Fence(now.as_micros().max(1)),
            token: Token(env.entropy.next_u128()),
            attempt: 1,
            max_attempts: u16::MAX,
            fingerprint: EncryptionKey::new(1, material)?.fingerprint(),
            secret_id,
            lease: ClaimTerms::MIN_LEASE,
            retention: ClaimTerms::MAX_RETENTION,
            created_at: now,
            written_at: now,
            namespace: self.namespace.clone(),
            hint: self.key.hint(),
            checkpoint: wrapped,
            answer: None,
        })
    }
}

/// The field of a wrapped key. It is bound to its record, so that no other key can be put in its
/// place.
const fn field(identity: &Identity) -> BoundField<'_> {
    BoundField {
        identity,
        field: DATA_KEY,
        state: State::Running,
        token: Token(0),
    }
}

/// Wraps `material` with `key`.
///
/// # Errors
/// None: it is small enough.
pub fn wrap(
    key: &EncryptionKey,
    identity: &Identity,
    material: &[u8; 32],
) -> Result<Bytes, RecordError> {
    field(identity).seal(key, Fence(0), material)
}

/// Unwraps the key of a record.
pub(super) fn unwrap(
    keys: &impl DecryptionKeys,
    identity: &Identity,
    wrapped: &[u8],
) -> Result<Zeroizing<[u8; 32]>, RecordError> {
    let opened = field(identity).open(keys, Fence(0), wrapped)?;
    let opened = opened.ok_or(RecordError::NotAuthentic)?;
    // One copy stays in the buffer of the cipher, as with every decrypted text.
    let material = <[u8; 32]>::try_from(&opened[..]).map_err(|_| RecordError::NotAuthentic)?;
    Ok(Zeroizing::new(material))
}

/// What the record of a wrapped key says.
pub(super) enum WrappedKey {
    /// The wrapped key, and the data key that it is wrapped with, if it is one.
    Kept(Box<Record>, SealedHeader, Option<DataKeyId>),
    /// It was destroyed.
    Destroyed,
}

impl WrappedKey {
    pub(super) fn of(record: Record) -> Result<Self, RecordError> {
        match record.state {
            State::Completed | State::Failed => Ok(Self::Destroyed),
            State::Running => {
                let header = SealedHeader::read(&record.checkpoint)?;
                let header = header.ok_or(RecordError::NotAuthentic)?;
                let by = DataKeyId::read(&record.checkpoint)?;
                Ok(Self::Kept(Box::new(record), header, by))
            }
            State::InDoubt | State::Released => Err(RecordError::NotAuthentic),
        }
    }
}
