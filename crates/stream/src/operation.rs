//! [`StreamOperation`]: the session, number and key of one operation.

use crate::key::{Epoch, SeqNo, SessionId, StreamKey};
use crate::marks::Mark;

/// A tenant. Each has its own window and marks, so that none can evict another's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenant(u128);

impl Tenant {
    /// The tenant of this name. The default tenant has none.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self(StreamKey::from_text(name.as_bytes()).0)
    }

    pub(crate) const fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    pub(crate) const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }
}

/// One operation: its place in a session, or its key, or both.
///
/// ```
/// use semel_stream::{StreamKey, Mark, StreamOperation, SeqNo, SessionId, Tenant};
///
/// let session = SessionId::named("sensor-7");
/// let key = StreamKey::derive(session, SeqNo(1), b"add 5");
/// let operation = StreamOperation::sequenced(session, Mark::new(0, 1))
///     .with_key(key)
///     .with_tenant(Tenant::named("acme"));
/// assert_eq!(operation.key(), Some(key));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOperation {
    tenant: Tenant,
    place: Option<(SessionId, Mark)>,
    key: Option<StreamKey>,
}

impl StreamOperation {
    /// An operation with a number: recognised for all time.
    #[must_use]
    pub fn sequenced(session: SessionId, at: Mark) -> Self {
        Self {
            tenant: Tenant::default(),
            place: Some((session, at)),
            key: None,
        }
    }

    /// An operation without one: recognised within the window.
    #[must_use]
    pub fn keyed(key: StreamKey) -> Self {
        Self {
            tenant: Tenant::default(),
            place: None,
            key: Some(key),
        }
    }

    /// The same, with a key beside its number.
    #[must_use]
    pub fn with_key(mut self, key: StreamKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Sets the tenant.
    #[must_use]
    pub fn with_tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = tenant;
        self
    }

    /// The tenant.
    #[must_use]
    pub const fn tenant(&self) -> Tenant {
        self.tenant
    }

    /// Its session, and its place there.
    #[must_use]
    pub const fn place(&self) -> Option<(SessionId, Mark)> {
        self.place
    }

    /// Its key, as it was given.
    #[must_use]
    pub const fn key(&self) -> Option<StreamKey> {
        self.key
    }

    /// The key under which a window knows it: that of its epoch.
    #[must_use]
    pub fn window_key(&self) -> Option<StreamKey> {
        let epoch = self.place.map_or(Epoch(0), |(_, at)| at.epoch);
        self.key.map(|key| key.in_epoch(epoch))
    }

    /// Its number, if it has one.
    #[must_use]
    pub fn seqno(&self) -> Option<SeqNo> {
        self.place.map(|(_, at)| at.seqno)
    }
}
