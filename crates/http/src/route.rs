//! [`Route`]: how the requests of one route are treated.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::{self, HeaderName};
use http::request::Parts;
use semel_core::policy::{Mode, Policy};
use semel_core::{CrashPolicy, Timestamp};

use crate::credentials::Credentials;
use crate::key::KeySource;
use crate::payload::Payload;
use crate::profile::Profile;

pub(crate) type Extract = Arc<dyn Fn(&Parts) -> Option<String> + Send + Sync>;
pub(crate) type Verify = Arc<dyn Fn(&Parts, &Bytes, Timestamp) -> bool + Send + Sync>;

/// How the requests of one route are treated. What isn't said is as the layer's defaults, or as the
/// profile.
///
/// ```
/// use semel_http::{KeySource, Profile, Route};
/// use std::time::Duration;
///
/// let payments = Route::new()
///     .profile(Profile::Stripe)
///     .hold()
///     .require_key()
///     .principal(|parts| parts.headers.get("x-user")?.to_str().ok().map(str::to_owned))
///     .keep_header("x-payment-id");
/// let jobs = Route::new().key(KeySource::body()).retention(Duration::from_secs(7 * 24 * 3600));
/// # let _ = (payments, jobs);
/// ```
#[derive(Clone, Default)]
#[must_use = "a route does nothing until a layer has it"]
pub struct Route {
    pub(crate) profile: Profile,
    pub(crate) scope: Option<String>,
    pub(crate) policy: Option<Policy>,
    pub(crate) crash: Option<CrashPolicy>,
    pub(crate) retention: Option<Duration>,
    pub(crate) mode: Option<Mode>,
    pub(crate) methods: Option<Vec<Method>>,
    pub(crate) key: KeySource,
    pub(crate) requires_key: Option<bool>,
    pub(crate) payload: Payload,
    pub(crate) multi_tenant: bool,
    pub(crate) tenant: Option<Extract>,
    pub(crate) principal: Option<Extract>,
    pub(crate) credentials: Credentials,
    pub(crate) ignores_credentials: bool,
    pub(crate) keep: Vec<String>,
    pub(crate) limits: Limits,
    pub(crate) longest_ttl: Option<Duration>,
    pub(crate) streams: bool,
    pub(crate) replays_as_ok: bool,
    pub(crate) verify: Option<Verify>,
    pub(crate) extensions: http::Extensions,
}

/// Bounds on what a caller sends and on what a handler answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of a request's body that are read to compare it. 2 MiB.
    pub request_bytes: usize,
    /// How long a request's body may take. 30 s.
    pub request_time: Duration,
    /// The most bytes read and thrown away so that a refused request's connection can be used again.
    /// 64 KiB; past it, or past a second, the connection is closed.
    pub drain_bytes: usize,
    /// How long an answer's body is gathered before it counts as a stream, which isn't kept. 5 s.
    pub gather_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_bytes: 2 * 1024 * 1024,
            request_time: Duration::from_secs(30),
            drain_bytes: 64 * 1024,
            gather_time: Duration::from_secs(5),
        }
    }
}

impl Route {
    /// A route with defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whose conventions it follows. The IETF draft's.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// The scope of its keys. The route's path, or `http` where no path is known.
    pub fn scope(mut self, scope: &str) -> Self {
        self.scope = Some(scope.to_owned());
        self
    }

    /// The policy, all of it. The layer's own, and the profile decides whether duplicates wait.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// At most once: should the process vanish, the key is in doubt until resolved.
    pub fn hold(mut self) -> Self {
        self.crash = Some(CrashPolicy::Hold);
        self
    }

