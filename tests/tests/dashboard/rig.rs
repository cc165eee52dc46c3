//! A real sidecar on a Redis of the test's own, a small service behind it, and a browser in front.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use semel_httpclient::Pool;
use semel_testkit::private::{Private, RedisServer, free_port, new_folder};
use semel_tests::{semel, semel_command};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::Command;

const TOKEN: &str = "token-of-the-operator-0001";

/// In the body of every request.
pub(crate) const PAYLOAD: &str = "4929-1234-5678-9012";

#[expect(clippy::disallowed_methods, reason = "real processes run on real time")]
pub(crate) async fn pause(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

/// All of it.
pub(crate) struct Rig {
    pub(crate) redis: Option<RedisServer>,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) client: Pool,
    folder: PathBuf,
    _sidecar: Private,
}

fn local() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::start_with("").await
    }

    /// With these settings besides.
    pub(crate) async fn start_with(more: &str) -> Self {
        let redis = RedisServer::start(&[]).await;
        let mut rig = Self::on(redis.url(), more).await;
        rig.redis = Some(redis);
        rig
    }

    /// With its records there, and these settings besides.
    pub(crate) async fn on(store: String, more: &str) -> Self {
        let (address, admin, upstream) = (local(), local(), service().await);
        let folder = new_folder("dashboard");
        let audit = folder.join("audit.jsonl");
        std::fs::write(folder.join("token"), TOKEN).expect("a file");
        let settings = format!(
            "environment = \"production\"\nlistener.address = \"{address}\"\nadmin.address = \"{admin}\"\n\
             admin.token_file = \"{}\"\nstore.url = \"{}\"\nupstream.urls = [\"http://{upstream}\"]\n\
             upstream.response_timeout = \"2s\"\naudit.file = \"{}\"\napi.access = \"loopback\"\n\
             engine.breaker_first_try = \"2s\"\nengine.breaker_open_for = \"2s\"\n\
             {more}[[routes]]\npath = \"/charges\"\n[[routes]]\npath = \"/transfers\"\ncrash = \"hold\"\n\
             [[routes]]\npath = \"/orders\"\nmode = \"observe\"\n",
            folder.join("token").display(),
            store,
            audit.display(),
        );
        let file = folder.join("semel.toml");
        std::fs::write(&file, settings).expect("a file");
        let mut command = semel_command(&semel());
        let log = std::fs::File::create(folder.join("log")).expect("a file");
        let mut sidecar = Private::saying_to(command.args(["serve", "--config"]).arg(&file), log);
        let client = Pool::new(Duration::from_secs(30));
        let ready = format!("http://{address}/_semel/readyz");
        for _ in 0..1500 {
            assert!(sidecar.runs(), "the sidecar ended at its start");
            if client
                .get(&ready)
                .await
                .is_ok_and(|reply| reply.status == 200)
            {
                return Self {
                    redis: None,
                    address,
                    admin,
                    client,
                    folder,
                    _sidecar: sidecar,
                };
            }
            pause(20).await;
        }
        panic!("the sidecar is never ready");
    }

    /// A request through the sidecar. → its status
    pub(crate) async fn send(&self, path: &str, key: &str, body: &Value) -> u16 {
        let url = format!("http://{}{path}", self.address);
        let mut body = body.clone();
        body["card"] = PAYLOAD.into();
        let reply = self.client.post(&url, key, body.to_string()).await;
        reply.map_or(0, |reply| reply.status.as_u16())
    }

    /// A call of the protocol API.
    pub(crate) async fn call(&self, path: &str, body: &Value) -> Value {
        let url = format!("http://{}/_semel{path}", self.address);
        self.json(Request::post(url), body).await.1
    }

    /// A call of the queue's API.
    pub(crate) async fn mesh(&self, path: &str, body: &Value) -> Value {
        let url = format!("http://{}/mesh/{path}", self.address);
        self.json(Request::post(url), body).await.1
    }

    /// A call of the admin API: a reading one without a body.
    pub(crate) async fn operate(&self, path: &str, body: Option<&Value>) -> (u16, Value) {
        let url = format!("http://{}/admin/v1/{path}", self.admin);
        let builder = if body.is_some() {
            Request::post(url)
        } else {
            Request::get(url)
        };
        let builder = builder.header("authorization", format!("Bearer {TOKEN}"));
        self.json(builder, body.unwrap_or(&Value::Null)).await
    }

    async fn json(&self, builder: http::request::Builder, body: &Value) -> (u16, Value) {
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let request = builder
            .header("content-type", "application/json")
            .body(Full::from(text));
        let reply = self.client.send(request.expect("a request")).await;
        let reply = reply.expect("an answer");
        (
            reply.status.as_u16(),
            serde_json::from_slice(&reply.body).unwrap_or_default(),
        )
    }

    /// The hash of a key, once it has a record.
    pub(crate) async fn id(&self, scope: &str, key: &str) -> String {
        let asked = json!({"scope": scope, "key": key});
        for _ in 0..500 {
            let (status, record) = self.operate("lookups", Some(&asked)).await;
            if let (200, Some(id)) = (status, record["id"].as_str()) {
                return id.to_owned();
            }
            pause(20).await;
        }
        panic!("{key} has no record");
    }

    pub(crate) async fn record(&self, id: &str) -> Value {
        self.operate(&format!("records/{id}"), None).await.1
    }

    /// The lines of the audit file about this key and of this kind.
    pub(crate) fn audited(&self, id: &str, kind: &str) -> Vec<Value> {
        let mut told = self.told(kind);
        told.retain(|line| line["id"] == id);
        told
    }

    /// The lines of the audit file of this kind.
    pub(crate) fn told(&self, kind: &str) -> Vec<Value> {
        let text = self.written("audit.jsonl");
        let lines = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"));
        lines.filter(|line: &Value| line["type"] == kind).collect()
    }

    /// All metrics.
    pub(crate) async fn metrics(&self) -> String {
        let builder = Request::get(format!("http://{}/metrics", self.admin));
        let builder = builder.header("authorization", format!("Bearer {TOKEN}"));
        let request = builder.body(Full::default()).expect("a request");
        let answer = self.client.send(request).await.expect("an answer");
        answer.text().to_owned()
    }

    fn written(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.join(file)).expect("a file")
    }

    /// Whole keys, payloads and tokens are their owners': log lines, audit trail, metrics and the
    /// dashboard's own source have none of them.
    pub(crate) async fn tells_no_secret(&self, keys: &[&str]) {
        let metrics = self.metrics().await;
        assert!(
            metrics.contains("semel_request_duration_seconds"),
            "{metrics}"
        );
        let log = self.written("log");
        assert!(log.contains("idempotency."), "nothing is logged: {log}");
        let live = self.operate("live", None).await.1.to_string();
        let all = [metrics, log, live, self.written("audit.jsonl")].concat();
        for secret in keys.iter().chain(&[TOKEN, PAYLOAD]) {
            assert!(!all.contains(secret), "{secret} is told");
        }
    }

    /// Starts a scenario in the browser.
    pub(crate) fn browse(&self, scenario: &str, args: &Value) -> Browser {
        browse(&format!("http://{}", self.admin), scenario, args)
    }
}

