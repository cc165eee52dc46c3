//! The settings, as a tree of types. Doc comments become the schema, `docs/config.md` and `semel config explain`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::jobs::Jobs;
use super::kept::Audit;
use super::limits::Limits;
use super::route::{RouteEntry, RouteSettings};
use super::seen::{Log, Metrics, Traces};
use super::units::{Size, Span};
use super::whose::{Credentials, Jwt, Whose};

/// All settings of `semel serve`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Semel configuration")]
pub struct Config {
    /// Such as `production`: keys of different environments never meet, also in one store.
    pub environment: String,
    /// How long requests may go on after SIGTERM before they are cut off.
    pub drain_time: Span,
    /// Where the records are kept.
    pub store: Store,
    /// The service that requests are forwarded to.
    pub upstream: Upstream,
    /// Where requests are taken.
    pub listener: Listener,
    /// How much is taken at a time, and how much of that one caller may have.
    pub limits: Limits,
    /// A second listener, for operators: health, and the admin API.
    pub admin: Admin,
    /// The protocol API, for code that isn't HTTP-shaped: claims by hand, under `listener.own_path`.
    pub api: Api,
    /// The queue of jobs: submitted many times, enqueued once.
    pub jobs: Jobs,
    /// What happened and who did what.
    pub audit: Audit,
    /// Readiness and the self-check.
    pub health: Health,
    /// What is logged, and how.
    pub log: Log,
    /// Figures for Prometheus.
    pub metrics: Metrics,
    /// Traces for OpenTelemetry.
    pub traces: Traces,
    /// What a key may look like.
    pub keys: Keys,
    /// What concerns the whole process rather than one route.
    pub engine: Engine,
    /// Whose request it is: keys of different tenants never meet.
    pub tenants: Whose,
    /// Who asks: keys of different callers never meet. Without one, the credentials count as payload.
    pub principals: Whose,
    /// What counts as credentials where nobody says who asks: a key that is used with others is refused.
    pub credentials: Credentials,
    /// How JSON web tokens are read, where tenants or principals come from one.
    pub jwt: Jwt,
    /// How requests are treated that no route fits; and what a route doesn't say itself.
    pub defaults: RouteSettings,
    /// Routes with settings of their own. The first whose path fits counts.
    pub routes: Vec<RouteEntry>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            environment: String::new(),
            drain_time: seconds(30),
            store: Store::default(),
            upstream: Upstream::default(),
            listener: Listener::default(),
            limits: Limits::default(),
            admin: Admin::default(),
            api: Api::default(),
            jobs: Jobs::default(),
            audit: Audit::default(),
            health: Health::default(),
            log: Log::default(),
            metrics: Metrics::default(),
            traces: Traces::default(),
            keys: Keys::default(),
            engine: Engine::default(),
            tenants: Whose::new("tenant_id"),
            principals: Whose::new("sub"),
            credentials: Credentials::default(),
            jwt: Jwt::default(),
            defaults: RouteSettings::default(),
            routes: Vec::new(),
        }
    }
}

pub(super) const fn seconds(seconds: u64) -> Span {
    Span(std::time::Duration::from_secs(seconds))
}

/// Where the records are kept.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// The store's URL: `redis://127.0.0.1`, `postgres://user@host/database`, `mysql://user@host/database`, `sqlite:///path`, `s3://bucket/prefix`, `memory://` for trying out.
    #[schemars(extend("format" = "store-url"))]
    pub url: Option<String>,
    /// A file that has the URL, for one with a password in it. Instead of `url`.
    #[schemars(extend("format" = "file"))]
    pub url_file: Option<String>,
    /// A file with at least 16 random bytes, the same on every node: with it, whoever reads the store can't test guesses of keys and payloads.
    #[schemars(extend("format" = "file"))]
    pub secret_file: Option<String>,
    /// The id of that secret, which records carry. The same on every node, as the secret is: a store (and environment) that was used with one takes no other.
    #[schemars(range(min = 1))]
    pub secret_id: Option<u16>,
    /// A bucket for large answers, where room costs less than in the store: `s3://bucket/prefix`, `gs://…`, `az://…`. The record keeps their length and digest. The same on every node; `semel lifecycle` prints the rule with which the bucket removes what expired.
    #[schemars(extend("format" = "store-url"))]
    pub body_store: Option<String>,
    /// Bodies of more bytes than this go to `body_store`.
    pub body_store_above: Size,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            url: None,
            url_file: None,
            secret_file: None,
            secret_id: None,
            body_store: None,
            body_store_above: Size(64 * 1024),
        }
    }
}