    /// How long answers are kept, from when they are stored.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    /// Enforce, observe, or off.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// The methods covered. POST and PATCH; others pass.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = Some(methods.into_iter().collect());
        self
    }

    /// Where the key is read from. The `Idempotency-Key` header.
    pub fn key(mut self, source: KeySource) -> Self {
        self.key = source;
        self
    }

    /// Refuses requests without a key.
    pub fn require_key(mut self) -> Self {
        self.requires_key = Some(true);
        self
    }

    /// Whether requests without a key are refused, whatever the profile says.
    pub fn key_is_required(mut self, required: bool) -> Self {
        self.requires_key = Some(required);
        self
    }

    /// Which parts of a request make it the same request.
    pub fn payload(mut self, payload: Payload) -> Self {
        self.payload = payload;
        self
    }

    /// The route has tenants: without [`Route::tenant`] the layer isn't built, and a request without
    /// one is refused.
    pub fn multi_tenant(mut self) -> Self {
        self.multi_tenant = true;
        self
    }

    /// Finds a request's tenant: keys of different tenants never meet.
    pub fn tenant(
        mut self,
        find: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.tenant = Some(Arc::new(find));
        self
    }

    /// Finds the authenticated caller: keys of different callers never meet.
    ///
    /// Without this, and for a request of which it finds none, the [`Credentials`] count as part of the payload: a key that
    /// is used with others is refused rather than answered with another's answer.
    pub fn principal(
        mut self,
        find: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.principal = Some(Arc::new(find));
        self
    }

    /// What counts as credentials where no principal is known. The usual headers, all cookies, the client's certificate.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = credentials;
        self
    }

    /// Whose request it is makes no difference, credentials included: for routes where the key alone says what is meant,
    /// such as the events of one verified sender.
    pub fn ignore_credentials(mut self) -> Self {
        self.ignores_credentials = true;
        self
    }

    /// Keeps one more header of answers for replays. Those of [`KEPT_HEADERS`] always are.
    pub fn keep_header(mut self, name: impl Into<String>) -> Self {
        self.keep.push(name.into());
        self
    }

    /// Bounds on requests and answers.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Lets callers choose the retention with `X-Idempotency-TTL` (milliseconds), up to `longest`.
    pub fn caller_ttl(mut self, longest: Duration) -> Self {
        self.longest_ttl = Some(longest);
        self
    }

    /// Its answers are streams: none is kept, and none is held back to be gathered.
    pub fn streams(mut self) -> Self {
        self.streams = true;
        self
    }

    /// Runs only what `verify` lets through, given head, raw body and the time: a signature, say. In every mode, and for the
    /// route's methods: requests of others are none of the layer's business, so let nothing act on them.
    pub fn verify(
        mut self,
        verify: impl Fn(&Parts, &Bytes, Timestamp) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.verify = Some(Arc::new(verify));
        self
    }

    /// Puts `value` into the extensions of the route's requests that have a lease, for the handler.
    pub fn extension<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.extensions.insert(value);
        self
    }

    pub(crate) fn replay_as_ok(mut self) -> Self {
        self.replays_as_ok = true;
        self
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Route({}, key in {:?})",
            self.profile.terms().name,
            self.key
        )
    }
}

/// The headers of answers that are always kept for replays.
pub const KEPT_HEADERS: [HeaderName; 16] = [
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_DISPOSITION,
    header::CONTENT_LOCATION,
    header::ETAG,
    header::LAST_MODIFIED,
    header::LINK,
    header::LOCATION,
    header::VARY,
    // What keeps a browser from taking an answer for something else.
    header::CONTENT_SECURITY_POLICY,
    header::REFERRER_POLICY,
    header::STRICT_TRANSPORT_SECURITY,
    header::X_CONTENT_TYPE_OPTIONS,
    header::X_FRAME_OPTIONS,
    HeaderName::from_static("cross-origin-resource-policy"),
];

/// Headers that are never kept: they belong to a connection, a session, or the moment.
static NEVER_KEPT: [HeaderName; 16] = [
    header::AUTHORIZATION,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::COOKIE,
    header::DATE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::SERVER,
    header::SET_COOKIE,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::WWW_AUTHENTICATE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Whether a header may be kept at all.
pub(crate) fn may_keep(name: &HeaderName) -> bool {
    !NEVER_KEPT.contains(name) && !name.as_str().starts_with("access-control-")
}
