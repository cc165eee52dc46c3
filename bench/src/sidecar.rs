//! `bench sidecar`: requests through the sidecar, beside nginx as a plain proxy to the same
//! service, in turns on the same cores.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::cpu::{self, Side};
use crate::stores::compare;
use semel_bench_core::report::{Row, publish};

/// The body of every request; the service answers with as many bytes.
const BODY: &str =
    r#"{"order":"ord-123456","amount":1999,"currency":"EUR","customer":"cus-98765"}"#;

/// A process that ends with this value.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGTERM instead of a kill, so that nginx ends its workers.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// The sidecar of this tree beside an earlier program, taking turns: what a change costs, in
/// processor time of the sidecar.
pub(crate) fn beside(earlier: PathBuf) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let measured = runtime.block_on(async move {
        let folder = std::env::temp_dir().join(format!("semel-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let (service, plain, ours, theirs) = (free()?, free()?, free()?, free()?);
        let _nginx = nginx(&folder, service, plain)?;
        let first = start("memory://", service, ours, &[])?;
        let second = start_program(&earlier, "memory://", service, theirs, &[])?;
        for address in [ours, theirs] {
            answers(address, "/_semel/readyz").await?;
        }
        let run = std::process::id();
        let (one, other) = (Connections::to(ours), Connections::to(theirs));
        let (bare_one, bare_other) = (one.clone(), other.clone());
        let (ours, theirs) = (first.id(), second.id());
        let passed = cpu::compare(
            "pass-through, beside the earlier program",
            Some(1.05),
            Side {
                process: ours,
                operation: move |_| bare_one.clone().ask(None),
            },
            Side {
                process: theirs,
                operation: move |_| bare_other.clone().ask(None),
            },
        );
        let passed = passed.await?;
        let keyed = cpu::compare(
            "a new key each, memory, beside the earlier program",
            Some(1.05),
            Side {
                process: ours,
                operation: move |i| one.clone().ask(Some(format!("bench-{run}-{i}"))),
            },
            Side {
                process: theirs,
                operation: move |i| other.clone().ask(Some(format!("bench-{run}-{i}"))),
            },
        );
        let rows = vec![passed, keyed.await?];
        std::fs::remove_dir_all(folder)?;
        anyhow::Ok(rows)
    });
    publish("beside", &measured?)
}

pub(crate) fn bench() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    publish("sidecar", &runtime.block_on(rows())?)
}

