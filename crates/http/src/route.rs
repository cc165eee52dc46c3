//! [`Route`]: how the requests of one route are treated.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::{self, HeaderName};
use http::request::Parts;
use semel_core::policy::{Mode, Policy};
use semel_core::{CrashPolicy, KeyForm, Timestamp};

use crate::credentials::CredentialRules;
use crate::hooks::AuthorizeReplay;
use crate::key::KeySource;
use crate::payload::Payload;
use crate::profile::Profile;

pub(crate) type TextExtractor = Arc<dyn Fn(&Parts) -> Option<String> + Send + Sync>;
pub(crate) type RequestVerifier = Arc<dyn Fn(&Parts, &Bytes, Timestamp) -> bool + Send + Sync>;

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
    pub(crate) operation: Option<String>,
    pub(crate) policy: Option<Policy>,
    pub(crate) crash: Option<CrashPolicy>,
    pub(crate) retention: Option<Duration>,
    pub(crate) answer_retention: Option<Duration>,
    pub(crate) mode: Option<Mode>,
    pub(crate) methods: Option<Vec<Method>>,
    pub(crate) key: KeySource,
    pub(crate) key_form: Option<KeyForm>,
    pub(crate) key_age: Option<Duration>,
    pub(crate) announces: Option<bool>,
    pub(crate) requires_key: Option<bool>,
    pub(crate) payload: Payload,
    pub(crate) multi_tenant: bool,
    pub(crate) tenant: Option<TextExtractor>,
    pub(crate) principal: Option<TextExtractor>,
    pub(crate) data_subject: Option<TextExtractor>,
    pub(crate) credentials: CredentialRules,
    pub(crate) ignores_credentials: bool,
    pub(crate) keep: Vec<String>,
    pub(crate) drop: Vec<String>,
    pub(crate) drops_body: bool,
    pub(crate) redact: Vec<String>,
    pub(crate) limits: BodyLimits,
    pub(crate) longest_ttl: Option<Duration>,
    pub(crate) streams: bool,
    pub(crate) replays_as_ok: bool,
    pub(crate) verify: Option<RequestVerifier>,
    pub(crate) replay_guard: Option<Arc<dyn AuthorizeReplay>>,
    pub(crate) extensions: http::Extensions,
}

/// Limits for the bodies of requests and responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BodyLimits {
    /// The largest request body with a key. The default is 2 MiB.
    pub request_bytes: usize,
    /// How long a request body may take. The default is 30 s.
    pub request_time: Duration,
    /// How many bytes of a refused request are read, so that its connection can be reused. The
    /// default is 64 KiB; beyond it, or after a second, the connection is closed.
    pub drain_bytes: usize,
    /// How long a response body is collected before it counts as a stream, which is not stored. The
    /// default is 5 s.
    pub gather_time: Duration,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self {
            request_bytes: 2 * 1024 * 1024,
            request_time: Duration::from_secs(30),
            drain_bytes: 64 * 1024,
            gather_time: Duration::from_secs(5),
        }
    }
}

impl BodyLimits {
    /// Sets [`request_bytes`](Self::request_bytes).
    #[must_use]
    pub const fn with_request_bytes(mut self, request_bytes: usize) -> Self {
        self.request_bytes = request_bytes;
        self
    }

    /// Sets [`request_time`](Self::request_time).
    #[must_use]
    pub const fn with_request_time(mut self, request_time: Duration) -> Self {
        self.request_time = request_time;
        self
    }

    /// Sets [`drain_bytes`](Self::drain_bytes).
    #[must_use]
    pub const fn with_drain_bytes(mut self, drain_bytes: usize) -> Self {
        self.drain_bytes = drain_bytes;
        self
    }

    /// Sets [`gather_time`](Self::gather_time).
    #[must_use]
    pub const fn with_gather_time(mut self, gather_time: Duration) -> Self {
        self.gather_time = gather_time;
        self
    }
}