/// The service that requests are forwarded to.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Upstream {
    /// Its URL, or several for copies of one service, which are used in turn.
    #[schemars(extend("items" = {"type": "string", "format": "http-url"}))]
    pub urls: Vec<String>,
    /// How HTTP is spoken to it.
    pub protocol: Protocol,
    /// Which `Host` it is sent over HTTP/1.1: the one that the client sent, or its own. `X-Forwarded-Host` has the client's in both cases.
    pub host: Host,
    /// A file of certificates (PEM) that its own is checked against. The machine's trusted ones, where not set.
    #[schemars(extend("format" = "file"))]
    pub ca_file: Option<String>,
    /// How long connecting may take, TLS included. Nothing was sent by then, so running out of it is safe to retry.
    pub connect_timeout: Span,
    /// How long the head of its answer may take once a request was sent. Running out of it leaves the outcome unknown.
    pub response_timeout: Span,
    /// How long a connection that nobody uses is kept. Keep it below the service's own limit (5 s in many frameworks): a request that meets a closing connection has an unknown outcome.
    pub idle_timeout: Span,
    /// The most unused connections kept for each URL.
    pub max_idle: usize,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            protocol: Protocol::Auto,
            host: Host::Client,
            ca_file: None,
            connect_timeout: seconds(5),
            response_timeout: seconds(60),
            idle_timeout: seconds(4),
            max_idle: 256,
        }
    }
}

/// How HTTP is spoken to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1; HTTP/2 where TLS agrees on it, for gRPC and with `host = "upstream"`.
    Auto,
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only, also without TLS (prior knowledge): for gRPC.
    H2c,
}

/// Which `Host` the service is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Host {
    /// The one that the client sent.
    Client,
    /// The one of its URL.
    Upstream,
}

/// Where requests are taken.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Listener {
    /// Address and port.
    #[schemars(extend("format" = "address"))]
    pub address: String,
    /// Paths under this one are Semel's own and are not forwarded: `/healthz`, `/readyz`, the protocol API. Empty: none are.
    pub own_path: String,
    /// The most bytes of a request's head.
    pub max_head: Size,
    /// The most bytes of any request's body, with a key or without. A request with a key has a bound of its own, `defaults.max_body`.
    pub max_body: Size,
    /// How long a request's head may take, and how long a connection may be without a request.
    pub head_timeout: Span,
    /// How long a request's body may pause, and how long a client may read nothing of an answer.
    pub body_timeout: Span,
    /// Whether `X-Forwarded-*` and their like are believed and added to, rather than taken out and replaced. Yes only behind another proxy, which `trusted_peers` names.
    pub trust_forwarded: bool,
    /// Addresses and networks (`10.0.0.0/8`) of what is in front. Nobody else says where a request comes from, or whose it is where that is read from a header. Needed for both, unless the listener is on loopback: there, whoever reaches it is believed where none are named.
    #[schemars(extend("items" = {"type": "string", "format": "network"}))]
    pub trusted_peers: Vec<String>,
    /// Whether header names with underscores are taken. Many services take `a_b` for `a-b`, so that a client could say what only whatever is in front may.
    pub allow_underscores: bool,
    /// Whether tokens of the protocol API may come in the clear, from other machines too. TLS belongs in front of them.
    pub insecure_tokens: bool,
    /// TLS.
    pub tls: Tls,
}

impl Default for Listener {
    fn default() -> Self {
        Self {
            address: "127.0.0.1:8080".to_owned(),
            own_path: "/_semel".to_owned(),
            tls: Tls::default(),
            max_head: Size(64 * 1024),
            max_body: Size(1 << 30),
            head_timeout: seconds(30),
            body_timeout: seconds(30),
            trust_forwarded: false,
            trusted_peers: Vec::new(),
            allow_underscores: false,
            insecure_tokens: false,
        }
    }
}

impl Listener {
    /// The networks whose word is taken. What is no network is nobody's.
    pub(crate) fn peers(&self) -> Vec<ipnet::IpNet> {
        let named = self.trusted_peers.iter();
        named.filter_map(|text| network(text)).collect()
    }

    /// Whether only this machine reaches it.
    pub(crate) fn is_on_loopback(&self) -> bool {
        super::is_loopback(&self.address)
    }
}

/// A network, or an address by itself.
pub(super) fn network(text: &str) -> Option<ipnet::IpNet> {
    let address = text.parse::<std::net::IpAddr>().map(ipnet::IpNet::from);
    text.parse().or(address).ok()
}

