//! Hooks for the program that runs the layer: a quota of new keys, and the authorization of replays.

use std::sync::Arc;

use http::Response;
use http::request::Parts;
use semel_core::BoxFuture;

use crate::body::Body;

/// A quota of the keys that a caller may keep in the store. In the extensions of a request.
#[derive(Clone)]
pub struct KeyQuota(pub Arc<dyn CountKeys>);

/// Counts the keys that a caller keeps.
pub trait CountKeys: Send + Sync {
    /// Whether the caller may keep one more key. Asked before a key is claimed.
    fn has_room(&self) -> bool;

    /// Counts a request that was refused because there was no room.
    fn count_refusal(&self);

    /// Counts a request that ran under a new key, and the bytes of its response.
    fn count(&self, bytes: u64);
}

impl std::fmt::Debug for KeyQuota {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyQuota")
    }
}

/// Decides whether a caller may still receive a stored response, for example because its
/// credential may have been revoked since: [`crate::Route::authorize_replays`].
pub trait AuthorizeReplay: Send + Sync + 'static {
    /// Checks the head of a request whose response is stored. `Err` is the response to send
    /// instead.
    fn authorize<'a>(&'a self, head: &'a Parts) -> BoxFuture<'a, Result<(), Response<Body>>>;
}
