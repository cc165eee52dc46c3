//! The settings of a route.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::units::{Size, Span};

/// A route and its settings. Settings that it leaves out come from `defaults`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RouteEntry {
    /// The path, such as `/charges/{id}/capture`. `{id}` matches one segment, and `{*rest}` at the
    /// end matches any number of them.
    #[schemars(extend("format" = "route"))]
    pub path: String,
    /// The other settings.
    #[serde(flatten)]
    pub settings: RouteSettings,
}

/// The settings of requests.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RouteSettings {
    /// Whether duplicates are blocked.
    pub mode: Mode,
    /// The conventions that requests and responses follow.
    pub profile: Profile,
    /// The methods that the route covers. Other methods pass through. Default: `POST` and `PATCH`;
    /// `POST` and `DELETE` with profile `iceberg`.
    #[schemars(extend("items" = {"type": "string", "format": "method"}))]
    pub methods: Option<Vec<String>>,
    /// Whether to refuse requests without a key. Default: depends on the profile.
    pub require_key: Option<bool>,
    /// The header with the key. Default: `Idempotency-Key` or `X-Idempotency-Key`;
    /// `Repeatability-Request-ID` with profile `repeatable`.
    #[schemars(extend("format" = "header"))]
    pub key_header: Option<String>,
    /// The member of a JSON body with the key, instead of a header. Every body of the route is then
    /// read before it is forwarded.
    pub key_field: Option<String>,
    /// A JSON pointer to the key in a JSON body, instead of a header, such as
    /// `/variables/idempotencyKey`. Every body of the route is then read before it is forwarded.
    #[schemars(extend("format" = "pointer"))]
    pub key_pointer: Option<String>,
    /// The parameter of the query with the key, instead of a header.
    pub key_query: Option<String>,
    /// The form that keys must have. Default: depends on the profile.
    pub key_form: Option<KeyShape>,
    /// The greatest age of a key. An older key gets 412 `idempotency_key_too_old`; it does not run,
    /// even if its record is gone. Keys must then be UUIDv7 or ULID, which carry their time, and
    /// records are kept for at least five minutes longer. Default: none; `retention` with profile
    /// `repeatable`.
    pub key_age: Option<Span>,
    /// Whether to tell clients about keys: `Idempotency-Key-Lifetime` in responses to requests with
    /// a key, and `Idempotency-Key-Rules` in responses to `OPTIONS`. With profile `iceberg`, the
    /// response to `GET …/v1/config` gets `idempotency-key-lifetime`. Default: depends on the
    /// profile.
    pub announce: Option<bool>,
    /// The scope of the keys. Routes with the same scope share their keys. `{name}` after a text,
    /// as in `intake:{intake}`, stands for that segment of the path: each intake then has keys of
    /// its own. Such a segment has 1 to 64 of the characters `A-Z a-z 0-9 - . _ ~ : @`; another one
    /// is refused. Default: the path of the route, or `http` for requests that match no route.
    pub scope: Option<String>,
    /// The name of the operation in logs, metrics and the audit trail: routes that share a scope
    /// differ by it.
    pub operation: Option<String>,
    /// What happens to a key if the process that runs its request crashes.
    pub crash: Crash,
    /// What happens to a key if the request was sent to the service and no response came.
    pub lost_answer: LostAnswer,
    /// What a request does while another request with the same key is running. Default: depends on
    /// the profile.
    pub on_busy: Option<OnBusy>,
    /// The maximum wait for the running request.
    pub wait: Span,
    /// The maximum number of requests of this process that wait for one key.
    pub max_waiters: usize,
    /// The maximum number of requests with a key that the service processes for this route at the
    /// same time. `limits.running` limits all routes together.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_running: Option<usize>,
    /// A URL to ask before a stored response is sent again: it gets a `GET` with the headers of the
    /// request, and `X-Original-Method` and `X-Original-URI`. After a 2xx the response is replayed;
    /// 401 and 403 are passed on. Without it, callers get their replays until the retention ends,
    /// even if their credential was revoked.
    #[schemars(extend("format" = "http-url"))]
    pub replay_auth_url: Option<String>,
    /// How long to keep responses for replays.
    pub retention: Span,
    /// How long to replay responses, if that is shorter than `retention`. Later, a request with the
    /// same key and payload gets 410 `idempotency_answer_expired`; it does not run. Default: as
    /// long as `retention`.
    pub answer_retention: Option<Span>,
    /// The longest retention that callers may set with `X-Idempotency-TTL` (milliseconds). Without
    /// it, callers cannot set the retention.
    pub caller_retention: Option<Span>,
    /// How long a node may be silent before it counts as crashed. It renews its lease three times
    /// in this span.
    pub lease: Span,
    /// The maximum number of runs. If the node of the last one crashes, the key is in doubt, even
    /// with `crash = "takeover"`.
    #[schemars(range(min = 1))]
    pub max_attempts: u16,
    /// What happens to requests while the store does not answer.
    pub store_down: StoreDown,
    /// The maximum size of the body of a request with a key.
    pub max_body: Size,
    /// How long the body of a request with a key may take to arrive.
    pub body_time: Span,
    /// The largest response body to keep. The replay of a larger one says that it was not kept.
    pub max_answer: Size,
    /// How long to collect a response body. A longer one counts as a stream, which is not kept.
    pub gather_time: Span,
    /// Whether responses are streams, which are neither collected nor kept.
    pub streams: bool,
    /// Response headers to keep for replays, besides the usual ones.
    #[schemars(extend("items" = {"type": "string", "format": "header"}))]
    pub keep_headers: Vec<String>,
    /// Response headers not to keep, of the usual ones.
    #[schemars(extend("items" = {"type": "string", "format": "header"}))]
    pub drop_headers: Vec<String>,
    /// Whether to keep response bodies. Without its body, a replay has the first status and the
    /// kept headers, and says `idempotency_body_not_kept`.
    pub keep_body: bool,
    /// JSON pointers to the parts of JSON responses to keep out of the store, such as
    /// `/card/number` or `/items/*/pin`. A replay has null in their place. Responses that are not
    /// JSON are then kept without their bodies.
    #[schemars(extend("items" = {"type": "string", "format": "pointer"}))]
    pub redact: Vec<String>,
    /// Whether keys of the route belong to tenants, if `tenants` is set.
    pub has_tenants: bool,
    /// Which parts of a request must be the same in a retry.
    pub fingerprint: Fingerprint,
}

