//! Shared helpers: the program, a service behind it, and a client.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use rustix::process::{Pid, Signal, kill_process};
use semel_httpclient::{json, send};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Notify;

fn redis() -> String {
    std::env::var("SEMEL_TEST_REDIS_URL")
        .expect("SEMEL_TEST_REDIS_URL: see `cargo xtask services up`")
}

/// The program with these arguments, without the settings of this environment.
fn semel(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SEMEL_")) {
        command.env_remove(name);
    }
    command
        .args(arguments)
        .kill_on_drop(true)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A running `semel serve`.
pub(crate) struct RunningSemel {
    pub(crate) child: Child,
    address: SocketAddr,
    pub(crate) log: Arc<parking_lot::Mutex<Vec<String>>>,
}

impl RunningSemel {
    pub(crate) async fn start(file: &Path, address: SocketAddr) -> Self {
        let mut child = semel(&["serve", "--config", file.to_str().expect("as set up")])
            .spawn()
            .expect("as set up");
        let log = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let mut lines = BufReader::new(child.stderr.take().expect("as set up")).lines();
        let kept = Arc::clone(&log);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                kept.lock().push(line);
            }
        });
        let serving = Self {
            child,
            address,
            log,
        };
        serving.says("listening on").await;
        serving
    }

    /// Waits for a log line with these words.
    pub(crate) async fn says(&self, words: &str) {
        for _ in 0..1000 {
            if self.log.lock().iter().any(|line| line.contains(words)) {
                return;
            }
            pause().await;
        }
        panic!("nothing says {words:?}:\n{}", self.log.lock().join("\n"));
    }

    pub(crate) fn tell(&self, signal: Signal) {
        let id = self
            .child
            .id()
            .and_then(|id| Pid::from_raw(id.cast_signed()))
            .expect("as set up");
        kill_process(id, signal).expect("as set up");
    }

    pub(crate) async fn ask(&self, path: &str, key: &str) -> (u16, bool, String) {
        ask(self.address, path, key).await
    }
}

#[expect(clippy::disallowed_methods, reason = "real processes run on real time")]
pub(crate) async fn pause() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

/// Returns the status, whether it is a replay, and the body.
pub(crate) async fn ask(address: SocketAddr, path: &str, key: &str) -> (u16, bool, String) {
    let mut request = json("POST", &format!("http://{address}{path}"), "{}");
    let key = key.parse().expect("as set up");
    request.headers_mut().insert("idempotency-key", key);
    let answer = send(request).await;
    let replayed = answer.is_replay();
    (answer.status.as_u16(), replayed, answer.text().to_owned())
}

/// A service that counts its runs. A path with `slow` waits for permission.
pub(crate) async fn service(
    name: &'static str,
    runs: &Arc<AtomicUsize>,
    gate: &Arc<Notify>,
) -> SocketAddr {
    let (runs, gate) = (Arc::clone(runs), Arc::clone(gate));
    let handler = move |uri: http::Uri| async move {
        let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
        if uri.path().contains("slow") {
            gate.notified().await;
        }
        format!("{name} {run}")
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("as set up");
    let address = listener.local_addr().expect("as set up");
    let router = Router::new().fallback(any(handler));
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

pub(crate) fn write(file: &Path, listen: SocketAddr, upstream: SocketAddr, more: &str) {
    let settings = format!(
        "environment = \"test-{}-{}\"\n[listener]\naddress = \"{listen}\"\n[store]\nurl = \"{}\"\n[upstream]\nurls = [\"http://{upstream}\"]\n{more}",
        std::process::id(),
        listen.port(),
        redis(),
    );
    std::fs::write(file, settings).expect("as set up");
}

/// Returns the status and the body.
pub(crate) async fn call(
    method: &str,
    url: &str,
    token: Option<&str>,
    body: &str,
) -> (u16, String) {
    let mut request = json(method, url, body);
    if let Some(token) = token {
        let token = format!("Bearer {token}").parse().expect("a token");
        request.headers_mut().insert("authorization", token);
    }
    let answer = send(request).await;
    (answer.status.as_u16(), answer.text().to_owned())
}

/// Returns the exit code, standard output and standard error.
pub(crate) async fn run_semel(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = semel(arguments).output().await.expect("as set up");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("as set up");
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}
