//! The sidecar with telemetry on and off: requests over real sockets, in short alternating turns.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::routing::any;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use semel::core::clock::SystemTime;
use semel_server::config::{Flag, Sources, load};
use semel_server::{OpenOptions, Server, Services};

use semel_bench_core::report::{Row, median, publish};

/// How many pairs of turns, and how long one is.
const PAIRS: usize = 31;
const TURN: Duration = Duration::from_millis(200);
/// Connections that ask, one request at a time each.
const CALLERS: usize = 16;
/// The allowed ratio.
const TARGET: f64 = 0.95;

pub(crate) fn bench() -> anyhow::Result<()> {
    // Lines are made and written, to where they cost nobody's disk.
    let nowhere = std::fs::File::create("/dev/null")?;
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_writer(Arc::new(nowhere))
        .with_max_level(tracing::Level::INFO)
        .try_init()
        .map_err(|error| anyhow::anyhow!(error))?;
    let runtime = tokio::runtime::Runtime::new()?;
    let rows = runtime.block_on(measure())?;
    publish("telemetry", &rows)
}

async fn measure() -> anyhow::Result<Vec<Row>> {
    let upstream = service().await?;
    let off = [("metrics.access", "off"), ("log.requests_percent", "0")];
    let off = Sidecar::start(upstream, &off).await?;
    // The dashboard watches as well, where there is an admin listener.
    let (admin, address) = ("admin.address", "127.0.0.1:0");
    let numbers = [(admin, address), ("log.requests_percent", "0")];
    let on = [
        (
            "metrics and dashboard",
            Sidecar::start(upstream, &numbers).await?,
        ),
        (
            "and a line for every request",
            Sidecar::start(upstream, &[(admin, address)]).await?,
        ),
    ];
    let mut rows = Vec::new();
    for (what, on) in &on {
        for (keys, fresh) in [("a new key each", true), ("one key again and again", false)] {
            rows.push(against(format!("{what}: {keys}"), on, &off, fresh).await?);
        }
    }
    Ok(rows)
}

/// Both in turns, pair by pair.
async fn against(name: String, on: &Sidecar, off: &Sidecar, fresh: bool) -> anyhow::Result<Row> {
    let (mut ours, mut bare, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..=PAIRS {
        // The order alternates between pairs.
        let first_on = pair % 2 == 0;
        let (mut with, mut without) = (0.0, 0.0);
        for turn in [first_on, !first_on] {
            let rate = if turn { on } else { off }.turn(fresh).await?;
            *if turn { &mut with } else { &mut without } = rate;
        }
        // The first pair warms up.
        if pair > 0 {
            ours.push(with);
            bare.push(without);
            ratios.push(with / without);
        }
    }
    let row = Row::at_least(name, "requests/s", median(ours), median(bare), Some(TARGET));
    Ok(row.with_ratio(median(ratios)))
}

async fn service() -> anyhow::Result<SocketAddr> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let router = Router::new().fallback(any(async || "done"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

struct Sidecar {
    server: Server,
    _opened: Services,
    callers: Vec<Arc<tokio::sync::Mutex<http1::SendRequest<Full<Bytes>>>>>,
    number: Arc<AtomicU64>,
}

impl Sidecar {
    async fn start(upstream: SocketAddr, more: &[(&str, &str)]) -> anyhow::Result<Self> {
        let url = format!("http://{upstream}");
        let common = [
            ("upstream.urls", url.as_str()),
            // Redis costs more than this: against it the cost of telemetry is a smaller part.
            ("store.url", "memory://?capacity=10000000"),
            ("listener.address", "127.0.0.1:0"),
        ];
        let flags = common.iter().chain(more).map(|(path, value)| Flag {
            name: "--set".to_owned(),
            path: (*path).to_owned(),
            value: (*value).to_owned(),
        });
        let loaded = load(&Sources {
            flags: flags.collect(),
            ..Sources::default()
        })?;
        let opened = OpenOptions::for_node(&loaded.config).open().await?;
        let mounts = opened.mounts(&loaded.config)?;
        let server = Server::start(loaded, opened.semel.clone(), mounts).await?;
        let mut callers = Vec::new();
        for _ in 0..CALLERS {
            let stream = tokio::net::TcpStream::connect(server.address()).await?;
            stream.set_nodelay(true)?;
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            callers.push(Arc::new(tokio::sync::Mutex::new(sender)));
        }
        // The key that comes again and again is done before: else more would wait for it than may.
        let host = server.address().to_string();
        ask(&mut *callers[0].lock().await, &host, u64::MAX).await?;
        Ok(Self {
            server,
            _opened: opened,
            callers,
            number: Arc::default(),
        })
    }

    /// Requests a second.
    async fn turn(&self, fresh: bool) -> anyhow::Result<f64> {
        let clock = SystemTime::default();
        let began = clock.now();
        let mut asking = tokio::task::JoinSet::new();
        for caller in &self.callers {
            let (caller, number) = (Arc::clone(caller), Arc::clone(&self.number));
            let host = self.server.address().to_string();
            asking.spawn(async move {
                let mut caller = caller.lock().await;
                let clock = SystemTime::default();
                let (began, mut count) = (clock.now(), 0_u32);
                while clock.now().since(began) < TURN {
                    let key = match fresh {
                        true => number.fetch_add(1, Ordering::Relaxed),
                        false => u64::MAX,
                    };
                    ask(&mut caller, &host, key).await?;
                    count += 1;
                }
                anyhow::Ok(count)
            });
        }
        let mut count = 0.0;
        while let Some(asked) = asking.join_next().await {
            count += f64::from(asked??);
        }
        Ok(count / clock.now().since(began).as_secs_f64())
    }
}

async fn ask(
    caller: &mut http1::SendRequest<Full<Bytes>>,
    host: &str,
    key: u64,
) -> anyhow::Result<()> {
    let request = http::Request::post("/")
        .header("host", host)
        .header("content-type", "application/json")
        .header("idempotency-key", format!("bench-{key:020}"))
        .body(Full::from("{\"amount\":1}"))?;
    caller.ready().await?;
    let response = caller.send_request(request).await?;
    anyhow::ensure!(response.status().is_success(), "{}", response.status());
    response.into_body().collect().await.context("a body")?;
    Ok(())
}
