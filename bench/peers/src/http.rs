//! `bench http`: one small axum application, under no layer, under ours, under the peer; taking
//! turns.
//!
//! Every server has a thread of its own, and so has the load: on two cores neither takes the
//! other's time. Rates are over 32 connections; what the layer adds to a request is taken on one
//! connection at a time, as the difference of the medians and of the 99th percentiles.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Json, Router};
use fred::prelude::{Builder, ClientLike as _, Config};
use futures_util::future::BoxFuture;
use ruts::store::redis::RedisStore;
use semel::Semel;
use serde::{Deserialize, Serialize};

use crate::load::{Connection, Keys, Numbers, turn};
use crate::peer;
use semel_bench_core::report::{Row, publish};

const CONNECTIONS: usize = 32;
const TURN: Duration = Duration::from_millis(400);
const TURNS: usize = 10;

#[derive(Deserialize)]
struct Order {
    customer: String,
    cents: u64,
}

#[derive(Serialize)]
struct Receipt {
    id: String,
    customer: String,
    charged: u64,
}

async fn charge(Json(order): Json<Order>) -> impl IntoResponse {
    let receipt = Receipt {
        id: "ch_1".to_owned(),
        customer: order.customer,
        charged: order.cents,
    };
    let location = [(header::LOCATION, "/charges/ch_1")];
    (StatusCode::CREATED, location, Json(receipt))
}

fn app() -> Router {
    Router::new().route("/charges", post(charge))
}

/// One server, and how it is asked.
struct Side {
    address: SocketAddr,
    with_session: bool,
}

type Make = Box<dyn FnOnce() -> BoxFuture<'static, anyhow::Result<Router>> + Send>;

impl Side {
    /// Serves on a thread and runtime of its own.
    fn start(with_session: bool, make: Make) -> anyhow::Result<Self> {
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async move {
                let router = make().await?;
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
                let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
                    let _ = stream.set_nodelay(true);
                });
                send.send(axum::serve::Listener::local_addr(&listener)?)?;
                axum::serve(listener, router).await?;
                anyhow::Ok(())
            })
        });
        Ok(Self {
            address: receive.recv().context("a server did not start")?,
            with_session,
        })
    }

    fn bare() -> anyhow::Result<Self> {
        Self::start(false, Box::new(|| Box::pin(async { Ok(app()) })))
    }

    fn ours(url: String) -> anyhow::Result<Self> {
        Self::start(
            false,
            Box::new(|| {
                Box::pin(async move {
                    let semel = Semel::open(&url).await?;
                    Ok(app().layer(semel.http()))
                })
            }),
        )
    }

    fn peer(url: String) -> anyhow::Result<Self> {
        Self::start(
            true,
            Box::new(|| {
                Box::pin(async move {
                    let client = Builder::from_config(Config::from_url(&url)?).build()?;
                    client.init().await?;
                    let store = RedisStore::new(Arc::new(client)).await?;
                    Ok(peer::wrap(app(), store))
                })
            }),
        )
    }

    async fn connect(&self, count: usize) -> anyhow::Result<Vec<Connection>> {
        let mut connections = Vec::new();
        for _ in 0..count {
            connections.push(Connection::open(self.address, self.with_session).await?);
        }
        Ok(connections)
    }
}

