//! The program, a service, and a sidecar in front of it.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use semel_httpclient::json;
use semel_testkit::private::{Private, free_port, new_folder};
use serde_json::Value;

/// How a command ended.
#[derive(Debug)]
pub(crate) struct CommandResult {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl CommandResult {
    /// The standard output of a successful command.
    #[track_caller]
    pub(crate) fn good(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }

    #[track_caller]
    pub(crate) fn json(self) -> Value {
        let out = self.good();
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }

    /// Asserts the exit code, and that the message contains these words.
    #[track_caller]
    pub(crate) fn failed(&self, code: i32, words: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.err.contains(words), "no {words:?} in {self:?}");
    }
}

/// The program without the settings of this environment.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SEMEL_")) {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Every command ends quickly; one that hangs fails the test.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs the program to its end.
pub(crate) async fn semel(arguments: &[&str]) -> CommandResult {
    let mut command = tokio::process::Command::from(command(arguments));
    let ended = tokio::time::timeout(TIMEOUT, command.kill_on_drop(true).output()).await;
    let ended = ended.unwrap_or_else(|_| panic!("it doesn't end: {arguments:?}"));
    let ended = ended.expect("as set up");
    CommandResult {
        code: ended.status.code().unwrap_or(-1),
        out: String::from_utf8(ended.stdout).expect("text"),
        err: String::from_utf8(ended.stderr).expect("text"),
    }
}

pub(crate) fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name}: see `cargo xtask services up`"))
}

#[expect(clippy::disallowed_methods, reason = "real processes run on real time")]
pub(crate) async fn pause() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

/// A service that answers on /charges, and never on /lost.
pub(crate) async fn service() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let address = listener.local_addr().expect("an address");
    let router = Router::new()
        .route(
            "/charges",
            post(|| async { (http::StatusCode::CREATED, "charged") }),
        )
        .route("/lost", post(std::future::pending::<&'static str>));
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// A sidecar in front of such a service. Lost responses are in doubt.
pub(crate) struct Sidecar {
    pub(crate) address: SocketAddr,
    pub(crate) admin: String,
    pub(crate) folder: PathBuf,
    pub(crate) environment: String,
    process: Private,
}

impl Sidecar {
    pub(crate) async fn start(store: &str, more: &str) -> Self {
        let (port, admin) = (free_port(), free_port());
        let upstream = service().await;
        let folder = new_folder("operator");
        // A unique environment, even in a store that tests share.
        let environment = format!("cli-{}-{port}", std::process::id());
        let settings = format!(
            "environment = \"{environment}\"\n\
             [store]\nurl = \"{store}\"\n\
             [upstream]\nurls = [\"http://{upstream}\"]\nresponse_timeout = \"2s\"\n\
             [listener]\naddress = \"127.0.0.1:{port}\"\n\
             [defaults]\ncrash = \"hold\"\n\
             [admin]\naddress = \"127.0.0.1:{admin}\"\nopen = true\n{more}"
        );
        let file = folder.join("semel.toml");
        std::fs::write(&file, settings).expect("as set up");
        let mut serve = command(&["serve", "--config", file.to_str().expect("as set up")]);
        let sidecar = Self {
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            admin: format!("http://127.0.0.1:{admin}"),
            folder,
            environment,
            process: Private::start(&mut serve),
        };
        sidecar.until_ready().await;
        sidecar
    }

    /// The admin listener starts last.
    async fn until_ready(&self) {
        let admin = self.admin.trim_start_matches("http://");
        for _ in 0..1000 {
            if tokio::net::TcpStream::connect(admin).await.is_ok() {
                return;
            }
            pause().await;
        }
        panic!(
            "the sidecar doesn't start; its settings are in {}",
            self.folder.display()
        );
    }

    /// Runs a command line against this sidecar.
    pub(crate) async fn run(&self, line: &str) -> CommandResult {
        let line = format!("{line} --admin {}", self.admin);
        semel(&line.split_whitespace().collect::<Vec<_>>()).await
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Sends a request. Returns the status, whether it is a replay, and the body.
    pub(crate) async fn send(&self, path: &str, key: &str) -> (u16, bool, String) {
        let mut request = json("POST", &format!("http://{}{path}", self.address), "{}");
        request.headers_mut().remove("content-type");
        let key = key.parse().expect("as set up");
        request.headers_mut().insert("idempotency-key", key);
        let answer = semel_httpclient::send(request).await;
        let replayed = answer.is_replay();
        (answer.status.as_u16(), replayed, answer.text().to_owned())
    }

    /// Writes a file for this test alone.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let file = self.folder.join(name);
        std::fs::write(&file, text).expect("as set up");
        file.to_str().expect("as set up").to_owned()
    }
}
