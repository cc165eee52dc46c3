//! [`DataOwner`]: whose data a key encrypts; and the names of data keys, which are keyed digests of
//! that.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use semel_core::claim::{Claim, Grant};
use semel_core::record::DataKeyId;
use semel_core::{Certainty, DataSubject, Namespace, StoreError, StoreErrorKind};
use zeroize::Zeroizing;

/// A tenant, or a subject of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataOwner<'a> {
    /// The environment; empty if there is only one.
    pub environment: &'a str,
    /// The tenant; empty if there is only one.
    pub tenant: &'a str,
    /// The subject, if it is about one.
    pub subject: Option<DataSubject>,
}

impl<'a> DataOwner<'a> {
    /// A tenant of an environment.
    #[must_use]
    pub const fn new(environment: &'a str, tenant: &'a str) -> Self {
        Self {
            environment,
            tenant,
            subject: None,
        }
    }

    /// Sets [`subject`](Self::subject).
    #[must_use]
    pub const fn with_subject(mut self, subject: Option<DataSubject>) -> Self {
        self.subject = subject;
        self
    }

    pub(crate) fn of_namespace(namespace: &'a Namespace) -> Self {
        Self::new(namespace.environment(), namespace.tenant())
    }

    pub(crate) fn of_claim(claim: &'a Claim) -> Self {
        let subject = claim.terms.data_subject().copied();
        Self::of_namespace(&claim.namespace).with_subject(subject)
    }

    pub(super) const fn of_tenant(&self) -> Self {
        Self::new(self.environment, self.tenant)
    }
}

/// The most keys that one owner may have had: each erasure ends one.
pub(super) const MAX_GENERATIONS: u32 = 100;

pub(super) fn exhausted() -> StoreError {
    let reason = "the data of this tenant or subject was erased too often to get another key";
    StoreError::new(StoreErrorKind::Rejected, Certainty::Definite, reason)
}

pub(super) fn no_key() -> StoreError {
    let reason = "no encryption key is there to write with, so data keys can't be created";
    StoreError::new(StoreErrorKind::Rejected, Certainty::Definite, reason)
}

/// The key that names are made with, the same for all data keys of an environment. Nobody without
/// it can test whether a name is that of a tenant or a subject.
#[derive(Clone)]
pub(super) struct Root(Zeroizing<[u8; 32]>);

const ROOT: &str = "semel v2 data key names";

impl Root {
    pub(super) fn new(material: &[u8; 32]) -> Self {
        Self(Zeroizing::new(blake3::derive_key(ROOT, material)))
    }

    /// The name of the key of this generation.
    pub(super) fn name(&self, owner: &DataOwner<'_>, generation: u32) -> DataKeyId {
        let mut joined = Vec::with_capacity(64);
        for part in [owner.environment, owner.tenant] {
            joined.put_u8(u8::try_from(part.len()).unwrap_or(u8::MAX));
            joined.put_slice(part.as_bytes());
        }
        joined.put_u32_le(generation);
        // A tenant has no further bytes.
        if let Some(subject) = &owner.subject {
            joined.put_slice(subject.as_bytes());
        }
        let digest = blake3::keyed_hash(&self.0, &joined);
        let mut name = [0; DataKeyId::BYTES];
        name.copy_from_slice(&digest.as_bytes()[..DataKeyId::BYTES]);
        DataKeyId::from_bytes(name)
    }
}

/// The first byte of a memo that names an owner.
const NAMED: u8 = 0xda;

/// Adds the owner of a claim to the memo of its lease. It stays in this process.
pub(crate) fn remember(grant: Grant, ask: &Claim) -> Grant {
    let owner = DataOwner::of_claim(ask);
    let mut memo = BytesMut::with_capacity(64 + grant.memo.len());
    memo.put_u8(NAMED);
    for part in [owner.environment, owner.tenant] {
        memo.put_u8(u8::try_from(part.len()).unwrap_or(u8::MAX));
        memo.put_slice(part.as_bytes());
    }
    memo.put_u8(u8::from(owner.subject.is_some()));
    if let Some(subject) = &owner.subject {
        memo.put_slice(subject.as_bytes());
    }
    memo.put_slice(&grant.memo);
    grant.with_memo(memo.freeze())
}

/// The owner that a memo names.
pub(crate) struct RememberedOwner {
    environment: Bytes,
    tenant: Bytes,
    subject: Option<DataSubject>,
}

impl RememberedOwner {
    pub(crate) fn owner(&self) -> DataOwner<'_> {
        let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
        DataOwner::new(text(&self.environment), text(&self.tenant)).with_subject(self.subject)
    }
}

/// Takes the owner from the memo of a lease; what is left is the store's.
pub(crate) fn recall(memo: &mut Bytes) -> Option<RememberedOwner> {
    if memo.first() != Some(&NAMED) {
        return None;
    }
    let mut rest = memo.slice(1..);
    let mut part = || {
        let length = usize::from(rest.try_get_u8().ok()?);
        (length <= rest.len()).then(|| rest.split_to(length))
    };
    let (environment, tenant) = (part()?, part()?);
    let subject = match rest.try_get_u8().ok()? {
        0 => None,
        _ => {
            let mut bytes = [0; 32];
            rest.try_copy_to_slice(&mut bytes).ok()?;
            Some(DataSubject::from_bytes(bytes))
        }
    };
    *memo = rest;
    Some(RememberedOwner {
        environment,
        tenant,
        subject,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_owners_have_the_same_name() {
        let root = Root::new(&[7; 32]);
        let subject = |name| Some(DataSubject::new(name).expect("a subject"));
        let owners = [
            DataOwner::new("", ""),
            DataOwner::new("a", "b"),
            DataOwner::new("ab", ""),
            DataOwner::new("a", "b").with_subject(subject("c")),
            DataOwner::new("a", "b").with_subject(subject("d")),
            DataOwner::new("a", "x").with_subject(subject("c")),
        ];
        let mut names = Vec::new();
        for generation in 0..3 {
            names.extend(owners.iter().map(|owner| root.name(owner, generation)));
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        let other = Root::new(&[8; 32]);
        assert_ne!(root.name(&owners[0], 1), other.name(&owners[0], 1));
    }
}