/// TLS of a listener. Files are read again on SIGHUP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// The certificate and those above it (PEM). Without one there is no TLS.
    #[schemars(extend("format" = "file"))]
    pub cert_file: Option<String>,
    /// Its key (PEM).
    #[schemars(extend("format" = "file"))]
    pub key_file: Option<String>,
    /// Certificates (PEM) that clients' own are checked against: mutual TLS.
    #[schemars(extend("format" = "file"))]
    pub client_ca_file: Option<String>,
    /// Whether clients without a certificate are let in all the same.
    pub client_optional: bool,
}

/// A second listener, for operators.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// Address and port. Without one there is no such listener.
    #[schemars(extend("format" = "address"))]
    pub address: Option<String>,
    /// A file with the token that the admin API asks for (`Authorization: Bearer …`). Without one the admin API answers nobody, unless `admin.tls.client_ca_file` asks for certificates or `open` is set.
    #[schemars(extend("format" = "file"))]
    pub token_file: Option<String>,
    /// A file with the operators who may call the admin API: their names, roles, and digests of their tokens, which `semel operator` makes. Instead of `token_file`; a change counts at once.
    #[schemars(extend("format" = "file"))]
    pub operators_file: Option<String>,
    /// The certificates that are let in, by their names, where `admin.tls.client_ca_file` asks for one. All that the CA signed, where none is named.
    pub allowed_names: Vec<String>,
    /// Whether the admin API answers everybody on this machine, without a token: every program here then reads all stored answers, and changes records. On a loopback address only.
    pub open: bool,
    /// Whether the token may come in the clear, from other machines too. TLS belongs in front of it.
    pub insecure_tokens: bool,
    /// Whether the dashboard is at `/` there. Its files load without the token, and show nothing without it.
    pub dashboard: bool,
    /// TLS; with `client_ca_file`, only clients with a certificate are let in.
    pub tls: Tls,
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            address: None,
            token_file: None,
            operators_file: None,
            allowed_names: Vec::new(),
            open: false,
            insecure_tokens: false,
            dashboard: true,
            tls: Tls::default(),
        }
    }
}

/// The protocol API.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Api {
    /// Who may call it.
    pub access: ApiAccess,
    /// A file of tokens, one a line: a tenant, a space, its token of at least 16 characters. A token alone is of no tenant.
    #[schemars(extend("format" = "file"))]
    pub tokens_file: Option<String>,
}

/// Who may call the protocol API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ApiAccess {
    /// Nobody: it isn't there.
    #[default]
    Off,
    /// Everybody on this machine, naming any tenant. Not behind a proxy on the same machine, which would let others in.
    Loopback,
    /// Whoever has a token of `tokens_file`.
    Tokens,
}

/// Readiness and the self-check.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Health {
    /// The self-check runs an operation twice and looks whether the second was a replay. What a failure at start means.
    pub self_check: SelfCheck,
    /// How often it is run again.
    pub self_check_every: Span,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            self_check: SelfCheck::Fail,
            self_check_every: seconds(30),
        }
    }
}

/// What a failed self-check means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SelfCheck {
    /// Don't start; later, not ready.
    Fail,
    /// Say so in the log and in `/readyz`, and go on.
    Warn,
    /// It isn't run.
    Off,
}

/// What a key may look like.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Keys {
    /// The longest key taken, in bytes.
    #[schemars(range(min = 1, max = 1024))]
    pub max_bytes: usize,
    /// Characters allowed besides `A-Z a-z 0-9 _ - .`
    pub extra: String,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            max_bytes: 255,
            extra: ":".to_owned(),
        }
    }
}

/// What concerns the whole process rather than one route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Engine {
    /// How long one call to the store may take.
    pub store_timeout: Span,
    /// Failures of the store in a row after which it is left alone for a while.
    #[schemars(range(min = 1))]
    pub breaker_failures: u32,
    /// How long it is left alone before a first request may try; with each one that fails, twice as long.
    pub breaker_first_try: Span,
    /// The longest that it is left alone between two tries.
    pub breaker_open_for: Span,
    /// The most bytes of answers kept in memory for replays; `0B` keeps none.
    pub cache_size: Size,
    /// The longest such a copy is used: how long a deletion by another node may go unnoticed.
    pub cache_age: Span,
}

impl Default for Engine {
    fn default() -> Self {
        let config = semel::EngineConfig::default();
        Self {
            store_timeout: Span(config.call_limit),
            breaker_failures: config.breaker.failures,
            breaker_first_try: Span(config.breaker.first_try),
            breaker_open_for: Span(config.breaker.open_for),
            cache_size: Size(config.cache.max_bytes),
            cache_age: Span(config.cache.max_age),
        }
    }
}
