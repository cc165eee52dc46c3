//! Header lists for cross-origin requests (CORS).

use http::header::{HeaderName, RETRY_AFTER};

use crate::announce::IDEMPOTENCY_KEY_LIFETIME;
use crate::key::{IDEMPOTENCY_KEY, X_IDEMPOTENCY_KEY};
use crate::repeatable::{REPEATABILITY_FIRST_SENT, REPEATABILITY_REQUEST_ID, REPEATABILITY_RESULT};
use crate::reply::{IDEMPOTENT_REPLAYED, X_ORIGINAL_REQUEST_TIME};
use crate::service::X_REQUEST_ID;

/// Headers that a browser must be allowed to send, for `Access-Control-Allow-Headers`.
pub const ALLOW_HEADERS: [HeaderName; 5] = [
    IDEMPOTENCY_KEY,
    X_IDEMPOTENCY_KEY,
    X_REQUEST_ID,
    REPEATABILITY_REQUEST_ID,
    REPEATABILITY_FIRST_SENT,
];

/// Headers that a script must be allowed to read, for `Access-Control-Expose-Headers`.
pub const EXPOSE_HEADERS: [HeaderName; 6] = [
    IDEMPOTENT_REPLAYED,
    X_ORIGINAL_REQUEST_TIME,
    RETRY_AFTER,
    X_REQUEST_ID,
    IDEMPOTENCY_KEY_LIFETIME,
    REPEATABILITY_RESULT,
];
