//! `bench flood`: one tenant floods the sidecar and abandons half of its requests; measures another
//! tenant meanwhile.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use semel::core::clock::SystemTime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::sidecar::{answers, free, start};
use semel_bench_core::report::{Row, publish};

/// How long the service takes for a request.
const WORK: Duration = Duration::from_millis(5);

/// The most connections of the flood at a time.
const MOST: usize = 2000;

/// What the quiet tenant sends a second.
const QUIET: u64 = 50;

/// How often each key was run.
type Runs = Arc<Mutex<HashMap<String, u32>>>;

pub(crate) fn bench(rate: u64, seconds: u64) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    publish("flood", &runtime.block_on(rows(rate, seconds))?)
}

async fn rows(rate: u64, seconds: u64) -> anyhow::Result<Vec<Row>> {
    let (runs, at) = (Runs::default(), free()?);
    let service = service(Arc::clone(&runs)).await?;
    let settings = [
        "tenants.from=header",
        "tenants.header=x-tenant",
        "upstream.connect_timeout=500ms",
    ];
    let sidecar = start("memory://", service, at, &settings)?;
    answers(at, "/_semel/readyz").await?;
    let quiet = latencies(at, "quiet", seconds).await?;
    let flood = Arc::new(Flood::default());
    let most = tokio::spawn(watch(sidecar.id(), seconds));
    let flooding = tokio::spawn(Arc::clone(&flood).run(at, rate, seconds));
    let loud = latencies(at, "beside", seconds).await?;
    flooding.await??;
    let (kib, sockets) = most.await?;
    flood.tell();
    let twice = runs.lock().values().filter(|runs| **runs > 1).count();
    let ran = runs.lock().len();
    eprintln!(
        "keys that ran: {ran}, twice: {twice}; of the other tenant, refused: {}",
        loud.refused
    );
    eprintln!("resident: {kib} KiB at most; sockets: {sockets} at most");
    Ok(vec![
        Row::at_most(
            "the other tenant's p99 in a flood, beside quiet",
            "ms",
            loud.p99,
            quiet.p99,
            Some(3.0),
        ),
        Row::at_most(
            "the other tenant's median, beside quiet",
            "ms",
            loud.p50,
            quiet.p50,
            None,
        ),
        Row::at_most(
            "keys that ran twice, plus one",
            "",
            count(twice + 1),
            1.0,
            Some(1.0),
        ),
        Row::at_most(
            "the other tenant's refusals, plus one",
            "",
            count(loud.refused + 1),
            1.0,
            Some(1.0),
        ),
        Row::at_most(
            "sockets of the sidecar, beside limits.connections",
            "",
            count(sockets),
            10_000.0,
            Some(1.0),
        ),
        Row::at_most(
            "resident memory, beside 1 GiB",
            "KiB",
            count(kib),
            1_048_576.0,
            Some(1.0),
        ),
    ])
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
const fn count(number: usize) -> f64 {
    number as f64
}

/// A service that takes a while and counts what it does.
async fn service(runs: Runs) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&runs)));
        }
    });
    Ok(address)
}

async fn serve(mut stream: TcpStream, runs: Runs) -> anyhow::Result<()> {
    let mut read = Vec::new();
    loop {
        let head = loop {
            if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break String::from_utf8_lossy(&read[..end]).to_lowercase();
            }
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        };
        // Requests here have no body.
        read.clear();
        if let Some(key) = head
            .lines()
            .find_map(|line| line.strip_prefix("idempotency-key: "))
        {
            *runs.lock().entry(key.to_owned()).or_default() += 1;
        }
        pause(WORK).await;
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            .await?;
    }
}