pub(crate) fn bench() -> anyhow::Result<()> {
    let url = |name: &str| {
        std::env::var(name)
            .with_context(|| format!("{name} is not set; `cargo xtask bench http` sets it"))
    };
    let (redis, valkey) = (url("SEMEL_TEST_REDIS_URL")?, url("SEMEL_TEST_VALKEY_URL")?);
    let bare = Side::bare()?;
    let memory = Side::ours("memory://?capacity=1000000".to_owned())?;
    let on_redis = Side::ours(redis)?;
    let on_valkey = Side::ours(valkey.clone())?;
    // The peer sets times to live on fields of a hash, which Redis 7.0 can't.
    let peer = Side::peer(valkey)?;

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let rows = runtime.block_on(async {
        use Keys::{Fresh, Replayed};
        let mut rows = Vec::new();
        rows.extend(
            rates(
                "memory, new keys, beside no layer",
                &memory,
                &bare,
                Fresh,
                Some(0.85),
            )
            .await?,
        );
        rows.extend(
            rates(
                "memory, replays, beside no layer",
                &memory,
                &bare,
                Replayed,
                None,
            )
            .await?,
        );
        rows.extend(
            rates(
                "Redis 7.0, new keys, beside no layer",
                &on_redis,
                &bare,
                Fresh,
                None,
            )
            .await?,
        );
        rows.extend(
            rates(
                "Valkey 9.1, new keys, beside the peer",
                &on_valkey,
                &peer,
                Fresh,
                Some(1.3),
            )
            .await?,
        );
        rows.extend(
            rates(
                "Valkey 9.1, replays, beside the peer",
                &on_valkey,
                &peer,
                Replayed,
                None,
            )
            .await?,
        );
        for (name, ours, other) in [
            ("memory", &memory, &bare),
            ("Redis 7.0", &on_redis, &bare),
            ("Valkey 9.1", &on_valkey, &bare),
        ] {
            rows.extend(latencies(name, ours, other).await?);
        }
        rows.extend(latencies("peer on Valkey 9.1", &peer, &bare).await?);
        anyhow::Ok(rows)
    })?;
    publish("http", &rows)
}

async fn rates(
    name: &str,
    ours: &Side,
    other: &Side,
    keys: Keys,
    target: Option<f64>,
) -> anyhow::Result<Vec<Row>> {
    eprintln!("measuring: {name}");
    let numbers = Numbers::new(semel::tokio_env().entropy.next_u128());
    let (mut a, mut b) = (
        ours.connect(CONNECTIONS).await?,
        other.connect(CONNECTIONS).await?,
    );
    // Replays are of a key that is done: all at once would be a storm on one that runs.
    for side in [&mut a, &mut b] {
        let first = side.first_mut().context("a connection")?;
        first.charge(&numbers.key(Keys::Replayed)).await?;
    }
    let (mut our_rates, mut other_rates) = (Vec::new(), Vec::new());
    for warming in [true, false] {
        for _ in 0..if warming { 1 } else { TURNS } {
            let (ours, _) = turn(&mut a, &numbers, keys, TURN).await?;
            let (other, _) = turn(&mut b, &numbers, keys, TURN).await?;
            if !warming {
                our_rates.push(ours);
                other_rates.push(other);
            }
        }
    }
    let (ours, other) = (at(&mut our_rates, 0.5), at(&mut other_rates, 0.5));
    Ok(vec![Row::at_least(name, "/s", ours, other, target)])
}

async fn latencies(name: &str, ours: &Side, other: &Side) -> anyhow::Result<Vec<Row>> {
    eprintln!("measuring: what {name} adds");
    let numbers = Numbers::new(semel::tokio_env().entropy.next_u128());
    let (mut a, mut b) = (ours.connect(1).await?, other.connect(1).await?);
    let (mut our_times, mut other_times) = (Vec::new(), Vec::new());
    for _ in 0..TURNS / 2 {
        our_times.extend(turn(&mut a, &numbers, Keys::Fresh, TURN / 2).await?.1);
        other_times.extend(turn(&mut b, &numbers, Keys::Fresh, TURN / 2).await?.1);
    }
    let row = |what: &str, at_ours: f64, at_other: f64| {
        Row::at_most(
            format!("{name}, one caller, {what}"),
            "µs",
            at_ours,
            at_other,
            None,
        )
    };
    Ok(vec![
        row("p50", at(&mut our_times, 0.5), at(&mut other_times, 0.5)),
        row("p99", at(&mut our_times, 0.99), at(&mut other_times, 0.99)),
    ])
}

/// The value that so large a part of them is below.
fn at(values: &mut [f64], part: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values[(last as f64 * part).round() as usize]
}
