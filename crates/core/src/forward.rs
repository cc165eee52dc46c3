//! Forwarding to another store.

use std::sync::Arc;

use crate::store::{Store, StoreAdmin};

/// Writes methods of [`Store`] and [`StoreAdmin`] that delegate to another store.
///
/// Use it inside the `impl` block of a store that changes some calls and forwards the others.
///
/// ```
/// use std::sync::Arc;
/// use semel_core::{BoxFuture, Claim, Claimed, Store, StoreResult};
///
/// struct Counting {
///     store: Arc<dyn Store>,
///     claims: std::sync::atomic::AtomicU64,
/// }
///
/// impl Store for Counting {
///     fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, StoreResult<Claimed>> {
///         self.claims.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
///         self.store.claim(claim)
///     }
///
///     semel_core::forward_store!(|self| self.store => renew, settle, resolve, read, watch, capabilities);
/// }
/// ```
#[macro_export]
macro_rules! forward_store {
    (|$self:ident| $to:expr => $($method:ident),+ $(,)?) => {
        $($crate::forward_store!(@$method $self, $to);)+
    };
    (@claim $self:ident, $to:expr) => {
        fn claim<'a>(
            &'a $self,
            claim: &'a $crate::Claim,
        ) -> $crate::BoxFuture<'a, $crate::StoreResult<$crate::Claimed>> {
            $to.claim(claim)
        }
    };
    (@renew $self:ident, $to:expr) => {
        fn renew<'a>(
            &'a $self,
            lease: &'a $crate::Grant,
            checkpoint: Option<&'a $crate::store::Bytes>,
        ) -> $crate::BoxFuture<'a, $crate::StoreResult<$crate::Renewed>> {
            $to.renew(lease, checkpoint)
        }
    };
    (@settle $self:ident, $to:expr) => {
        fn settle<'a>(
            &'a $self,
            lease: &'a $crate::Grant,
            settlement: &'a $crate::Settlement,
        ) -> $crate::BoxFuture<'a, $crate::StoreResult<$crate::Settled>> {
            $to.settle(lease, settlement)
        }
    };
    (@resolve $self:ident, $to:expr) => {
        fn resolve<'a>(
            &'a $self,
            identity: &'a $crate::Identity,
            fence: $crate::Fence,
            resolution: &'a $crate::Resolution,
        ) -> $crate::BoxFuture<'a, $crate::StoreResult<$crate::Resolved>> {
            $to.resolve(identity, fence, resolution)
        }
    };
    (@read $self:ident, $to:expr) => {
        fn read<'a>(
            &'a $self,
            identity: &'a $crate::Identity,
        ) -> $crate::BoxFuture<'a, $crate::StoreResult<Option<$crate::Record>>> {
            $to.read(identity)
        }
    };
    (@watch $self:ident, $to:expr) => {
        fn watch(&$self, identity: &$crate::Identity) -> $crate::wake::Wakeup {
            $to.watch(identity)
        }
    };
    (@capabilities $self:ident, $to:expr) => {
        fn capabilities(&$self) -> $crate::Capabilities {
            $to.capabilities()
        }
    };
    (@list $self:ident, $to:expr) => {
        fn list<'a>(
            &'a $self,
            query: &'a $crate::store::Query,
        ) -> $crate::BoxFuture<'a, $crate::StoreResult<$crate::store::Page>> {
            $to.list(query)
        }
    };
    (@delete $self:ident, $to:expr) => {
        fn delete<'a>(
            &'a $self,
            identity: &'a $crate::Identity,
        ) -> $crate::BoxFuture<'a, $crate::StoreResult<bool>> {
            $to.delete(identity)
        }
    };
    (@restore $self:ident, $to:expr) => {
        fn restore<'a>(
            &'a $self,
            identity: &'a $crate::Identity,
            record: &'a $crate::Record,
        ) -> $crate::BoxFuture<'a, $crate::StoreResult<$crate::Restored>> {
            $to.restore(identity, record)
        }
    };
    (@sweep $self:ident, $to:expr) => {
        fn sweep(&$self, most: usize) -> $crate::BoxFuture<'_, $crate::StoreResult<usize>> {
            $to.sweep(most)
        }
    };
    (@expired $self:ident, $to:expr) => {
        fn expired(&$self, most: usize) -> $crate::BoxFuture<'_, $crate::StoreResult<usize>> {
            $to.expired(most)
        }
    };
    (@now $self:ident, $to:expr) => {
        fn now(&$self) -> $crate::BoxFuture<'_, $crate::StoreResult<$crate::Timestamp>> {
            $to.now()
        }
    };
    (@stats $self:ident, $to:expr) => {
        fn stats(&$self) -> $crate::BoxFuture<'_, $crate::StoreResult<$crate::store::Stats>> {
            $to.stats()
        }
    };
    (@connections $self:ident, $to:expr) => {
        fn connections(&$self) -> Option<$crate::store::Connections> {
            $to.connections()
        }
    };
    (@diagnose $self:ident, $to:expr) => {
        fn diagnose(
            &$self,
        ) -> $crate::BoxFuture<'_, $crate::StoreResult<Vec<$crate::diagnosis::Finding>>> {
            $to.diagnose()
        }
    };
}

impl<T: Store + ?Sized> Store for Arc<T> {
    forward_store!(|self| (**self) => claim, renew, settle, resolve, read, watch, capabilities);
}

impl<T: StoreAdmin + ?Sized> StoreAdmin for Arc<T> {
    forward_store!(|self| (**self) => list, delete, restore, sweep, expired, now, stats, connections, diagnose);
}