async fn rows() -> anyhow::Result<Vec<Row>> {
    let redis = variable("SEMEL_TEST_REDIS_URL")?;
    let folder = std::env::temp_dir().join(format!("semel-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (service, plain) = (free()?, free()?);
    let _nginx = nginx(&folder, service, plain)?;
    let (on_redis, in_memory) = (free()?, free()?);
    let _first = sidecar(&redis, service, on_redis)?;
    let _second = sidecar("memory://", service, in_memory)?;
    for (address, path) in [
        (plain, "/"),
        (on_redis, "/_semel/readyz"),
        (in_memory, "/_semel/readyz"),
    ] {
        answers(address, path).await?;
    }
    let run = std::process::id();
    let (plain, passed) = (Connections::to(plain), Connections::to(on_redis));
    let (keyed, local) = (Connections::to(on_redis), Connections::to(in_memory));

    let (ours, bare) = (passed.clone(), plain);
    let mut rows = vec![
        compare(
            "pass-through, beside nginx".to_owned(),
            Some(0.7),
            move |_| ours.clone().ask(None),
            move |_| bare.clone().ask(None),
        )
        .await?,
    ];
    let bare = passed.clone();
    let row = compare(
        "a new key each, Redis, beside pass-through".to_owned(),
        Some(0.5),
        move |i| keyed.clone().ask(Some(format!("bench-{run}-{i}"))),
        move |_| bare.clone().ask(None),
    );
    rows.push(row.await?);
    let (fresh, bare) = (local.clone(), passed.clone());
    let row = compare(
        "a new key each, memory, beside pass-through".to_owned(),
        None,
        move |i| fresh.clone().ask(Some(format!("bench-{run}-{i}"))),
        move |_| bare.clone().ask(None),
    );
    rows.push(row.await?);
    // The key is completed first, so that callers do not wait for each other.
    local
        .clone()
        .ask(Some(format!("bench-{run}-replay")))
        .await?;
    let row = compare(
        "a replay, memory, beside pass-through".to_owned(),
        None,
        move |_| local.clone().ask(Some(format!("bench-{run}-replay"))),
        move |_| passed.clone().ask(None),
    );
    rows.push(row.await?);
    std::fs::remove_dir_all(folder)?;
    Ok(rows)
}

fn variable(name: &str) -> anyhow::Result<String> {
    std::env::var(name)
        .with_context(|| format!("{name} is not set; `cargo xtask services up` tells it"))
}

pub(crate) fn free() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// One nginx that is both the service, which does nothing, and a plain proxy to it.
fn nginx(folder: &Path, service: SocketAddr, plain: SocketAddr) -> anyhow::Result<Process> {
    let answer = BODY.replace('"', "\\\"");
    let temp: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path {kind};\n"))
        .collect();
    let settings = format!(
        "daemon off;\npid nginx.pid;\nerror_log stderr error;\nworker_processes auto;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n{temp}access_log off;\nkeepalive_requests 1000000000;\n\
         upstream service {{ server {service}; keepalive 256; keepalive_requests 1000000000; }}\n\
         server {{ listen {service}; location / {{ default_type application/json; return 200 \"{answer}\"; }} }}\n\
         server {{ listen {plain}; location / {{ proxy_pass http://service; proxy_http_version 1.1; \
         proxy_set_header Connection \"\"; proxy_set_header Host $host; \
         proxy_set_header X-Forwarded-For $remote_addr; }} }}\n}}\n"
    );
    std::fs::write(folder.join("nginx.conf"), settings)?;
    let mut command = Command::new(variable("SEMEL_TEST_NGINX")?);
    command.arg("-p").arg(folder).args(["-c", "nginx.conf"]);
    Ok(Process(command.stdin(Stdio::null()).spawn()?))
}

fn sidecar(store: &str, service: SocketAddr, at: SocketAddr) -> anyhow::Result<Process> {
    start(store, service, at, &[])
}

/// A sidecar with settings of its own.
pub(crate) fn start(
    store: &str,
    service: SocketAddr,
    at: SocketAddr,
    settings: &[&str],
) -> anyhow::Result<Process> {
    // Built just before, from the same tree.
    let program = PathBuf::from("target/dist/semel");
    start_program(&program, store, service, at, settings)
}

pub(crate) fn start_program(
    program: &Path,
    store: &str,
    service: SocketAddr,
    at: SocketAddr,
    settings: &[&str],
) -> anyhow::Result<Process> {
    let mut command = Command::new(program);
    command.args(["serve", "--store", store, "--listen", &at.to_string()]);
    for setting in settings {
        command.args(["--set", setting]);
    }
    command.args(["--upstream", &format!("http://{service}")]);
    // A short retention leaves nothing behind.
    command.args(["--set", "defaults.retention=60s", "--set", "log.level=warn"]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.spawn();
    let child = child.with_context(|| format!("cannot start {}", program.display()))?;
    Ok(Process(child))
}

pub(crate) async fn answers(address: SocketAddr, path: &str) -> anyhow::Result<()> {
    let mut pause = tokio::time::interval(Duration::from_millis(50));
    let mut last = None;
    for _ in 0..200 {
        pause.tick().await;
        let request = format!("GET {path} HTTP/1.1\r\nhost: bench\r\n\r\n");
        match once(address, request.as_bytes()).await {
            Ok(()) => return Ok(()),
            Err(error) => last = Some(error),
        }
    }
    bail!("{address} never answers: {last:?}")
}

async fn once(address: SocketAddr, request: &[u8]) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    roundtrip(&mut stream, request, &mut Vec::new()).await
}

/// A connection, and room for what is read on it.
type KeptConnection = (TcpStream, Vec<u8>);

/// Connections that are kept. The client does as little as it can: all sides share the
/// cores with it.
#[derive(Clone)]
struct Connections {
    address: SocketAddr,
    idle: Arc<Mutex<Vec<KeptConnection>>>,
}

impl Connections {
    fn to(address: SocketAddr) -> Self {
        Self {
            address,
            idle: Arc::default(),
        }
    }

    async fn ask(self, key: Option<String>) -> anyhow::Result<()> {
        let idle = self.idle.lock().pop();
        let (mut stream, mut buffer) = match idle {
            Some(kept) => kept,
            None => {
                let stream = TcpStream::connect(self.address).await?;
                stream.set_nodelay(true)?;
                (stream, Vec::with_capacity(4096))
            }
        };
        let key = key.map_or_else(String::new, |key| format!("idempotency-key: {key}\r\n"));
        let request = format!(
            "POST /charges HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n{key}content-length: {}\r\n\r\n{BODY}",
            BODY.len()
        );
        roundtrip(&mut stream, request.as_bytes(), &mut buffer).await?;
        self.idle.lock().push((stream, buffer));
        Ok(())
    }
}

async fn roundtrip(
    stream: &mut TcpStream,
    request: &[u8],
    buffer: &mut Vec<u8>,
) -> anyhow::Result<()> {
    buffer.clear();
    stream.write_all(request).await?;
    loop {
        ensure!(
            stream.read_buf(buffer).await? > 0,
            "the connection was closed"
        );
        let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
            continue;
        };
        let head = std::str::from_utf8(&buffer[..end])?;
        ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let named = name.eq_ignore_ascii_case("content-length");
            named.then(|| value.trim().parse::<usize>().ok())?
        });
        let whole = end + 4 + length.context("an answer without a length")?;
        while buffer.len() < whole {
            ensure!(stream.read_buf(buffer).await? > 0, "the answer broke off");
        }
        return Ok(());
    }
}
