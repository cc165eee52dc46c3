//! A toy payments service on the loopback: it acts on every request and ignores idempotency keys.
//!
//! `semel demo` runs it without a delay. `semel dev` lets every effect take a while, so that people
//! can watch, and follows the effects by their reports. `semel demo --service` serves it alone.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use http::StatusCode;
use semel::core::Clock;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The service, on a port of the loopback.
pub(crate) struct Payments {
    pub(crate) address: SocketAddr,
    service: Service,
    /// Ends only where the listener fails.
    pub(crate) serving: JoinHandle<std::io::Result<()>>,
}

/// How long each effect takes, and who is told of it.
#[derive(Clone)]
pub(crate) struct Pace {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) time: Duration,
    pub(crate) reporter: Arc<dyn Fn(Report) + Send + Sync>,
}

/// One step of one effect.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) order: String,
    /// Counts the effects of this service, from 1.
    pub(crate) effect: u32,
    pub(crate) step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Begun,
    /// The effect is done. Where the caller has gone, the reply is not heard.
    Ended {
        is_heard: bool,
    },
}

#[derive(Clone)]
struct Service {
    /// By order, how often it was charged.
    charges: Arc<Mutex<BTreeMap<String, u32>>>,
    effects: Arc<AtomicU32>,
    pace: Option<Pace>,
}

#[derive(Deserialize)]
struct Order {
    order: String,
    cents: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// Takes money: a second one is a mistake.
    Charge,
    /// Writes the receipt of an order: a second one replaces the first.
    Receipt,
}

impl Payments {
    /// Starts the service on a free port, without a delay.
    pub(crate) async fn start() -> std::io::Result<Self> {
        Self::start_on(0, None).await
    }

    /// Starts the service on this port, without a delay.
    pub(crate) async fn start_at(port: u16) -> std::io::Result<Self> {
        Self::start_on(port, None).await
    }

    /// Starts the service on a free port; each effect takes its time and is reported.
    pub(crate) async fn start_slow(pace: Pace) -> std::io::Result<Self> {
        Self::start_on(0, Some(pace)).await
    }

    async fn start_on(port: u16, pace: Option<Pace>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let address = listener.local_addr()?;
        let service = Service {
            charges: Arc::default(),
            effects: Arc::default(),
            pace,
        };
        let charge = |State(service): State<Service>, Json(order): Json<Order>| async move {
            service.perform(Effect::Charge, order).await
        };
        let receipt = |State(service): State<Service>, Json(order): Json<Order>| async move {
            service.perform(Effect::Receipt, order).await
        };
        let total = |State(service): State<Service>| async move { Json(service.total()) };
        let router = Router::new()
            .route("/charges", post(charge).get(total))
            .route("/receipts", post(receipt))
            .with_state(service.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self {
            address,
            service,
            serving,
        })
    }

    /// By order, how often it was charged.
    pub(crate) fn charges(&self) -> BTreeMap<String, u32> {
        let charges = self.service.charges.lock();
        charges.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Service {
    /// Performs one effect. It goes on when the caller disconnects, as most services do.
    async fn perform(&self, effect: Effect, order: Order) -> Response {
        let number = self.effects.fetch_add(1, Ordering::Relaxed) + 1;
        let Some(pace) = self.pace.clone() else {
            return created(self.finish(effect, &order, number));
        };
        let name = order.order.clone();
        let report = move |step| Report {
            order: name.clone(),
            effect: number,
            step,
        };
        (pace.reporter)(report(Step::Begun));
        let (answer, answered) = oneshot::channel();
        let service = self.clone();
        tokio::spawn(async move {
            pace.clock.sleep(pace.time).await;
            let receipt = service.finish(effect, &order, number);
            let is_heard = !answer.is_closed();
            (pace.reporter)(report(Step::Ended { is_heard }));
            // Fails where the caller has gone, which the report says.
            let _ = answer.send(receipt);
        });
        match answered.await {
            Ok(receipt) => created(receipt),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }

    /// How many charges were made, for whoever asks the service itself.
    fn total(&self) -> Value {
        let charges = self.charges.lock();
        let charges = charges.unwrap_or_else(PoisonError::into_inner);
        json!({"charges": charges.values().sum::<u32>()})
    }

    fn finish(&self, effect: Effect, order: &Order, number: u32) -> Value {
        let (name, prefix) = match effect {
            Effect::Charge => ("charge", "ch"),
            Effect::Receipt => ("receipt", "rc"),
        };
        if effect == Effect::Charge {
            let charges = self.charges.lock();
            let mut charges = charges.unwrap_or_else(PoisonError::into_inner);
            *charges.entry(order.order.clone()).or_default() += 1;
        }
        json!({
            name: format!("{prefix}_{number:04}"),
            "order": order.order,
            "cents": order.cents,
        })
    }
}

fn created(receipt: Value) -> Response {
    (StatusCode::CREATED, Json(receipt)).into_response()
}
