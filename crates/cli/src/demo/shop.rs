//! A typical client: it sends a key, and retries if no response comes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use semel::core::Clock;

use crate::client::{HttpClient, cause, http_client};
use crate::exit::{self, Exit};
use crate::payments::Payments;
use crate::progress::Progress;

/// The largest number of lost responses in a row for one order.
const MAX_LOSSES: u32 = 5;
/// A pause, so that there is something to watch.
const PAUSE: Duration = Duration::from_millis(40);

pub(super) struct Shop {
    client: HttpClient,
    clock: Arc<dyn Clock>,
    orders: u32,
    lost: u32,
    seed: u64,
    is_watched: bool,
}

/// The result of one round.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) requests: u32,
    pub(super) lost: u32,
    pub(super) replays: u32,
    /// The number of charges of each order.
    pub(super) charges: BTreeMap<String, u32>,
    /// One replayed response.
    pub(super) example: Option<Response>,
}

#[derive(Debug)]
pub(super) struct Response {
    pub(super) key: String,
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Round {
    pub(super) fn total(&self) -> u32 {
        self.charges.values().sum()
    }

    pub(super) fn duplicates(&self) -> u32 {
        self.charges
            .values()
            .map(|charges| charges.saturating_sub(1))
            .sum()
    }
}

impl Shop {
    pub(super) fn new(orders: u32, lost: u32, seed: u64, is_watched: bool) -> Result<Self, Exit> {
        let client = http_client(None);
        Ok(Self {
            client: client.map_err(|message| Exit::failed(exit::UNEXPECTED, message))?,
            clock: semel::tokio_env().clock,
            orders,
            lost,
            seed,
            is_watched,
        })
    }

    /// Places all orders at `to`, and counts the charges of `payments`.
    pub(super) async fn place_orders(
        &self,
        payments: &Payments,
        to: SocketAddr,
    ) -> Result<Round, Exit> {
        // The same responses get lost in both rounds.
        let mut luck = StdRng::seed_from_u64(self.seed);
        let mut round = Round::default();
        let progress = Progress::steps("placing orders", u64::from(self.orders));
        for number in 1..=self.orders {
            let order = format!("ord-{number:02}");
            for attempt in 0.. {
                let is_lost = attempt < MAX_LOSSES && luck.random_range(0..100) < self.lost;
                let response = self.send(to, &order, number).await?;
                round.requests += 1;
                if response.headers.contains_key("idempotent-replayed") {
                    round.replays += 1;
                    if round.example.is_none() && !is_lost {
                        round.example = Some(response);
                    }
                }
                if self.is_watched {
                    self.clock.sleep(PAUSE).await;
                }
                if !is_lost {
                    break;
                }
                // The charge was made, but the client does not know and retries.
                round.lost += 1;
            }
            progress.to(u64::from(number));
        }
        round.charges = payments.charges();
        Ok(round)
    }

    async fn send(&self, to: SocketAddr, order: &str, number: u32) -> Result<Response, Exit> {
        let failed = |message: String| Exit::failed(exit::UNEXPECTED, message);
        let key = format!("{order}-7c1e9a");
        let body = format!(r#"{{"order":"{order}","cents":{}}}"#, 900 + number * 100);
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://{to}/charges"))
            .header(header::CONTENT_TYPE, "application/json")
            .header("idempotency-key", &key)
            .body(Body::from(body))
            .map_err(|error| failed(error.to_string()))?;
        let answer = self.client.request(request).await;
        let (parts, body) = answer.map_err(|error| failed(cause(&error)))?.into_parts();
        let body = body
            .collect()
            .await
            .map_err(|error| failed(error.to_string()))?;
        Ok(Response {
            key,
            status: parts.status,
            headers: parts.headers,
            body: body.to_bytes(),
        })
    }
}