async fn pause(time: Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

fn request(tenant: &str, key: &str) -> String {
    format!(
        "POST /r HTTP/1.1\r\nhost: bench\r\nx-tenant: {tenant}\r\nidempotency-key: {key}\r\ncontent-length: 0\r\n\r\n"
    )
}

/// The status of an answer, which is read to its end.
async fn status(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> anyhow::Result<u16> {
    buffer.clear();
    loop {
        anyhow::ensure!(stream.read_buf(buffer).await? > 0, "closed");
        let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let head = std::str::from_utf8(&buffer[..end])?.to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.context("a length")?.trim().parse()?;
        let status = head.get(9..12).context("a status")?.parse()?;
        while buffer.len() < end + 4 + length {
            anyhow::ensure!(stream.read_buf(buffer).await? > 0, "closed");
        }
        return Ok(status);
    }
}

struct FloodResult {
    p50: f64,
    p99: f64,
    refused: usize,
}

/// How long the requests of a tenant take that sends few, evenly.
async fn latencies(at: SocketAddr, phase: &str, seconds: u64) -> anyhow::Result<FloodResult> {
    let clock = SystemTime::default();
    let mut stream = TcpStream::connect(at).await?;
    stream.set_nodelay(true)?;
    let (mut buffer, mut times, mut refused) = (Vec::new(), Vec::new(), 0);
    let mut ticks = tokio::time::interval(Duration::from_millis(1000 / QUIET));
    for number in 0..seconds * QUIET {
        ticks.tick().await;
        let began = clock.now();
        let text = request("small", &format!("{phase}-{number}"));
        stream.write_all(text.as_bytes()).await?;
        if status(&mut stream, &mut buffer).await? != 200 {
            refused += 1;
        }
        times.push(clock.now().since(began).as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)];
    Ok(FloodResult {
        p50: at(50),
        p99: at(99),
        refused,
    })
}

/// What became of the flood.
#[derive(Default)]
struct Flood {
    offered: AtomicU64,
    left: AtomicU64,
    told: AtomicU64,
    refused: AtomicU64,
    full: AtomicU64,
    failed: AtomicU64,
    kept: Mutex<Vec<TcpStream>>,
}

impl Flood {
    fn tell(&self) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        eprintln!(
            "offered {} (abandoned {}), 200: {}, 429: {}, 503: {}, no answer: {}",
            of(&self.offered),
            of(&self.left),
            of(&self.told),
            of(&self.refused),
            of(&self.full),
            of(&self.failed),
        );
    }

    async fn run(self: Arc<Self>, at: SocketAddr, rate: u64, seconds: u64) -> anyhow::Result<()> {
        let places = Arc::new(Semaphore::new(MOST));
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        let mut number = 0;
        for _ in 0..seconds * 100 {
            ticks.tick().await;
            for _ in 0..rate / 100 {
                number += 1;
                self.offered.fetch_add(1, Ordering::Relaxed);
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                    self.failed.fetch_add(1, Ordering::Relaxed);
                    continue;
                };
                let this = Arc::clone(&self);
                tokio::spawn(async move {
                    if this.one(at, number).await.is_err() {
                        this.failed.fetch_add(1, Ordering::Relaxed);
                    }
                    drop(place);
                });
            }
        }
        // What is under way ends, within a bound.
        let rest = places.acquire_many(u32::try_from(MOST)?);
        let _ = tokio::time::timeout(Duration::from_secs(10), rest).await;
        Ok(())
    }

    async fn one(&self, at: SocketAddr, number: u64) -> anyhow::Result<()> {
        let text = request("flood", &format!("flood-{number}"));
        if number.is_multiple_of(2) {
            let mut stream = TcpStream::connect(at).await?;
            stream.write_all(text.as_bytes()).await?;
            self.left.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let kept = self.kept.lock().pop();
        let mut stream = match kept {
            Some(stream) => stream,
            None => TcpStream::connect(at).await?,
        };
        stream.write_all(text.as_bytes()).await?;
        let count = match status(&mut stream, &mut Vec::new()).await? {
            200 => &self.told,
            429 => &self.refused,
            _ => &self.full,
        };
        count.fetch_add(1, Ordering::Relaxed);
        self.kept.lock().push(stream);
        Ok(())
    }
}

/// The most memory (KiB) and files of a process, for so long.
async fn watch(process: u32, seconds: u64) -> (usize, usize) {
    let (mut memory, mut files) = (0, 0);
    for _ in 0..seconds * 10 {
        pause(Duration::from_millis(100)).await;
        let status = std::fs::read_to_string(format!("/proc/{process}/status"));
        let status = status.unwrap_or_default();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|line| line.trim().split(' ').next()?.parse().ok());
        memory = memory.max(resident.unwrap_or(0));
        let open = std::fs::read_dir(format!("/proc/{process}/fd"));
        files = files.max(open.map_or(0, Iterator::count));
    }
    (memory, files)
}
