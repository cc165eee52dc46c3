//! `impl Store` for a transactional run.

use bytes::Bytes;
use semel_core::store::{Store, StoreResult};
use semel_core::{BoxFuture, Claim, Claimed, Grant, Renewed};
use semel_core::{Settled, Settlement};

use super::{SqlTransact, Transactional};

impl<D: SqlTransact> Store for Transactional<D> {
    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, StoreResult<Claimed>> {
        Box::pin(D::claim(&self.run, claim))
    }

    /// Always held: an uncommitted run can't be taken over.
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
            let settled = D::settle(&self.run, lease, settlement).await?;
            D::wake(&self.run.store, lease);
            Ok(settled)
        })
    }

    semel_core::forward_store!(|self| self.run.store => resolve, read, watch, capabilities);
}
