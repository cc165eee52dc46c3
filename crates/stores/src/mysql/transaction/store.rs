//! A transactional run as the engine sees it: a store like any other.

use bytes::Bytes;
use semel_core::store::{Capabilities, Store, StoreResult};
use semel_core::wake::Wakeup;
use semel_core::{BoxFuture, Claim, Claimed, Fence, Grant, Identity, Record, Renewed};
use semel_core::{Resolution, Resolved, Settled, Settlement};

use super::Transactional;
use crate::mysql::MySqlStore;

impl Transactional {
    fn outside(&self) -> MySqlStore {
        MySqlStore {
            inner: self.run.store.clone(),
        }
    }
}

impl Store for Transactional {
    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, StoreResult<Claimed>> {
        Box::pin(self.run.claim(claim))
    }

    /// Nobody can take over what is not committed.
    fn renew<'a>(
        &'a self,
        _: &'a Grant,
        _: Option<&'a Bytes>,
    ) -> BoxFuture<'a, StoreResult<Renewed>> {
        Box::pin(std::future::ready(Ok(Renewed::Held)))
    }

    fn settle<'a>(
        &'a self,
        lease: &'a Grant,
        settlement: &'a Settlement,
    ) -> BoxFuture<'a, StoreResult<Settled>> {
        Box::pin(async move {
            let settled = self.run.settle(lease, settlement).await?;
            self.run.store.hub.wake(&lease.identity.address());
            Ok(settled)
        })
    }

    fn resolve<'a>(
        &'a self,
        identity: &'a Identity,
        fence: Fence,
        resolution: &'a Resolution,
    ) -> BoxFuture<'a, StoreResult<Resolved>> {
        Box::pin(async move { self.outside().resolve(identity, fence, resolution).await })
    }

    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<Option<Record>>> {
        Box::pin(async move { self.outside().read(identity).await })
    }

    fn watch(&self, identity: &Identity) -> Wakeup {
        self.outside().watch(identity)
    }

    fn capabilities(&self) -> Capabilities {
        self.outside().capabilities()
    }
}
