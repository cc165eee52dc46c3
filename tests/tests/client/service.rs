//! What is called: a service that counts its effects, and the sidecar in front of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use parking_lot::Mutex;
use semel_httpclient::Pool;
use semel_testkit::private::{Private, free_port, new_folder};
use semel_tests::{semel, semel_command};
use serde_json::Value;

pub(crate) async fn pause(millis: u64) {
    let clock = semel::tokio_env().clock;
    clock.sleep(Duration::from_millis(millis)).await;
}

#[derive(Clone, Default)]
struct Charged {
    effects: Arc<Mutex<BTreeMap<String, Vec<String>>>>,
    requests: Arc<AtomicUsize>,
}

/// Charges, and gives a receipt with a random number: two effects have two.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    charged: Charged,
}

impl Service {
    pub(crate) async fn start() -> Self {
        let charged = Charged::default();
        let router = Router::new()
            .route("/charges", post(charge))
            .with_state(charged.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, charged }
    }

    /// The receipts of each order.
    pub(crate) fn effects(&self) -> BTreeMap<String, Vec<String>> {
        self.charged.effects.lock().clone()
    }

    pub(crate) fn requests(&self) -> usize {
        self.charged.requests.load(Ordering::Relaxed)
    }
}

async fn charge(State(charged): State<Charged>, body: bytes::Bytes) -> (StatusCode, String) {
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    charged.requests.fetch_add(1, Ordering::Relaxed);
    let order = asked["order"].as_str().unwrap_or_default().to_owned();
    let receipt = format!("receipt-{:032x}", semel::tokio_env().entropy.next_u128());
    charged
        .effects
        .lock()
        .entry(order)
        .or_default()
        .push(receipt.clone());
    (StatusCode::CREATED, receipt)
}

/// `semel serve` on Redis.
pub(crate) struct Sidecar {
    pub(crate) address: SocketAddr,
    _process: Private,
}

impl Sidecar {
    pub(crate) async fn start(upstream: SocketAddr) -> Self {
        let redis = std::env::var("SEMEL_TEST_REDIS_URL")
            .expect("SEMEL_TEST_REDIS_URL: see `cargo xtask services up redis`");
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let folder = new_folder("client");
        let settings = format!(
            "environment = \"client-{:032x}\"\nlistener.address = \"{address}\"\nstore.url = \"{redis}\"\nupstream.urls = [\"http://{upstream}\"]\n",
            semel::tokio_env().entropy.next_u128(),
        );
        std::fs::write(folder.join("semel.toml"), settings).expect("a file");
        let mut command = semel_command(&semel());
        command
            .args(["serve", "--config"])
            .arg(folder.join("semel.toml"));
        let mut process = Private::start(&mut command);
        let (client, ready) = (
            Pool::new(Duration::from_secs(10)),
            format!("http://{address}/_semel/readyz"),
        );
        for _ in 0..1500 {
            assert!(process.runs(), "it ended at its start");
            if client
                .get(&ready)
                .await
                .is_ok_and(|reply| reply.status == 200)
            {
                return Self {
                    address,
                    _process: process,
                };
            }
            pause(20).await;
        }
        panic!("it is never ready");
    }
}