/// Starts a scenario in the browser, at this address.
pub(crate) fn browse(url: &str, scenario: &str, args: &Value) -> Browser {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/dashboard"));
    for name in ["SEMEL_TEST_PLAYWRIGHT", "SEMEL_TEST_CHROMIUM"] {
        assert!(
            std::env::var_os(name).is_some(),
            "{name}: see `cargo xtask services up dashboard`"
        );
    }
    let shots = std::env::var_os("SEMEL_SHOTS").map_or_else(|| new_folder("shots"), PathBuf::from);
    let mut command = Command::new("node");
    command.arg(folder.join("scenarios.mjs")).arg(scenario);
    command.env("URL", url).env("TOKEN", TOKEN);
    command.env("ARGS", args.to_string()).env("SHOTS", shots);
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().expect("node");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    Browser { child, lines }
}

/// A scenario that goes on.
pub(crate) struct Browser {
    child: tokio::process::Child,
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl Browser {
    /// Waits until the scenario has got so far.
    pub(crate) async fn says(&mut self, word: &str) {
        while let Ok(Some(line)) = self.lines.next_line().await {
            if line == word {
                return;
            }
        }
        let mut errors = String::new();
        let stderr = self.child.stderr.as_mut().expect("a pipe");
        stderr.read_to_string(&mut errors).await.expect("text");
        panic!("{errors}");
    }
}

/// Charges in a few milliseconds; of a transfer whose body says so, nothing is ever heard.
async fn service() -> SocketAddr {
    async fn charge(headers: HeaderMap, body: Bytes) -> (StatusCode, String) {
        let key = headers
            .get("idempotency-key")
            .map_or(&[][..], |key| key.as_bytes());
        let sum: u64 = key.iter().map(|byte| u64::from(*byte)).sum();
        // Most are quick, one in seventeen is not.
        pause(if sum.is_multiple_of(17) {
            160
        } else {
            8 + sum % 30
        })
        .await;
        (
            StatusCode::CREATED,
            format!("{{\"charge\":{}}}", body.len()),
        )
    }
    async fn transfer(body: Bytes) -> (StatusCode, String) {
        if body.windows(4).any(|word| word == b"lost") {
            std::future::pending::<()>().await;
        }
        (StatusCode::CREATED, "{}".to_owned())
    }
    let router = Router::new()
        .route("/charges", post(charge))
        .route("/orders", post(charge))
        .route("/transfers", post(transfer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}
