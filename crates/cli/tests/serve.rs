//! The real program: started, asked, told to read its settings again, told to end.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rustix::process::{Pid, Signal, kill_process};
use semel_testkit::private::{free_port, new_folder};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Notify;

fn redis() -> String {
    std::env::var("SEMEL_TEST_REDIS_URL")
        .expect("SEMEL_TEST_REDIS_URL: see `cargo xtask services up`")
}

/// The program with these arguments, and nothing of this environment's settings.
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

/// A program that serves.
struct Serving {
    child: Child,
    address: SocketAddr,
    log: Arc<parking_lot::Mutex<Vec<String>>>,
}

impl Serving {
    async fn start(file: &Path, address: SocketAddr) -> Self {
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

    /// Waits until a line of the log has these words.
    async fn says(&self, words: &str) {
        for _ in 0..1000 {
            if self.log.lock().iter().any(|line| line.contains(words)) {
                return;
            }
            pause().await;
        }
        panic!("nothing says {words:?}:\n{}", self.log.lock().join("\n"));
    }

    fn tell(&self, signal: Signal) {
        let id = self
            .child
            .id()
            .and_then(|id| Pid::from_raw(id.cast_signed()))
            .expect("as set up");
        kill_process(id, signal).expect("as set up");
    }

    async fn ask(&self, path: &str, key: &str) -> (u16, bool, String) {
        ask(self.address, path, key).await
    }
}

#[expect(clippy::disallowed_methods, reason = "real processes run on real time")]
async fn pause() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

/// Status, whether it is a replay, body.
async fn ask(address: SocketAddr, path: &str, key: &str) -> (u16, bool, String) {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let request = http::Request::post(format!("http://{address}{path}"))
        .header("content-type", "application/json")
        .header("idempotency-key", key)
        .body(Full::from("{}"))
        .expect("as set up");
    let response = client.request(request).await.expect("as set up");
    let replayed = response.headers().contains_key("idempotent-replayed");
    let status = response.status().as_u16();
    let body = response
        .into_body()
        .collect()
        .await
        .expect("as set up")
        .to_bytes();
    (
        status,
        replayed,
        String::from_utf8_lossy(&body).into_owned(),
    )
}

/// A service that counts what it does; a path with `slow` in it waits to be let go.
async fn service(name: &'static str, runs: &Arc<AtomicUsize>, gate: &Arc<Notify>) -> SocketAddr {
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

fn write(file: &PathBuf, listen: SocketAddr, upstream: SocketAddr, more: &str) {
    let settings = format!(
        "environment = \"test-{}-{}\"\n[listener]\naddress = \"{listen}\"\n[store]\nurl = \"{}\"\n[upstream]\nurls = [\"http://{upstream}\"]\n{more}",
        std::process::id(),
        listen.port(),
        redis(),
    );
    std::fs::write(file, settings).expect("as set up");
}

#[tokio::test]
async fn from_start_to_end() {
    let (runs, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let one = service("one", &runs, &gate).await;
    let two = service("two", &runs, &gate).await;
    let listen: SocketAddr = format!("127.0.0.1:{}", free_port()).parse().unwrap();
    let file = new_folder("serve").join("semel.toml");
    write(&file, listen, one, "");
    let mut serving = Serving::start(&file, listen).await;
    for words in [
        "self-check passed",
        "records are kept in redis",
        "idempotency layer covers",
        "at least once",
    ] {
        serving.says(words).await;
    }

    // Sent three times, done once.
    let key = "k-secret-part-of-the-key";
    assert_eq!(
        serving.ask("/", key).await,
        (200, false, "one 1".to_owned())
    );
    for _ in 0..2 {
        assert_eq!(serving.ask("/", key).await, (200, true, "one 1".to_owned()));
    }

    // New settings for new requests; records stay.
    write(
        &file,
        listen,
        two,
        "[[routes]]\npath = \"/held\"\ncrash = \"hold\"\n",
    );
    serving.tell(Signal::HUP);
    serving.says("read again").await;
    assert_eq!(
        serving.ask("/", "k-2").await,
        (200, false, "two 2".to_owned())
    );
    assert_eq!(serving.ask("/", key).await, (200, true, "one 1".to_owned()));

    // A broken file is refused, with the fix; the old settings stay.
    std::fs::write(&file, "upstreem = 1\n").unwrap();
    serving.tell(Signal::HUP);
    serving.says("the old one stays").await;
    serving.says("did you mean `upstream`?").await;
    assert_eq!(
        serving.ask("/", "k-3").await,
        (200, false, "two 3".to_owned())
    );

    // It ends when what has begun has ended.
    let asking = tokio::spawn(ask(listen, "/slow", "k-4"));
    while runs.load(Ordering::SeqCst) < 4 {
        pause().await;
    }
    serving.tell(Signal::TERM);
    serving.says("draining").await;
    assert!(serving.child.try_wait().unwrap().is_none(), "it waits");
    gate.notify_one();
    assert_eq!(asking.await.unwrap(), (200, false, "two 4".to_owned()));
    assert_eq!(serving.child.wait().await.unwrap().code(), Some(0));
    let log = serving.log.lock().join("\n");
    assert!(!log.contains("secret-part"), "a key is in the log:\n{log}");

    // What was answered stays answered, in another process.
    write(&file, listen, two, "");
    let again = Serving::start(&file, listen).await;
    assert_eq!(again.ask("/", key).await, (200, true, "one 1".to_owned()));
    assert_eq!(
        again.ask("/slow", "k-4").await,
        (200, true, "two 4".to_owned())
    );
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let (runs, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let upstream = service("one", &runs, &gate).await;
    let listen: SocketAddr = format!("127.0.0.1:{}", free_port()).parse().unwrap();
    let file = new_folder("serve").join("semel.toml");
    write(&file, listen, upstream, "");
    let mut serving = Serving::start(&file, listen).await;
    let asking = tokio::spawn(async move {
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let request =
            http::Request::post(format!("http://{listen}/slow")).header("idempotency-key", "k-1");
        client
            .request(request.body(Full::from("{}")).unwrap())
            .await
            .is_err()
    });
    while runs.load(Ordering::SeqCst) < 1 {
        pause().await;
    }
    serving.tell(Signal::INT);
    serving.says("draining").await;
    serving.tell(Signal::TERM);
    assert_eq!(serving.child.wait().await.unwrap().code(), Some(7));
    assert!(asking.await.unwrap(), "cut off");
}

/// The first page that lists a record of the proxy. A page may be empty and still have a next one: others use this
/// Redis too.
async fn page_with_a_record(listing: &str, token: &str) -> String {
    let mut cursor = String::new();
    loop {
        let page = format!("{listing}{cursor}");
        let (status, text) = call("GET", &page, Some(token), "").await;
        assert_eq!(status, 200, "{text}");
        if text.contains("\"http\"") {
            return text;
        }
        let next = text
            .split_once("\"next\":\"")
            .and_then(|(_, rest)| rest.split('"').next());
        let next = next.unwrap_or_else(|| panic!("not listed: {text}"));
        cursor = format!("&cursor={next}");
    }
}

#[tokio::test]
async fn the_apis_are_where_the_settings_have_them_and_ask_who_calls() {
    let (runs, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let upstream = service("one", &runs, &gate).await;
    let [listen, admin] =
        [free_port(), free_port()].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let folder = new_folder("serve");
    let (file, trail) = (folder.join("semel.toml"), folder.join("audit.jsonl"));
    std::fs::write(folder.join("token"), "an-operators-token-1\n").unwrap();
    std::fs::write(
        folder.join("tokens"),
        "# tenant token\nacme the-token-of-acme-1\n",
    )
    .unwrap();
    let more = format!(
        "[admin]\naddress = \"{admin}\"\ntoken_file = \"{0}/token\"\n[api]\naccess = \"tokens\"\ntokens_file = \"{0}/tokens\"\n[audit]\nfile = \"{1}\"\n",
        folder.display(),
        trail.display(),
    );
    write(&file, listen, upstream, &more);
    let mut serving = Serving::start(&file, listen).await;
    assert_eq!(serving.ask("/", "k-1").await.2, "one 1");

    let listing = format!(
        "http://{admin}/admin/v1/records?environment=test-{}-{}",
        std::process::id(),
        listen.port()
    );
    assert_eq!(call("GET", &listing, None, "").await.0, 401);
    assert_eq!(
        call("GET", &listing, Some("another-token-altogether"), "")
            .await
            .0,
        401
    );
    let records = page_with_a_record(&listing, "an-operators-token-1").await;
    assert!(
        records.contains("\"http\"") && records.contains("completed"),
        "{records}"
    );

    let claims = format!("http://{listen}/_semel/v1/claims");
    let claim = "{\"scope\":\"charge\",\"key\":\"k-1\",\"payload\":{}}";
    assert_eq!(call("POST", &claims, None, claim).await.0, 401);
    let (status, said) = call("POST", &claims, Some("the-token-of-acme-1"), claim).await;
    assert!(status < 300, "{status}: {said}");
    // They are not forwarded, and not on the other listener.
    assert_eq!(
        call(
            "GET",
            &format!("http://{listen}/_semel/admin/v1/records"),
            Some("an-operators-token-1"),
            ""
        )
        .await
        .0,
        404
    );
    assert_eq!(runs.load(Ordering::SeqCst), 1);

    serving.tell(Signal::TERM);
    assert_eq!(serving.child.wait().await.unwrap().code(), Some(0));
    let kept = std::fs::read_to_string(trail).unwrap();
    assert!(
        kept.lines().count() >= 2,
        "the trail is written to its end: {kept}"
    );
}

/// Status and body.
async fn call(method: &str, url: &str, token: Option<&str>, body: &str) -> (u16, String) {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let mut request = http::Request::builder()
        .method(method)
        .uri(url)
        .header("content-type", "application/json");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let response = client
        .request(
            request
                .body(Full::from(body.to_owned()))
                .expect("a request"),
        )
        .await;
    let response = response.expect("an answer");
    let status = response.status().as_u16();
    let body = response
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

/// Exit code, standard output, standard error.
async fn ran(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = semel(arguments).output().await.expect("as set up");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("as set up");
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[tokio::test]
async fn beginners_mistakes_have_good_answers() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let up = ["--upstream", "http://127.0.0.1:3000"];
    let cases: [(&[&str], i32, &str); 7] = [
        (&["serve"], 3, "--upstream http://127.0.0.1:3000"),
        (
            &[
                "serve",
                "--upstream",
                "localhost:3000",
                "--store",
                "memory://",
            ],
            3,
            "begins with http://",
        ),
        (
            &["serve", up[0], up[1], "--store", &nobody],
            4,
            "start it, or name another",
        ),
        (
            &[
                "serve",
                up[0],
                up[1],
                "--store",
                "memory://",
                "--listen",
                &address,
            ],
            5,
            "another process listens there",
        ),
        (
            &[
                "serve",
                up[0],
                up[1],
                "--store",
                "memory://",
                "--set",
                "listener.adress=x",
            ],
            3,
            "did you mean listener.address?",
        ),
        (
            &["serve", "--config", "no-such-file.toml"],
            3,
            "can't be read",
        ),
        (&["serve", "--upstreem", "x"], 2, "--upstream"),
    ];
    for (arguments, code, words) in cases {
        let (ended, _, said) = ran(arguments).await;
        assert_eq!(ended, Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}

#[tokio::test]
async fn the_example_is_fine() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/semel.toml");
    let (code, said, wrong) = ran(&["config", "check", "--config", example]).await;
    assert_eq!((code, wrong.as_str()), (Some(0), ""), "{said}");
    let (_, shown, _) = ran(&["config", "show", "--config", example]).await;
    assert!(
        shown.contains("routes[0].crash") && shown.contains("\"hold\"  # file, line"),
        "{shown}"
    );
}

#[tokio::test]
async fn settings_are_checked_shown_and_explained() {
    let ends = [
        "--upstream",
        "http://127.0.0.1:1",
        "--store",
        "redis://me:hunter2@127.0.0.1",
    ];
    let (code, shown, _) = ran(&[&["config", "show", "--all"], &ends[..]].concat()).await;
    assert_eq!(code, Some(0));
    assert!(
        shown.contains("flag, --store") && !shown.contains("hunter2"),
        "{shown}"
    );
    let (_, json, _) = ran(&[&["config", "show", "--json"], &ends[..]].concat()).await;
    let rows: serde_json::Value = serde_json::from_str(&json).unwrap();
    let row = rows
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["setting"] == "drain_time")
        .unwrap();
    assert_eq!(
        (&row["value"], &row["from"]),
        (&"30s".into(), &"default".into())
    );
    let (_, text, _) = ran(&["config", "explain", "upstream.response_timeout"]).await;
    assert!(
        text.contains("SEMEL_UPSTREAM_RESPONSE_TIMEOUT") && text.contains("default: \"1m\""),
        "{text}"
    );
    let (code, _, wrong) = ran(&["config", "explain", "upstream.response_timeot"]).await;
    assert_eq!(code, Some(3));
    assert!(
        wrong.contains("did you mean upstream.response_timeout?"),
        "{wrong}"
    );
}
