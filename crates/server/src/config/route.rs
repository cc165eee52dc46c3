//! How the requests of one route are treated.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::units::{Size, Span};

/// A route, and how it is treated. What isn't said is as in `defaults`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RouteEntry {
    /// The path: `/charges/{id}/capture`, where `{id}` is any one segment and `{*rest}`, last, any number.
    #[schemars(extend("format" = "route"))]
    pub path: String,
    /// Everything else.
    #[serde(flatten)]
    pub settings: RouteSettings,
}

/// How requests are treated.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RouteSettings {
    /// Enforce, observe, or off.
    pub mode: Mode,
    /// Whose conventions apply where APIs differ.
    pub profile: Profile,
    /// The methods covered; others pass.
    #[schemars(extend("items" = {"type": "string", "format": "method"}))]
    pub methods: Vec<String>,
    /// Whether a request without a key is refused. As the profile says, where not set.
    pub require_key: Option<bool>,
    /// The header that has the key. `Idempotency-Key` or `X-Idempotency-Key`, where not set.
    #[schemars(extend("format" = "header"))]
    pub key_header: Option<String>,
    /// The member of a JSON body that has the key, instead of a header. Every body of the route is then read first.
    pub key_field: Option<String>,
    /// The scope of its keys: two routes with the same scope share them. The route's path, where not set; `http` for what no route fits.
    pub scope: Option<String>,
    /// What becomes of a key whose request began, and whose end nobody saw.
    pub crash: Crash,
    /// What a lost answer means: the service was asked, and it did not answer in time, or the connection broke.
    pub lost_answer: LostAnswer,
    /// What a request does while another with its key runs. As the profile says, where not set.
    pub on_busy: Option<OnBusy>,
    /// How long it waits at most.
    pub wait: Span,
    /// The most requests of this process that wait for one key.
    pub max_waiters: usize,
    /// The most requests with a key that are with the service at a time, of this route. `limits.running` is for all together.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_running: Option<usize>,
    /// How long answers are kept.
    pub retention: Span,
    /// The longest retention that callers may choose with `X-Idempotency-TTL` (milliseconds). They may not, where not set.
    pub caller_retention: Option<Span>,
    /// How long a node may be silent before it counts as gone. It renews its lease at every third of this.
    pub lease: Span,
    /// The most runs begun before a vanished node means "in doubt", also under takeover.
    #[schemars(range(min = 1))]
    pub max_attempts: u16,
    /// Whether requests go through unprotected when the store gives no answer.
    pub store_down: StoreDown,
    /// The most bytes of the body of a request with a key.
    pub max_body: Size,
    /// How long such a body may take.
    pub body_time: Span,
    /// The largest answer body kept. A larger one is not kept, and its replay says so.
    pub max_answer: Size,
    /// How long an answer's body is gathered before it counts as a stream, which isn't kept.
    pub gather_time: Span,
    /// Whether answers are streams: none is kept, and none is held back to be gathered.
    pub streams: bool,
    /// Headers of answers that are kept for replays, besides the usual ones.
    #[schemars(extend("items" = {"type": "string", "format": "header"}))]
    pub keep_headers: Vec<String>,
    /// Whether the route has tenants, where `tenants` says how to find them.
    pub has_tenants: bool,
    /// What makes a request the same request.
    pub fingerprint: Fingerprint,
}

impl Default for RouteSettings {
    fn default() -> Self {
        let policy = semel::Policy::default();
        let limits = semel::http::Limits::default();
        Self {
            mode: Mode::Enforce,
            profile: Profile::Ietf,
            methods: vec!["POST".to_owned(), "PATCH".to_owned()],
            require_key: None,
            key_header: None,
            key_field: None,
            scope: None,
            crash: Crash::Takeover,
            lost_answer: LostAnswer::Crash,
            on_busy: None,
            wait: Span(std::time::Duration::from_secs(30)),
            max_waiters: policy.max_waiters_per_key,
            max_running: None,
            retention: Span(policy.retention),
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
            has_tenants: true,
            fingerprint: Fingerprint::default(),
        }
    }
}

/// Whether the answer decides anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Duplicates are answered, not run.
    Enforce,
    /// Everything runs; what enforcing would have done is reported.
    Observe,
    /// Nothing is looked at.
    Off,
}

/// Whose conventions apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// The IETF draft's.
    Ietf,
    /// As Stripe's API behaves.
    Stripe,
    /// Intake forms: replays answer 200.
    Intake,
    /// The Agentic Commerce Protocol.
    Acp,
}

/// What becomes of a key whose request began, and whose end nobody saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Crash {
    /// The next request with the key runs it again: at least once.
    Takeover,
    /// It is in doubt until somebody resolves it: at most once. For effects that can't be undone.
    Hold,
}

/// What a lost answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LostAnswer {
    /// The same as a crash: as `crash` says.
    Crash,
    /// In doubt, also under takeover.
    Doubt,
}

/// What a request does while another with its key runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnBusy {
    /// It waits for the other's answer.
    Wait,
    /// It is told so at once.
    Refuse,
}

/// Whether requests go through when the store gives no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StoreDown {
    /// No: 503, and nothing is forwarded.
    Closed,
    /// Yes, unprotected. It is counted and logged.
    Open,
}

/// What makes a request the same request.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Fingerprint {
    /// Whether the method counts.
    pub method: bool,
    /// Whether the host that was asked counts.
    pub authority: bool,
    /// Whether the path counts.
    pub path: bool,
    /// Whether the query counts.
    pub query: bool,
    /// Whether the media type of the body counts.
    pub content_type: bool,
    /// Headers that count as well.
    #[schemars(extend("items" = {"type": "string", "format": "header"}))]
    pub headers: Vec<String>,
    /// How bodies are compared.
    pub body: Compare,
    /// Of a JSON body, only what these JSON pointers lead to counts: `/order/id`, `/items/*/id`.
    #[schemars(extend("items" = {"type": "string", "format": "pointer"}))]
    pub include: Vec<String>,
    /// Of a JSON body, what these JSON pointers lead to doesn't count: `/sent_at`.
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

/// How bodies are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compare {
    /// JSON by its meaning: the order of members and white space don't count. Anything else by its bytes.
    Meaning,
    /// By their bytes.
    Bytes,
    /// Not at all: the key alone says what is asked for.
    Nothing,
}
