//! Callers: new requests and retries, at a rate, each of which asks until it has an answer.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use semel_httpclient::Pool;
use tokio::task::JoinSet;

use crate::check::Answer;
use crate::fleet::pause_for;

/// Requests a second, and how many of a hundred are retries of an earlier one.
const RATE: u32 = 200;
const RETRIES: u64 = 30;
/// A retry repeats one of so many requests before it: some still run, most are done.
const RECENT: u64 = 100;
/// How long a caller waits for an answer: a paused sidecar gives none.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often a caller asks at most. It asks another sidecar each time.
const TRIES: u64 = 12;

/// The callers, and what they were told.
#[derive(Clone)]
pub(crate) struct Callers {
    client: Pool,
    addresses: Arc<Vec<SocketAddr>>,
    answers: Arc<Mutex<Vec<Answer>>>,
    counts: Arc<Mutex<Counts>>,
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Requests by the clock, retries among them, and keys.
    pub(crate) requests: u64,
    pub(crate) retries: u64,
    pub(crate) keys: u64,
    /// Sent again because there was no answer, or one that asks for it.
    pub(crate) again: u64,
    /// Answers that were replays.
    pub(crate) replays: u64,
    /// Callers that gave up.
    pub(crate) gave_up: u64,
}

/// The key of the `n`-th request. The admin API tells its first eight characters, which no other
/// has.
pub(crate) fn key(n: u64) -> String {
    format!("{n:08}-{n:08}")
}

/// In every payload, and nowhere else: whoever tells it tells payloads.
pub(crate) const CARD: &str = "4000-0566-5566-5556";

/// A number that looks like chance, the same in every run.
fn chance(n: u64) -> u64 {
    let mixed = (n ^ (n >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 33
}

impl Callers {
    pub(crate) fn new(addresses: Vec<SocketAddr>) -> Self {
        Self {
            client: Pool::new(PATIENCE),
            addresses: Arc::new(addresses),
            answers: Arc::default(),
            counts: Arc::default(),
        }
    }

    pub(crate) fn answers(&self) -> Vec<Answer> {
        self.answers.lock().clone()
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.counts.lock()
    }

    /// Sends for so long, and waits until every caller has its answer or has given up.
    pub(crate) async fn send_for(&self, span: Duration) {
        let mut tick = tokio::time::interval(Duration::from_secs(1) / RATE);
        let (mut callers, mut keys) = (JoinSet::new(), 0);
        let many = span.as_secs() * u64::from(RATE);
        for n in 0..many {
            tick.tick().await;
            let is_retry = keys > 0 && chance(n) % 100 < RETRIES;
            let which = if is_retry {
                let back = chance(n ^ 0xABCD) % RECENT.min(keys);
                keys - 1 - back
            } else {
                keys += 1;
                keys - 1
            };
            let mut counts = self.counts.lock();
            counts.requests += 1;
            counts.retries += u64::from(is_retry);
            counts.keys = keys;
            drop(counts);
            let this = self.clone();
            callers.spawn(async move { this.until_answered(which, chance(n ^ 0x1234)).await });
        }
        while callers.join_next().await.is_some() {}
    }

    /// The keys that some caller has an answer for.
    fn answered(&self) -> HashSet<String> {
        let answers = self.answers.lock();
        let done = answers.iter().filter(|answer| answer.status < 300);
        done.map(|answer| answer.key.clone()).collect()
    }

    /// Every key that no caller has an answer for is asked for once more. By then it is answered,
    /// or in doubt.
    pub(crate) async fn ask_rest(&self) {
        let keys = self.counts().keys;
        let done = self.answered();
        let mut callers = JoinSet::new();
        for n in (0..keys).filter(|n| !done.contains(&key(*n))) {
            if callers.len() >= 16 {
                callers.join_next().await;
            }
            let this = self.clone();
            callers.spawn(async move { this.until_answered(n, n).await });
        }
        while callers.join_next().await.is_some() {}
    }

    async fn until_answered(&self, n: u64, first: u64) {
        let key = key(n);
        let ways = self.addresses.len() as u64;
        for attempt in 0..TRIES {
            let way = usize::try_from((first + attempt) % ways).expect("few sidecars");
            let url = format!("http://{}/charges", self.addresses[way]);
            let body = format!("{{\"amount\":{n},\"card\":\"{CARD}\"}}");
            let reply = self.client.post(&url, &key, body).await;
            if self.noted(&key, reply) {
                return;
            }
            self.counts.lock().again += 1;
            pause_for(Duration::from_millis(100 + 50 * attempt)).await;
        }
        self.counts.lock().gave_up += 1;
    }

    /// → whether that is an answer to stay with.
    fn noted(&self, key: &str, reply: Result<semel_httpclient::Answer, String>) -> bool {
        let Ok(reply) = reply else { return false };
        let in_doubt = reply.text().contains("idempotency_in_doubt");
        let done = reply.status.is_success();
        self.counts.lock().replays += u64::from(reply.is_replay());
        self.answers.lock().push(Answer {
            key: key.to_owned(),
            status: reply.status.as_u16(),
            body: reply.text().to_owned(),
        });
        done || in_doubt
    }
}
