//! Webhooks: verifies a delivery, claims it by its event ID, and answers 200 to every repetition.
//!
//! Senders deliver at least once. [`webhook`] creates a [`Route`] that runs a verified delivery
//! once; a second delivery of the same event is answered 200 and runs nothing.

use bytes::Bytes;
use http::request::Parts;
use semel_core::Timestamp;

use crate::key::KeySource;
use crate::payload::Payload;
use crate::route::Route;

/// A route for webhooks: `verify` says whether a delivery is genuine, `event_id` which event it is.
///
/// The event's id alone says what it is: senders may change timestamps and attempt counters between
/// deliveries. Give the route a scope, or one path, per sender.
///
/// ```
/// use semel_http::webhook;
///
/// let route = webhook(
///     |parts, _body, _now| parts.headers.contains_key("x-signature"), // check it for real
///     |parts, _body| parts.headers.get("x-event-id")?.to_str().ok().map(str::to_owned),
/// );
/// # let _ = route;
/// ```
pub fn webhook(
    verify: impl Fn(&Parts, &Bytes, Timestamp) -> bool + Send + Sync + 'static,
    event_id: impl Fn(&Parts, &[u8]) -> Option<String> + Send + Sync + 'static,
) -> Route {
    Route::new()
        .verify(verify)
        .key(KeySource::function(event_id))
        .payload(Payload::nothing())
        .require_key()
        // Signatures differ between deliveries; `verify` has identified the sender.
        .ignore_credentials()
        .replay_as_ok()
}

#[cfg(feature = "webhook")]
pub use standard::{StandardWebhooks, WebhookSecretError};

#[cfg(feature = "webhook")]
mod standard {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use bytes::Bytes;
    use hmac::{Hmac, KeyInit as _, Mac as _};
    use http::request::Parts;
    use semel_core::Timestamp;
    use sha2::Sha256;

    use super::webhook;
    use crate::route::Route;

    /// Verifies deliveries signed as *Standard Webhooks* says: HMAC-SHA256 over id, timestamp and
    /// body.
    ///
    /// ```
    /// use semel_http::StandardWebhooks;
    ///
    /// let sender = StandardWebhooks::new(&["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])?;
    /// let route = sender.route();
    /// # Ok::<(), semel_http::WebhookSecretError>(())
    /// ```
    #[derive(Clone)]
    pub struct StandardWebhooks {
        secrets: Vec<Vec<u8>>,
    }

    /// The secret is invalid. The message does not repeat it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    #[error(
        "a webhook secret must be base64 of at least 16 bytes, with or without the prefix \
         `whsec_`"
    )]
    pub struct WebhookSecretError;

    /// The largest distance of a delivery's timestamp from now, in seconds.
    const TOLERANCE: u64 = 5 * 60;

    impl StandardWebhooks {
        /// Accepts signatures by any of these secrets: two while one is being replaced.
        ///
        /// # Errors
        /// [`WebhookSecretError`] if a secret is invalid.
        pub fn new(secrets: &[&str]) -> Result<Self, WebhookSecretError> {
            let decode = |secret: &&str| {
                let text = secret.strip_prefix("whsec_").unwrap_or(secret);
                let bytes = BASE64_STANDARD
                    .decode(text)
                    .map_err(|_| WebhookSecretError)?;
                if bytes.len() < 16 {
                    Err(WebhookSecretError)
                } else {
                    Ok(bytes)
                }
            };
            let secrets: Vec<_> = secrets.iter().map(decode).collect::<Result<_, _>>()?;
            if secrets.is_empty() {
                Err(WebhookSecretError)
            } else {
                Ok(Self { secrets })
            }
        }

        /// Creates a route for this sender's deliveries.
        pub fn route(self) -> Route {
            webhook(
                move |parts, body, now| self.verify(parts, body, now),
                |parts, _| header(parts, "webhook-id").map(str::to_owned),
            )
        }

        fn verify(&self, parts: &Parts, body: &Bytes, now: Timestamp) -> bool {
            let signed = ["webhook-id", "webhook-timestamp", "webhook-signature"];
            let [Some(id), Some(at), Some(signatures)] = signed.map(|name| header(parts, name))
            else {
                return false;
            };
            let now = now.as_micros() / 1_000_000;
            let fresh = at
                .parse()
                .is_ok_and(|at: u64| at.abs_diff(now) <= TOLERANCE);
            fresh
                && signatures
                    .split(' ')
                    .any(|one| self.fits(one, id, at, body))
        }

        fn fits(&self, signature: &str, id: &str, at: &str, body: &[u8]) -> bool {
            let Some(text) = signature.strip_prefix("v1,") else {
                return false;
            };
            let Ok(given) = BASE64_STANDARD.decode(text) else {
                return false;
            };
            self.secrets.iter().any(|secret| {
                let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else {
                    return false;
                };
                for part in [id.as_bytes(), b".", at.as_bytes(), b".", body] {
                    mac.update(part);
                }
                // A comparison in constant time.
                mac.verify_slice(&given).is_ok()
            })
        }
    }

    impl std::fmt::Debug for StandardWebhooks {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "StandardWebhooks({} secrets)", self.secrets.len())
        }
    }

    fn header<'a>(parts: &'a Parts, name: &str) -> Option<&'a str> {
        let mut lines = parts.headers.get_all(name).iter();
        let only = lines.next().filter(|_| lines.next().is_none());
        only.and_then(|line| line.to_str().ok())
    }
}