impl Default for RouteSettings {
    fn default() -> Self {
        let policy = semel::Policy::default();
        let limits = semel::http::BodyLimits::default();
        Self {
            mode: Mode::Enforce,
            profile: Profile::Ietf,
            methods: None,
            require_key: None,
            key_header: None,
            key_field: None,
            key_pointer: None,
            key_query: None,
            key_form: None,
            key_age: None,
            announce: None,
            scope: None,
            operation: None,
            crash: Crash::Takeover,
            lost_answer: LostAnswer::Crash,
            on_busy: None,
            wait: Span(std::time::Duration::from_secs(30)),
            max_waiters: policy.max_waiters_per_key,
            max_running: None,
            replay_auth_url: None,
            retention: Span(policy.retention),
            answer_retention: None,
            caller_retention: None,
            lease: Span(policy.lease),
            max_attempts: policy.max_attempts,
            store_down: StoreDown::Closed,
            max_body: Size(limits.request_bytes as u64),
            body_time: Span(limits.request_time),
            max_answer: Size(policy.max_answer_bytes as u64),
            gather_time: Span(limits.gather_time),
            streams: false,
            keep_headers: Vec::new(),
            drop_headers: Vec::new(),
            keep_body: true,
            redact: Vec::new(),
            has_tenants: true,
            fingerprint: Fingerprint::default(),
        }
    }
}

/// Whether duplicates are blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Duplicates are blocked or replayed.
    Enforce,
    /// Every request runs. Metrics and log report what `enforce` would have done.
    Observe,
    /// Requests pass through unexamined.
    Off,
}

/// The conventions that requests and responses follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// The IETF draft of the `Idempotency-Key` header.
    Ietf,
    /// The behavior of Stripe's API.
    Stripe,
    /// Intake forms, where replays have status 200.
    Intake,
    /// The Agentic Commerce Protocol.
    Acp,
    /// The REST catalog of Apache Iceberg.
    Iceberg,
    /// Repeatable Requests 1.0 (OASIS): `Repeatability-Request-ID` and `Repeatability-First-Sent`.
    Repeatable,
}

/// The form that a key must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeyShape {
    /// Any key.
    Any,
    /// A UUID of any version.
    Uuid,
    /// A UUID of version 7, which carries its time.
    UuidV7,
    /// A ULID, which carries its time.
    Ulid,
}

/// What happens to a key if the process that runs its request crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Crash {
    /// The next request with the key runs it again (at least once).
    Takeover,
    /// The key is in doubt until an operator resolves it (at most once). For effects that cannot be
    /// undone.
    Hold,
}

/// What happens to a key if no response came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LostAnswer {
    /// The same as after a crash: see `crash`.
    Crash,
    /// The key is in doubt, even with `crash = "takeover"`.
    Doubt,
}

/// What a request does while another request with the same key is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[schema(as = Busy)]
#[serde(rename_all = "lowercase")]
pub enum OnBusy {
    /// It waits for the response of the running request.
    Wait,
    /// It is refused at once.
    Refuse,
}

/// What happens to requests while the store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StoreDown {
    /// They get 503, and nothing is forwarded.
    Closed,
    /// They are forwarded without protection. This is counted and logged.
    Open,
}

/// Which parts of a request must be the same in a retry.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Fingerprint {
    /// Whether to compare the method.
    pub method: bool,
    /// Whether to compare the host.
    pub authority: bool,
    /// Whether to compare the path.
    pub path: bool,
    /// Whether to compare the query.
    pub query: bool,
    /// Whether to compare the media type of the body.
    pub content_type: bool,
    /// Headers to compare as well.
    #[schemars(extend("items" = {"type": "string", "format": "header"}))]
    pub headers: Vec<String>,
    /// How to compare bodies.
    pub body: Compare,
    /// JSON pointers to the only parts of a JSON body to compare, such as `/order/id` or
    /// `/items/*/id`.
    #[schemars(extend("items" = {"type": "string", "format": "pointer"}))]
    pub include: Vec<String>,
    /// JSON pointers to the parts of a JSON body to ignore, such as `/sent_at`.
    #[schemars(extend("items" = {"type": "string", "format": "pointer"}))]
    pub exclude: Vec<String>,
}

impl Default for Fingerprint {
    fn default() -> Self {
        Self {
            method: true,
            authority: true,
            path: true,
            query: true,
            content_type: true,
            headers: Vec::new(),
            body: Compare::Meaning,
            include: Vec::new(),
            exclude: Vec::new(),
        }
    }
}

/// How to compare bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compare {
    /// JSON by its content: the order of members and white space are ignored. Other bodies by their
    /// bytes.
    Meaning,
    /// By their bytes.
    Bytes,
    /// Bodies are not compared.
    Nothing,
}
