//! A store call as a message, and its reply.

use bytes::Bytes;
use semel_core::{
    Claim, Claimed, CrashPolicy, Fence, Grant, Identity, Record, Renewed, Resolution, Resolved,
    Settled, Settlement, State, Store as _, StoreAdmin as _, StoreResult,
};

use crate::broken::BrokenStore;
use crate::history::{CallRequest, checkpoint_mark};

/// What is asked.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Claim(Claim),
    Renew(Grant, Option<Bytes>),
    Settle(Grant, Settlement),
    Resolve(Identity, Fence, Resolution),
    Read(Identity),
    Delete(Identity),
}

/// What is answered.
#[derive(Clone, Debug)]
pub(super) enum StoreReply {
    Claimed(Claimed),
    Renewed(Renewed),
    Settled(Settled),
    Resolved(Resolved),
    Read(Option<Box<Record>>),
    Deleted(bool),
}

impl Op {
    /// Whose record it is about.
    pub(super) fn identity(&self) -> Identity {
        match self {
            Self::Claim(claim) => claim.identity,
            Self::Renew(lease, _) | Self::Settle(lease, _) => lease.identity,
            Self::Resolve(identity, ..) | Self::Read(identity) | Self::Delete(identity) => {
                *identity
            }
        }
    }

    /// A number for the trace.
    pub(super) const fn code(&self) -> u8 {
        match self {
            Self::Claim(_) => 1,
            Self::Renew(..) => 2,
            Self::Settle(..) => 3,
            Self::Resolve(..) => 4,
            Self::Read(_) => 5,
            Self::Delete(_) => 6,
        }
    }

    /// In the words of a history.
    pub(super) fn ask(&self) -> CallRequest {
        match self {
            Self::Claim(claim) => CallRequest::Claim {
                token: claim.token.0,
                payload: u64::from(claim.fingerprint.as_bytes()[1]),
                hold: claim.terms.crash() == CrashPolicy::Hold,
                lease: u64::try_from(claim.terms.lease().as_micros()).unwrap_or(u64::MAX),
                retention: u64::try_from(claim.terms.retention().as_micros()).unwrap_or(u64::MAX),
                max_attempts: claim.terms.max_attempts(),
            },
            Self::Renew(lease, checkpoint) => CallRequest::Renew {
                fence: lease.fence.0,
                token: lease.token.0,
                checkpoint: checkpoint
                    .as_ref()
                    .map(|checkpoint| checkpoint_mark(checkpoint)),
            },
            Self::Settle(lease, settlement) => CallRequest::Settle {
                fence: lease.fence.0,
                token: lease.token.0,
                ending: settlement.into(),
            },
            Self::Resolve(_, fence, resolution) => CallRequest::Resolve {
                fence: fence.0,
                ending: resolution.into(),
            },
            Self::Read(_) => CallRequest::Read,
            Self::Delete(_) => CallRequest::Delete,
        }
    }

    /// Lets `store` decide.
    pub(super) async fn decide(&self, store: &BrokenStore) -> StoreResult<StoreReply> {
        Ok(match self {
            Self::Claim(claim) => StoreReply::Claimed(store.claim(claim).await?),
            Self::Renew(lease, checkpoint) => {
                StoreReply::Renewed(store.renew(lease, checkpoint.as_ref()).await?)
            }
            Self::Settle(lease, settlement) => {
                StoreReply::Settled(store.settle(lease, settlement).await?)
            }
            Self::Resolve(identity, fence, resolution) => {
                StoreReply::Resolved(store.resolve(identity, *fence, resolution).await?)
            }
            Self::Read(identity) => StoreReply::Read(store.read(identity).await?.map(Box::new)),
            Self::Delete(identity) => StoreReply::Deleted(store.delete(identity).await?),
        })
    }
}

/// What a resolution makes of a record.
pub(super) fn state_of(resolution: &Resolution) -> State {
    match resolution {
        Resolution::Complete(_) => State::Completed,
        Resolution::Fail(_) => State::Failed,
        Resolution::Release => State::Released,
    }
}
