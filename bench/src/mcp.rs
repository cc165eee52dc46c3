//! `bench mcp`: tool calls through the gateway, beside the same calls to the server. Both sides
//! take turns, so that other load affects both.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use semel::core::clock::SystemTime;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use semel_bench_core::report::{Row, median, publish};

/// Calls in a turn, and turns.
const CALLS: u64 = 100;
const TURNS: usize = 21;

pub(crate) fn bench() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    publish("mcp", &runtime.block_on(rows())?)
}

/// The program: as it is handed out, unless another is named.
fn program() -> PathBuf {
    let named = std::env::var_os("SEMEL_BENCH_PROGRAM");
    named.map_or_else(|| PathBuf::from("target/dist/semel"), PathBuf::from)
}

async fn rows() -> anyhow::Result<Vec<Row>> {
    let modules = std::env::var_os("SEMEL_TEST_MCP_NODE");
    let modules = modules
        .context("SEMEL_TEST_MCP_NODE is not set; `cargo xtask services up mcp` tells it")?;
    let folder = std::env::temp_dir().join(format!("semel-bench-mcp-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    std::fs::copy("tests/mcp/tools.mjs", folder.join("tools.mjs"))?;
    std::os::unix::fs::symlink(
        Path::new(&modules).join("node_modules"),
        folder.join("node_modules"),
    )?;
    let server = vec![
        "node".to_owned(),
        folder.join("tools.mjs").display().to_string(),
    ];
    let ledger = folder.join("ledger");
    let sqlite = format!("sqlite://{}", folder.join("semel.db").display());
    let mut rows = Vec::new();
    let mut direct = Stdin::start(&server, &ledger).await?;
    for (name, store) in [("SQLite", sqlite.as_str()), ("memory", "memory://")] {
        let mut through = Stdin::start(&gateway(store, &[], &server), &ledger).await?;
        rows.extend(pair("stdio", name, &mut through, &mut direct).await?);
    }
    let (upstream, listen) = (free()?, free()?);
    let mut words = server.clone();
    words.push(upstream.to_string());
    let _server = start(&words, &ledger, false)?;
    let upstream = format!("http://127.0.0.1:{upstream}/mcp");
    let flags = [
        "--upstream",
        &upstream,
        "--listen",
        &format!("127.0.0.1:{listen}"),
    ];
    let _gateway = start(&gateway(&sqlite, &flags, &[]), &ledger, false)?;
    let mut direct = Http::start(&upstream).await?;
    let mut through = Http::start(&format!("http://127.0.0.1:{listen}/mcp")).await?;
    rows.extend(pair("HTTP", "SQLite", &mut through, &mut direct).await?);
    std::fs::remove_dir_all(folder)?;
    Ok(rows)
}

fn free() -> anyhow::Result<u16> {
    let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

fn gateway(store: &str, flags: &[&str], server: &[String]) -> Vec<String> {
    let mut words = vec![program().display().to_string()];
    words.extend(
        ["mcp", "--store", store]
            .iter()
            .chain(flags)
            .map(|&word| word.to_owned()),
    );
    if !server.is_empty() {
        words.push("--".to_owned());
        words.extend_from_slice(server);
    }
    words
}

fn start(words: &[String], ledger: &Path, is_piped: bool) -> anyhow::Result<Child> {
    std::fs::write(ledger, "")?;
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .env("LEDGER", ledger)
        .kill_on_drop(true);
    match is_piped {
        true => command.stdin(Stdio::piped()).stdout(Stdio::piped()),
        false => command.stdin(Stdio::null()).stdout(Stdio::null()),
    };
    command.stderr(Stdio::null());
    command
        .spawn()
        .with_context(|| format!("{} can't be started", words[0]))
}

/// A peer that answers requests.
trait Peer {
    async fn ask(&mut self, message: &Value) -> anyhow::Result<()>;
}

/// A pass-through call, a new key each, and a replay, each beside the server itself.
async fn pair<P: Peer>(
    way: &str,
    store: &str,
    ours: &mut P,
    bare: &mut P,
) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let run = std::process::id();
    let mut next = 1_000_u64;
    for (what, key) in [
        ("no key", None),
        ("a new key each", Some(true)),
        ("a replay", Some(false)),
    ] {
        let name = format!("{way}, {store}: {what}, beside direct");
        eprintln!("measuring: {name}");
        let (mut ours_took, mut bare_took) = (Vec::new(), Vec::new());
        for turn in 0..=TURNS {
            let keyed = |n: u64| match key {
                None => json!({}),
                Some(true) => json!({"idempotencyKey": format!("b-{run}-{way}-{store}-{n}")}),
                Some(false) => json!({"idempotencyKey": format!("b-{run}-{way}-{store}")}),
            };
            let took = [
                timed(ours, &mut next, &keyed).await?,
                timed(bare, &mut next, &keyed).await?,
            ];
            // The first turn makes connections and fills caches.
            if turn > 0 {
                ours_took.push(took[0]);
                bare_took.push(took[1]);
            }
        }
        let ratio = median(
            ours_took
                .iter()
                .zip(&bare_took)
                .map(|(ours, bare)| ours / bare)
                .collect(),
        );
        let row = Row::at_most(name, "µs/call", median(ours_took), median(bare_took), None);
        rows.push(row.with_ratio(ratio));
    }
    Ok(rows)
}

/// Microseconds of a call.
async fn timed<P: Peer>(
    peer: &mut P,
    next: &mut u64,
    meta: &impl Fn(u64) -> Value,
) -> anyhow::Result<f64> {
    let clock = SystemTime::default();
    let began = clock.now();
    for _ in 0..CALLS {
        *next += 1;
        // A tool that does nothing but answer.
        let params = json!({"name": "own_key", "arguments": {"what": "b"}, "_meta": meta(*next)});
        let call = json!({"jsonrpc": "2.0", "id": *next, "method": "tools/call", "params": params});
        peer.ask(&call).await?;
    }
    #[expect(clippy::cast_precision_loss, reason = "a hundred")]
    let calls = CALLS as f64;
    Ok(clock.now().since(began).as_secs_f64() * 1e6 / calls)
}

fn hello() -> Value {
    let client = json!({"name": "bench", "version": "1"});
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
}

fn ready() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
}

struct Stdin {
    _process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Stdin {
    async fn start(words: &[String], ledger: &Path) -> anyhow::Result<Self> {
        let mut process = start(words, ledger, true)?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let mut peer = Self {
            _process: process,
            input: input.context("its input")?,
            output: BufReader::new(output.context("its output")?).lines(),
        };
        peer.ask(&hello()).await?;
        peer.input
            .write_all(format!("{}\n", ready()).as_bytes())
            .await?;
        Ok(peer)
    }
}

impl Peer for Stdin {
    async fn ask(&mut self, message: &Value) -> anyhow::Result<()> {
        self.input
            .write_all(format!("{message}\n").as_bytes())
            .await?;
        loop {
            let line = self.output.next_line().await?.context("an answer")?;
            let answer: Value = serde_json::from_str(&line)?;
            if answer["id"] == message["id"] {
                return right(&answer);
            }
        }
    }
}

/// Checks the answer, because errors would be fast.
fn right(answer: &Value) -> anyhow::Result<()> {
    if answer.get("error").is_some() || answer["result"]["isError"] == true {
        bail!("{answer}");
    }
    Ok(())
}

struct Http {
    client: Client<HttpConnector, Body>,
    url: String,
    session: Option<http::HeaderValue>,
}

impl Http {
    async fn start(url: &str) -> anyhow::Result<Self> {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let mut peer = Self {
            client,
            url: url.to_owned(),
            session: None,
        };
        let mut pause = tokio::time::interval(Duration::from_millis(100));
        for _ in 0..200 {
            pause.tick().await;
            if peer.post(&hello()).await.is_ok() {
                peer.post(&ready()).await?;
                return Ok(peer);
            }
        }
        bail!("{url} never answers")
    }

    async fn post(&mut self, message: &Value) -> anyhow::Result<String> {
        let mut request = Request::post(&self.url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if let Some(session) = &self.session {
            request = request
                .header("mcp-session-id", session)
                .header("mcp-protocol-version", "2025-06-18");
        }
        let response = self
            .client
            .request(request.body(Body::from(message.to_string()))?)
            .await?;
        if let Some(session) = response.headers().get("mcp-session-id") {
            self.session = Some(session.clone());
        }
        let body = response.into_body().collect().await?.to_bytes();
        Ok(String::from_utf8(body.to_vec())?)
    }
}

impl Peer for Http {
    async fn ask(&mut self, message: &Value) -> anyhow::Result<()> {
        let said = self.post(message).await?;
        let json = said.lines().find_map(|line| {
            line.strip_prefix("data:")
                .filter(|data| data.contains("\"id\""))
        });
        right(&serde_json::from_str(json.unwrap_or(&said))?)
    }
}
