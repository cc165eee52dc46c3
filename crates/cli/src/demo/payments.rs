//! A payments service that charges whenever it is asked to: it knows nothing of keys.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Json, Router};
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;

/// The service, on a free port of the loopback.
pub(super) struct Payments {
    pub(super) address: SocketAddr,
    book: Book,
}

/// How often each order was charged.
#[derive(Clone, Debug, Default)]
struct Book(Arc<Mutex<BTreeMap<String, u32>>>);

#[derive(Deserialize)]
struct Order {
    order: String,
    cents: u32,
}

impl Payments {
    pub(super) async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let book = Book::default();
        let router = Router::new()
            .route("/charges", post(charge))
            .with_state(book.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, book })
    }

    pub(super) fn charges(&self) -> BTreeMap<String, u32> {
        self.book
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

async fn charge(State(book): State<Book>, Json(order): Json<Order>) -> impl IntoResponse {
    let mut charges = book.0.lock().unwrap_or_else(PoisonError::into_inner);
    *charges.entry(order.order.clone()).or_default() += 1;
    let number: u32 = charges.values().sum();
    let receipt = json!({
        "charge": format!("ch_{number:04}"),
        "order": order.order,
        "cents": order.cents,
    });
    (StatusCode::CREATED, Json(receipt))
}