impl Route {
    /// Creates a route with defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the profile. The default is the IETF draft.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// Sets the scope of the keys. The default is the route's path, or `http` if no path is known.
    ///
    /// `{name}` after a text stands for that segment of the request's path: equal keys of two
    /// intakes, shops or projects are then different keys. The segment has 1 to 64 of the
    /// characters `A-Z a-z 0-9 - . _ ~ : @`, and case matters; a request with another one is
    /// refused.
    ///
    /// ```
    /// # use semel_http::{BuildError, IdempotencyLayer, Route};
    /// # fn build(engine: semel_core::engine::Engine) -> Result<(), BuildError> {
    /// let layer = IdempotencyLayer::builder(engine)
    ///     .route("/intakes/{intake}/{*rest}", Route::new().scope("intake:{intake}"))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn scope(mut self, scope: &str) -> Self {
        self.scope = Some(scope.to_owned());
        self
    }

    /// Names the operation, for events, logs and metrics: routes that share a scope differ by it.
    /// It isn't part of the key. The default is no name.
    pub fn operation(mut self, name: &str) -> Self {
        self.operation = Some(name.to_owned());
        self
    }

    /// Sets the whole policy. The default is the layer's policy, and the profile decides whether
    /// duplicates wait.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// At most once: if the process dies, the key is in doubt until it is resolved.
    pub fn hold(mut self) -> Self {
        self.crash = Some(CrashPolicy::Hold);
        self
    }

    /// Sets how long responses are stored.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    /// Sets how long responses are replayed, if that is shorter than the retention. Later, a caller
    /// with the same key and payload gets 410 `idempotency_answer_expired`, and nothing runs.
    pub fn answer_retention(mut self, answer_retention: Duration) -> Self {
        self.answer_retention = Some(answer_retention);
        self
    }

    /// Sets the mode: enforce, observe, or off.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Sets the covered methods. The default is POST and PATCH, or as the profile; others pass.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = Some(methods.into_iter().collect());
        self
    }

    /// Sets where the key is read from. The default is the `Idempotency-Key` header.
    pub fn key(mut self, source: KeySource) -> Self {
        self.key = source;
        self
    }

    /// Sets the form that keys must have. The default is any form, or as the profile.
    pub fn key_form(mut self, form: KeyForm) -> Self {
        self.key_form = Some(form);
        self
    }

    /// Refuses keys that were made longer ago, with 412 `idempotency_key_too_old` (P52): a retry so
    /// late that its record may be gone does not run again. Keys must then carry their time, as
    /// UUIDv7 and ULID do; records are kept for at least five minutes longer than this.
    pub fn key_age(mut self, longest: Duration) -> Self {
        self.key_age = Some(longest);
        self
    }

    /// Sets whether clients are told about keys: for how long a key is good in
    /// `Idempotency-Key-Lifetime` of responses to requests with a key, and all rules in
    /// `Idempotency-Key-Rules` of responses to `OPTIONS`. The default is no, or as the profile.
    pub fn announce(mut self, announces: bool) -> Self {
        self.announces = Some(announces);
        self
    }

    /// Refuses requests without a key.
    pub fn require_key(mut self) -> Self {
        self.requires_key = Some(true);
        self
    }

    /// Sets whether requests without a key are refused, overriding the profile.
    pub fn key_is_required(mut self, required: bool) -> Self {
        self.requires_key = Some(required);
        self
    }

    /// Sets which parts of a request count for its fingerprint.
    pub fn payload(mut self, payload: Payload) -> Self {
        self.payload = payload;
        self
    }

    /// Marks the route as multi-tenant: [`Route::tenant`] is then mandatory, and a request without
    /// a tenant is refused.
    pub fn multi_tenant(mut self) -> Self {
        self.multi_tenant = true;
        self
    }

    /// Sets the function that finds a request's tenant. Each tenant has its own keys.
    pub fn tenant(
        mut self,
        find: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.tenant = Some(Arc::new(find));
        self
    }

    /// Sets the function that finds the authenticated caller. Each caller has its own keys.
    ///
    /// If there is no principal, the [`CredentialRules`] count as part of the payload: reusing a
    /// key with other credentials is refused.
    pub fn principal(
        mut self,
        find: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.principal = Some(Arc::new(find));
        self
    }

    /// Sets the function that finds whose data a response has, such as the id of a customer. With
    /// data keys per subject, it can be erased alone. A name that is empty or too long is refused;
    /// a request without one belongs to its tenant. Only a keyed digest of it is kept.
    pub fn data_subject(
        mut self,
        find: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.data_subject = Some(Arc::new(find));
        self
    }

    /// Sets what counts as credentials if no principal is known. The default is the usual headers,
    /// all cookies and the client certificate.
    pub fn credentials(mut self, credentials: CredentialRules) -> Self {
        self.credentials = credentials;
        self
    }

    /// Ignores who calls, including credentials. For routes where the key alone identifies the
    /// request, such as the events of one verified sender.
    pub fn ignore_credentials(mut self) -> Self {
        self.ignores_credentials = true;
        self
    }

    /// Stores one more response header for replays, in addition to [`KEPT_HEADERS`].
    pub fn keep_header(mut self, name: impl Into<String>) -> Self {
        self.keep.push(name.into());
        self
    }

    /// Stores a response header of [`KEPT_HEADERS`] no longer.
    pub fn drop_header(mut self, name: impl Into<String>) -> Self {
        self.drop.push(name.into());
        self
    }

    /// Whether response bodies are stored. Without its body, a replay has the first status and the
    /// stored headers, and says `idempotency_body_not_kept`.
    pub const fn keep_body(mut self, keeps_body: bool) -> Self {
        self.drops_body = !keeps_body;
        self
    }

    /// Stores JSON responses with null in place of the parts that this JSON pointer selects, in
    /// which `*` matches every member or element. Only replays lack them; they say `fields` in
    /// `Idempotent-Not-Kept`. A body that isn't JSON, or has two readings, is not stored.
    ///
    /// ```
    /// use semel_http::Route;
    ///
    /// let route = Route::new().redact("/card/number").redact("/items/*/pin");
    /// # let _ = route;
    /// ```
    pub fn redact(mut self, pointer: impl Into<String>) -> Self {
        self.redact.push(pointer.into());
        self
    }

    /// Sets the limits for bodies.
    pub fn limits(mut self, limits: BodyLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Lets callers choose the retention with `X-Idempotency-TTL` (milliseconds), up to `longest`.
    pub fn caller_ttl(mut self, longest: Duration) -> Self {
        self.longest_ttl = Some(longest);
        self
    }

    /// Marks the responses as streams: they are neither stored nor collected.
    pub fn streams(mut self) -> Self {
        self.streams = true;
        self
    }

    /// Runs only requests that `verify` accepts, given the head, the raw body and the time; for
    /// example by a signature. This applies in every mode, but only to the route's methods: let
    /// nothing act on requests with other methods.
    pub fn verify(
        mut self,
        verify: impl Fn(&Parts, &Bytes, Timestamp) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.verify = Some(Arc::new(verify));
        self
    }

    /// Asks `guard` before a stored response is sent again. Without it, a replay never reaches the
    /// service, so a credential that was revoked in the meantime still gets its replays.
    pub fn authorize_replays(mut self, guard: Arc<dyn AuthorizeReplay>) -> Self {
        self.replay_guard = Some(guard);
        self
    }

    /// Adds `value` to the extensions of keyed requests, for the handler.
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

/// Response headers that are always stored for replays.
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
    // Headers that protect browsers.
    header::CONTENT_SECURITY_POLICY,
    header::REFERRER_POLICY,
    header::STRICT_TRANSPORT_SECURITY,
    header::X_CONTENT_TYPE_OPTIONS,
    header::X_FRAME_OPTIONS,
    HeaderName::from_static("cross-origin-resource-policy"),
];

/// Headers that are never stored, because they belong to a connection, a session, or a moment.
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

/// Whether a header may be stored.
pub(crate) fn may_keep(name: &HeaderName) -> bool {
    !NEVER_KEPT.contains(name) && !name.as_str().starts_with("access-control-")
}
