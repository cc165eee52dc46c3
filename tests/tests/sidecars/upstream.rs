//! The one service behind the sidecars: it counts its effects.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use parking_lot::Mutex;

use crate::check::Effect;
use crate::fleet::{now, pause_for};

/// What one service has done, however many ways lead to it.
#[derive(Clone, Default)]
pub(crate) struct Upstream {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    effects: Mutex<Vec<Effect>>,
    number: AtomicUsize,
    /// How many are being done for each sidecar.
    open: Mutex<Vec<usize>>,
}

impl Upstream {
    /// An address of its own for each sidecar, so that an effect can be tied to the process that
    /// asked for it.
    pub(crate) async fn door(&self) -> SocketAddr {
        let via = {
            let mut open = self.shared.open.lock();
            open.push(0);
            open.len() - 1
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("a port");
        let router = Router::new()
            .route("/charges", post(charge))
            .with_state((self.clone(), via));
        tokio::spawn(async move { axum::serve(listener, router).await });
        address
    }

    /// How many effects are being done for a sidecar right now.
    pub(crate) fn open(&self, via: usize) -> usize {
        self.shared.open.lock()[via]
    }

    pub(crate) fn effects(&self) -> Vec<Effect> {
        self.shared.effects.lock().clone()
    }
}

/// Charges once every time that it is asked. The answer tells one run from every other.
async fn charge(
    State((upstream, via)): State<(Upstream, usize)>,
    headers: HeaderMap,
) -> (StatusCode, String) {
    let text = |name: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let number = upstream.shared.number.fetch_add(1, Ordering::SeqCst) + 1;
    let answer = format!("{{\"charge\":{number}}}");
    upstream.shared.effects.lock().push(Effect {
        key: text("idempotency-key"),
        attempt: text("semel-attempt").parse().unwrap_or(0),
        fence: text("semel-fence").parse().unwrap_or(0),
        via,
        begun: now(),
        answer: answer.clone(),
    });
    upstream.shared.open.lock()[via] += 1;
    // Most take a few milliseconds, one in twenty takes long enough to be met half-way.
    let takes = if number.is_multiple_of(20) {
        300 + number % 500
    } else {
        1 + number % 9
    };
    let takes = Duration::from_millis(takes as u64);
    pause_for(takes).await;
    upstream.shared.open.lock()[via] -= 1;
    (StatusCode::CREATED, answer)
}
