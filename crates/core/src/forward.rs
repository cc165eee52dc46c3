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
///
/// After `|self| async =>`, pairs such as `claim: claim_both` delegate to async methods of the type
/// itself.
#[macro_export]
macro_rules! forward_store {
    (|$self:ident| async => $($method:ident: $own:ident),+ $(,)?) => {
        $($crate::forward_store!(@$method $self, $self, $own, ::std::boxed::Box::pin);)+
    };
    (|$self:ident| $to:expr => $($method:ident),+ $(,)?) => {
        $($crate::forward_store!(@$method $self, $to, $method, ::std::convert::identity);)+
    };
    (@claim $self:ident, $to:expr, $call:ident, $wrap:path) => {
        fn claim<'a>(
            &'a $self,
            claim: &'a $crate::Claim,
        ) -> $crate::BoxFuture<'a, $crate::StoreResult<$crate::Claimed>> {
            $wrap($to.$call(claim))
        }
    };
    (@renew $self:ident, $to:expr, $call:ident, $wrap:path) => {
        fn renew<'a>(
            &'a $self,
            lease: &'a $crate::Grant,
            checkpoint: Option<&'a $crate::store::Bytes>,
        ) -> $crate::BoxFuture<'a, $crate::StoreResult<$crate::Renewed>> {
            $wrap($to.$call(lease, checkpoint))
        }
    };
    (@settle $self:ident, $to:expr, $call:ident, $wrap:path) => {
        fn settle<'a>(
            &'a $self,
            lease: &'a $crate::Grant,
            settlement: &'a $crate::Settlement,
        ) -> $crate::BoxFuture<'a, $crate::StoreResult<$crate::Settled>> {
            $wrap($to.$call(lease, settlement))
        }
    };
    (@resolve $self:ident, $to:expr, $call:ident, $wrap:path) => {
        fn resolve<'a>(
            &'a $self,
            identity: &'a $crate::Identity,
            fence: $crate::Fence,
            resolution: &'a $crate::Resolution,
        ) -> $crate::BoxFuture<'a, $crate::StoreResult<$crate::Resolved>> {
            $wrap($to.$call(identity, fence, resolution))
        }
    };
    (@read $self:ident, $to:expr, $call:ident, $wrap:path) => {
        fn read<'a>(
            &'a $self,
            identity: &'a $crate::Identity,
        ) -> $crate::BoxFuture<'a, $crate::StoreResult<Option<$crate::Record>>> {
            $wrap($to.$call(identity))
        }
    };
    (@watch $self:ident, $to:expr, $call:ident, $wrap:path) => {
        fn watch(&$self, identity: &$crate::Identity) -> $crate::wake::Wakeup {
            $wrap($to.$call(identity))
        }
    };
    (@capabilities $self:ident, $to:expr, $call:ident, $wrap:path) => {
        fn capabilities(&$self) -> $crate::Capabilities {
            $wrap($to.$call())
        }
    };
    (@list $self:ident, $to:expr, $call:ident, $wrap:path) => {
        fn list<'a>(
            &'a $self,
            query: &'a $crate::store::Query,
        ) -> $crate::BoxFuture<'a, $crate::StoreResult<$crate::store::Page>> {
            $wrap($to.$call(query))
        }
    };
    (@delete $self:ident, $to:expr, $call:ident, $wrap:path) => {
        fn delete<'a>(
            &'a $self,
            identity: &'a $crate::Identity,
        ) -> $crate::BoxFuture<'a, $crate::StoreResult<bool>> {
            $wrap($to.$call(identity))
        }
    };
    (@restore $self:ident, $to:expr, $call:ident, $wrap:path) => {
        fn restore<'a>(
            &'a $self,
            identity: &'a $crate::Identity,
            record: &'a $crate::Record,
        ) -> $crate::BoxFuture<'a, $crate::StoreResult<$crate::Restored>> {
            $wrap($to.$call(identity, record))
        }
    };
    (@sweep $self:ident, $to:expr, $call:ident, $wrap:path) => {
        fn sweep(&$self, most: usize) -> $crate::BoxFuture<'_, $crate::StoreResult<usize>> {
            $wrap($to.$call(most))
        }
    };
    (@expired $self:ident, $to:expr, $call:ident, $wrap:path) => {
        fn expired(&$self, most: usize) -> $crate::BoxFuture<'_, $crate::StoreResult<usize>> {
            $wrap($to.$call(most))
        }
    };
    (@now $self:ident, $to:expr, $call:ident, $wrap:path) => {
        fn now(&$self) -> $crate::BoxFuture<'_, $crate::StoreResult<$crate::Timestamp>> {
            $wrap($to.$call())
        }
    };
    (@stats $self:ident, $to:expr, $call:ident, $wrap:path) => {
        fn stats(&$self) -> $crate::BoxFuture<'_, $crate::StoreResult<$crate::store::Stats>> {
            $wrap($to.$call())
        }
    };
    (@connections $self:ident, $to:expr, $call:ident, $wrap:path) => {
        fn connections(&$self) -> Option<$crate::store::Connections> {
            $wrap($to.$call())
        }
    };
    (@diagnose $self:ident, $to:expr, $call:ident, $wrap:path) => {
        fn diagnose(
            &$self,
        ) -> $crate::BoxFuture<'_, $crate::StoreResult<Vec<$crate::diagnosis::Finding>>> {
            $wrap($to.$call())
        }
    };
}

impl<T: Store + ?Sized> Store for Arc<T> {
    forward_store!(|self| (**self) => claim, renew, settle, resolve, read, watch, capabilities);
}

impl<T: StoreAdmin + ?Sized> StoreAdmin for Arc<T> {
    forward_store!(|self| (**self) => list, delete, restore, sweep, expired, now, stats, connections, diagnose);
}
