//! A server with both APIs on real sockets, and a client for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use semel::{Encryption, EngineConfig, Policy, Semel};
use semel_httpclient::{Answer, Client, Protocol};
use semel_server::admin::{self, AdminConfig, AdminState};
use semel_server::api::{self, ApiConfig, ApiState};
use semel_server::audit::{FileConfig, FileSink, Sink, Trail, TrailConfig};
use semel_server::operators::Credential;
use semel_server::web::{Access, Tokens};
use semel_testkit::private::new_folder;
use serde_json::Value;
use tokio::net::TcpListener;

pub(crate) const ACME: &str = "token-of-acme-0001";
pub(crate) const OTHER: &str = "token-of-other-0002";
pub(crate) const ADMIN: &str = "token-of-the-admin-0003";

/// The stores that every test runs on. A missing server is a failure.
pub(crate) fn stores() -> Vec<String> {
    let of = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    vec![
        "memory://".to_owned(),
        of("SEMEL_TEST_REDIS_URL"),
        of("SEMEL_TEST_POSTGRES_URL"),
        of("SEMEL_TEST_MARIADB_URL"),
        format!("sqlite://{}/keys.db", new_folder("apis").display()),
    ]
}

/// A server with both APIs, each on its own port.
pub(crate) struct Server {
    pub(crate) semel: Semel,
    pub(crate) trail: Trail,
    pub(crate) api: String,
    pub(crate) admin: String,
    pub(crate) audit_file: std::path::PathBuf,
}

/// The settings that a test changes.
pub(crate) struct Setup {
    pub(crate) environment: String,
    pub(crate) policy: Policy,
    pub(crate) config: ApiConfig,
    pub(crate) open: bool,
    pub(crate) encryption: Option<Encryption>,
}

impl Default for Setup {
    fn default() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::SeqCst);
        Self {
            // Unique for every run of a test, because the stores keep their data.
            environment: format!("api-{}-{count}-{:x}", std::process::id(), seed()),
            policy: Policy::default(),
            config: ApiConfig::default(),
            open: false,
            encryption: None,
        }
    }
}

fn seed() -> u128 {
    semel_core::Entropy::next_u128(&semel_core::env::SystemEntropy) & 0xffff_ffff
}

impl Server {
    pub(crate) async fn start(store: &str) -> Self {
        Self::with(store, Setup::default()).await
    }

    pub(crate) async fn with(store: &str, setup: Setup) -> Self {
        let env = semel::tokio_env();
        let audit_file = new_folder("audit").join("audit.jsonl");
        let sink = FileSink::open(FileConfig::new(&audit_file), Arc::clone(&env.clock));
        let sink: Arc<dyn Sink> = Arc::new(sink.expect("a file to write to"));
        let trail = Trail::start(sink, TrailConfig::default(), env);
        let mut builder = Semel::builder();
        if let Some(encryption) = setup.encryption {
            builder = builder.encryption(encryption);
        }
        let semel = builder
            .environment(&setup.environment)
            .policy(setup.policy)
            .engine_config(EngineConfig::default())
            .observer(Arc::new(trail.clone()))
            .open(store)
            .await
            .expect("a store");
        let mut tokens = Tokens::default();
        tokens.add("acme", ACME).expect("a token");
        tokens.add("other", OTHER).expect("a token");
        let access = if setup.open {
            Access::Open
        } else {
            Access::Tokens(tokens)
        };
        let api = api::router(ApiState::new(semel.clone(), access, setup.config));
        let credential = Credential::token(ADMIN).expect("a token");
        let config = AdminConfig {
            max_streams: 2,
            ..AdminConfig::default()
        };
        let state = AdminState::new(semel.clone(), trail.clone(), credential, config);
        Self {
            semel,
            trail,
            api: serve(api).await,
            admin: serve(admin::router(state)).await,
            audit_file,
        }
    }

    /// The access rule of the protocol API.
    pub(crate) fn access(&self) -> Access {
        let mut tokens = Tokens::default();
        tokens.add("acme", ACME).expect("a token");
        tokens.add("other", OTHER).expect("a token");
        Access::Tokens(tokens)
    }

    /// Adds a job queue to the admin API.
    pub(crate) fn admin_with(&self, jobs: &semel_jobs::Jobs) -> axum::Router {
        let credential = Credential::token(ADMIN).expect("a token");
        let (semel, trail) = (self.semel.clone(), self.trail.clone());
        let state = AdminState::new(semel, trail, credential, AdminConfig::default());
        admin::router(state.with_jobs(jobs.clone()))
    }

    /// Calls the protocol API as tenant `acme`.
    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        call(&self.api, "POST", path, Some(ACME), &body.to_string()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        call(&self.api, "GET", path, Some(ACME), "").await
    }

    /// Calls the admin API.
    pub(crate) async fn act(&self, path: &str, body: Value) -> Reply {
        call(&self.admin, "POST", path, Some(ADMIN), &body.to_string()).await
    }

    pub(crate) async fn see(&self, path: &str) -> Reply {
        call(&self.admin, "GET", path, Some(ADMIN), "").await
    }

    /// The lines of the audit file.
    pub(crate) async fn audited(&self) -> Vec<Value> {
        self.trail.flush().await;
        let text = std::fs::read_to_string(&self.audit_file).expect("the audit file");
        text.lines()
            .map(|line| serde_json::from_str(line).expect("a line of JSON"))
            .filter(|entry: &Value| entry["type"] != "audit.checkpoint")
            .collect()
    }
}

pub(crate) async fn serve(app: axum::Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: hyper::HeaderMap,
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn text(&self, member: &str) -> &str {
        self.body[member]
            .as_str()
            .unwrap_or_else(|| panic!("no {member} in {}", self.text))
    }

    pub(crate) fn code(&self) -> &str {
        self.text("code")
    }

    /// The token and fence of the lease, as members of a later call.
    pub(crate) fn lease(&self) -> (String, u64) {
        assert_eq!(
            (self.status, self.text("status")),
            (201, "claimed"),
            "{}",
            self.text
        );
        let token = self.body["lease"]["token"]
            .as_str()
            .expect("a token")
            .to_owned();
        (
            token,
            self.body["lease"]["fence"].as_u64().expect("a fence"),
        )
    }
}

pub(crate) async fn send(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> hyper::Response<Incoming> {
    let mut request = hyper::Request::builder().method(method).uri(path);
    if !headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("host"))
    {
        request = request.header("host", address);
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request
        .body(Full::new(Bytes::from(body.to_owned())))
        .expect("a request");
    let mut client = Client::connect(address, Protocol::Http1).await;
    client.begin(request).await
}

pub(crate) async fn call(
    address: &str,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: &str,
) -> Reply {
    let bearer = format!("Bearer {}", token.unwrap_or_default());
    let mut headers = vec![];
    if token.is_some() {
        headers.push(("authorization", bearer.as_str()));
    }
    if !body.is_empty() {
        headers.push(("content-type", "application/json"));
    }
    read(send(address, method, path, &headers, body).await).await
}

pub(crate) async fn read(response: hyper::Response<Incoming>) -> Reply {
    let answer = Answer::read(response).await.expect("a body");
    Reply {
        status: answer.status.as_u16(),
        body: serde_json::from_slice(&answer.body).unwrap_or_default(),
        text: String::from_utf8_lossy(&answer.body).into_owned(),
        headers: answer.headers,
    }
}

/// Sleeps in real time, because the servers are real.
pub(crate) async fn pause(time: Duration) {
    semel::tokio_env().clock.sleep(time).await;
}
