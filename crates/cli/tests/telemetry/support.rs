//! The real program in front of a service, on a private store.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::Full;
use parking_lot::Mutex;
use semel_testkit::private::{RedisServer, free_port, new_folder};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Notify;

#[expect(clippy::disallowed_methods, reason = "real processes run on real time")]
pub(crate) async fn pause() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

/// A running program and its surroundings.
pub(crate) struct Rig<S = RedisServer> {
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) store: S,
    pub(crate) log: Arc<Mutex<Vec<String>>>,
    pub(crate) folder: PathBuf,
    /// Lets one slow request finish.
    pub(crate) gate: Arc<Notify>,
    _child: Child,
}

impl Rig {
    pub(crate) async fn start(more: &str) -> Self {
        let redis = RedisServer::start(&[]).await;
        let url = redis.url();
        Self::on(redis, &url, more).await
    }
}

impl<S> Rig<S> {
    /// The program with a store at `url`.
    pub(crate) async fn on(store: S, url: &str, more: &str) -> Self {
        let gate = Arc::new(Notify::new());
        let upstream = service(&gate).await;
        let port = || SocketAddr::from(([127, 0, 0, 1], free_port()));
        let (address, admin) = (port(), port());
        let folder = new_folder("telemetry");
        let file = folder.join("semel.toml");
        let settings = format!(
            "listener.address = \"{address}\"\nadmin.address = \"{admin}\"\nadmin.open = true\nstore.url = \"{url}\"\nupstream.urls = [\"http://{upstream}\"]\naudit.file = \"{}\"\n{more}",
            folder.join("audit.jsonl").display(),
        );
        std::fs::write(&file, settings).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SEMEL_")) {
            command.env_remove(name);
        }
        command.args(["serve", "--config"]).arg(&file);
        command.kill_on_drop(true).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program");
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let kept = Arc::clone(&log);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                kept.lock().push(line);
            }
        });
        let rig = Self {
            address,
            admin,
            store,
            log,
            folder,
            gate,
            _child: child,
        };
        rig.says("listening on").await;
        rig
    }

    /// Waits for a log line with these words.
    pub(crate) async fn says(&self, words: &str) -> String {
        for _ in 0..1000 {
            let found = self
                .log
                .lock()
                .iter()
                .find(|line| line.contains(words))
                .cloned();
            if let Some(line) = found {
                return line;
            }
            pause().await;
        }
        panic!("nothing says {words:?}:\n{}", self.log.lock().join("\n"));
    }

    /// Returns the status and the body.
    pub(crate) async fn post(&self, path: &str, key: Option<&str>, body: &str) -> (u16, String) {
        post(self.address, path, key, body).await
    }

    pub(crate) async fn metrics(&self) -> Metrics {
        let url = format!("http://{}/metrics", self.admin);
        let (status, text) = get(&url).await;
        assert_eq!(status, 200, "{text}");
        Metrics(text)
    }
}

pub(crate) async fn post(
    address: SocketAddr,
    path: &str,
    key: Option<&str>,
    body: &str,
) -> (u16, String) {
    let mut request =
        Request::post(format!("http://{address}{path}")).header("content-type", "application/json");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    send(
        request
            .body(Full::from(body.to_owned()))
            .expect("a request"),
    )
    .await
}

pub(crate) async fn get(url: &str) -> (u16, String) {
    send(Request::get(url).body(Full::default()).expect("a request")).await
}

pub(crate) async fn send(request: Request<Full<Bytes>>) -> (u16, String) {
    let answer = semel_httpclient::send(request).await;
    (answer.status.as_u16(), answer.text().to_owned())
}

/// Answers by path: `slow` waits for permission, `fail` is a 500.
async fn service(gate: &Arc<Notify>) -> SocketAddr {
    let gate = Arc::clone(gate);
    let handler = move |uri: http::Uri, headers: HeaderMap, body: Bytes| async move {
        if uri.path().contains("slow") {
            gate.notified().await;
        }
        let status = if uri.path().contains("fail") {
            500
        } else {
            200
        };
        let trace = headers
            .get("traceparent")
            .and_then(|value| value.to_str().ok());
        let text = match trace {
            Some(trace) if uri.path().contains("traced") => trace.to_owned(),
            _ => format!("done with {} bytes", body.len()),
        };
        (http::StatusCode::from_u16(status).unwrap_or_default(), text)
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = Router::new().fallback(any(handler));
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// The scraped text.
pub(crate) struct Metrics(pub(crate) String);

impl Metrics {
    /// The sum of the samples of `name` with all these labels; `None` if there are none.
    pub(crate) fn get(&self, name: &str, labels: &[&str]) -> Option<f64> {
        let mut sum = None;
        for line in self.0.lines() {
            let Some(rest) = line.strip_prefix(name) else {
                continue;
            };
            if !rest.starts_with([' ', '{']) || !labels.iter().all(|label| rest.contains(label)) {
                continue;
            }
            let value = rest
                .rsplit(' ')
                .next()
                .and_then(|text| text.parse::<f64>().ok());
            *sum.get_or_insert(0.0) += value.expect("a number");
        }
        sum
    }

    #[track_caller]
    pub(crate) fn is(&self, name: &str, labels: &[&str], wanted: f64) {
        let found = self.get(name, labels);
        assert!(
            found.is_some_and(|found| (found - wanted).abs() < 1e-9),
            "{name} {labels:?} is {found:?}, not {wanted}"
        );
    }
}
