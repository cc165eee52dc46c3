//! Hooks for the program that runs the layer: a quota of new keys, and the authorization of
//! replays.

use std::sync::Arc;

use http::Response;
use http::request::Parts;
use semel_core::engine::{Engine, Request, Verdict};
use semel_core::{AnswerBody, BoxFuture, CrashPolicy, State};

use crate::body::Body;

/// A quota of the keys that a caller may keep in the store. In the extensions of a request.
#[derive(Clone)]
pub struct KeyQuota(pub Arc<dyn CountKeys>);

impl KeyQuota {
    /// Whether the request needs a new key, and its caller has no room for one.
    pub(crate) async fn refuses(&self, engine: &Engine, request: &Request) -> bool {
        if self.0.has_room() {
            return false;
        }
        // A store that does not answer leaves the decision to the claim.
        let Ok(found) = engine.read(request.identity()).await else {
            return false;
        };
        let is_free = found.is_none_or(|record| record.state == State::Released);
        if is_free {
            self.0.count_refusal();
        }
        is_free
    }

    /// Counts what the store keeps of an effect. `crash` is that of its lease; without a lease
    /// nothing is kept.
    pub(crate) fn count_outcome(&self, verdict: &Verdict, crash: Option<CrashPolicy>) {
        let kept = match (verdict, crash) {
            (_, None) | (Verdict::NoEffect, _) | (Verdict::Retry, Some(CrashPolicy::Takeover)) => {
                None
            }
            (Verdict::Complete(answer) | Verdict::Fail(answer), _) => {
                let body = match &answer.body {
                    AnswerBody::Kept(body) => body.len(),
                    _ => 0,
                };
                Some(answer.head.len() + body)
            }
            // Unknown, or to be retried under `hold`: the key is in doubt.
            _ => Some(0),
        };
        if let Some(bytes) = kept {
            self.0.count(bytes as u64);
        }
    }
}

/// Counts the keys that a caller keeps.
pub trait CountKeys: Send + Sync {
    /// Whether the caller may keep one more key. Asked before a key is claimed.
    fn has_room(&self) -> bool;

    /// Counts a request that was refused because there was no room.
    fn count_refusal(&self);

    /// Counts a key that the store keeps, and the bytes that it keeps of its response. Keys that
    /// are free again are not counted.
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
