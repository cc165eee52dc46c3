//! Callers of the protocol API: they claim, run the effect themselves, and settle, each call
//! through any sidecar.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use semel_testkit::history::callers::{CallerOutcome, CallerReport, is_final};
use semel_testkit::history::{EffectRecord, KeyEnding};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{RECENT, SidecarObservations};
use crate::clock::{pass, tick};
use crate::http::{self, Post};

const CALLERS: u64 = 6;
/// Numbers of these callers begin here.
const FIRST: u64 = 1_000;
const PREFIX: &str = "v1-";
/// Where a sidecar has it.
const CLAIMS: &str = "/_semel/v1/claims";
/// How long a caller waits for one answer, and how often it sends a call that got none.
const PATIENCE: Duration = Duration::from_secs(2);
const SENDINGS: usize = 4;
/// How often a key is asked for at the close.
const CLOSING_TRIES: usize = 16;

/// Whether a key is one of these callers'.
pub(super) fn is_v1(key: &str) -> bool {
    key.starts_with(PREFIX)
}

/// All of them.
pub(super) struct Callers {
    caller: Caller,
    stop: Arc<AtomicBool>,
    tasks: parking_lot::Mutex<Vec<JoinHandle<()>>>,
}

impl Callers {
    pub(super) fn start(
        addresses: &Arc<Vec<SocketAddr>>,
        seen: &SidecarObservations,
        seed: u64,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let caller = Caller {
            number: FIRST,
            addresses: Arc::clone(addresses),
            seen: seen.clone(),
            next: Arc::default(),
        };
        let tasks = (0..CALLERS).map(|number| {
            let caller = Caller {
                number: FIRST + number,
                ..caller.clone()
            };
            tokio::spawn(caller.call_on(seed, Arc::clone(&stop)))
        });
        Self {
            tasks: parking_lot::Mutex::new(tasks.collect()),
            caller,
            stop,
        }
    }

    /// Lets everybody come to an end.
    pub(super) async fn stop(&self) -> Result<()> {
        self.stop.store(true, Ordering::SeqCst);
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            task.await.context("a caller died")?;
        }
        Ok(())
    }

    /// Every key once more, when all is whole. → how many gave no answer.
    pub(super) async fn close(&self) -> Result<u64> {
        let keys = self.caller.next.load(Ordering::SeqCst);
        let next = Arc::new(AtomicU64::new(0));
        let tasks: Vec<_> = (0..CALLERS)
            .map(|number| {
                let caller = Caller {
                    number: FIRST + number,
                    ..self.caller.clone()
                };
                tokio::spawn(caller.close(Arc::clone(&next), keys))
            })
            .collect();
        let mut unanswered = 0;
        for task in tasks {
            unanswered += task.await.context("a caller died")?;
        }
        Ok(unanswered)
    }
}

#[derive(Clone)]
struct Caller {
    number: u64,
    addresses: Arc<Vec<SocketAddr>>,
    seen: SidecarObservations,
    next: Arc<AtomicU64>,
}

/// A lease that was won, and until when things may be started under it.
struct Won {
    id: String,
    lease: Value,
    fence: u64,
    attempt: u16,
    deadline: u64,
}

impl Caller {
    async fn call_on(self, seed: u64, stop: Arc<AtomicBool>) {
        let mut rng = StdRng::seed_from_u64(seed ^ (self.number << 32));
        while !stop.load(Ordering::SeqCst) {
            let key = if rng.random_bool(0.5) {
                self.next.fetch_add(1, Ordering::SeqCst)
            } else {
                let newest = self.next.load(Ordering::SeqCst);
                newest.saturating_sub(rng.random_range(1..RECENT))
            };
            if !is_final(self.ask(key, &mut rng).await) {
                pass(Duration::from_millis(20)).await;
            }
        }
    }

    async fn close(self, next: Arc<AtomicU64>, keys: u64) -> u64 {
        let mut rng = StdRng::seed_from_u64(self.number);
        let mut unanswered = 0;
        loop {
            let key = next.fetch_add(1, Ordering::SeqCst);
            if key >= keys {
                return unanswered;
            }
            let mut is_answered = false;
            for _ in 0..CLOSING_TRIES {
                is_answered = is_final(self.ask(key, &mut rng).await);
                if is_answered {
                    break;
                }
                pass(Duration::from_millis(300)).await;
            }
            unanswered += u64::from(!is_answered);
        }
    }

    async fn ask(&self, key: u64, rng: &mut StdRng) -> CallerOutcome {
        let (name, start) = (format!("{PREFIX}{key:08}"), tick());
        let what = match self.claim(&name, key, rng).await {
            Ok(won) => self.work(&name, &won, rng).await,
            Err(told) => told,
        };
        self.seen.told(CallerReport {
            client: self.client(),
            key: name,
            payload: key,
            start,
            end: tick(),
            what,
        });
        what
    }

    fn client(&self) -> u32 {
        u32::try_from(self.number).unwrap_or(0)
    }

    /// Posts to any of the sidecars until one answers. → status, body, and when the first sending
    /// was.
    async fn post(&self, path: &str, body: &Value, rng: &mut StdRng) -> Option<(u16, Value, u64)> {
        let (sent, mut body) = (tick(), body.clone());
        for sending in 0..SENDINGS {
            if sending > 0 && path == CLAIMS {
                body["retry"] = json!(true);
            }
            let text = body.to_string();
            let post = Post {
                path,
                key: None,
                body: &text,
            };
            let via = self.addresses[rng.random_range(0..self.addresses.len())];
            let reply = http::post(via, &post, PATIENCE).await;
            // What fails inside of the server is no answer.
            if let Some(reply) = reply.filter(|reply| !reply.status.is_server_error()) {
                let value = serde_json::from_slice(&reply.body).unwrap_or_default();
                return Some((reply.status.as_u16(), value, sent));
            }
        }
        None
    }

    async fn claim(&self, name: &str, key: u64, rng: &mut StdRng) -> Result<Won, CallerOutcome> {
        let token = format!("{:032x}", rng.random::<u128>());
        let claim = json!({
            "scope": "charges-v1", "key": name, "payload": {"amount": key}, "token": token,
            "policy": {"wait_ms": 1_000},
        });
        let reply = self.post(CLAIMS, &claim, rng).await;
        let (status, value, sent) = reply.ok_or(CallerOutcome::AskAgain)?;
        match status {
            201 => {
                let lease = &value["lease"];
                let number = |name: &str| lease[name].as_u64().unwrap_or(0);
                Ok(Won {
                    id: value["id"].as_str().unwrap_or_default().to_owned(),
                    lease: json!({"token": lease["token"], "fence": lease["fence"]}),
                    fence: number("fence"),
                    attempt: u16::try_from(number("attempt")).unwrap_or(0),
                    deadline: sent + number("expires_in_ms") * 1_000_000,
                })
            }
            200 => {
                let run = value["answer"]["body"].as_u64();
                Err(run.map_or(CallerOutcome::AskAgain, |run| {
                    CallerOutcome::Answer(KeyEnding::Completed(run))
                }))
            }
            _ if value["code"] == "idempotency_in_doubt" => Err(CallerOutcome::InDoubt),
            409 => Err(CallerOutcome::Busy),
            _ => Err(CallerOutcome::AskAgain),
        }
    }

    /// The effect, some of whose owners keep progress, give the key back before they begin, or
    /// vanish.
    async fn work(&self, name: &str, won: &Won, rng: &mut StdRng) -> CallerOutcome {
        let whim = rng.random_range(0..100);
        if whim < 4 {
            let release = with(&won.lease, &[("outcome", json!("release"))]);
            self.settle(won, &release, rng).await;
            return CallerOutcome::AskAgain;
        }
        if tick() >= won.deadline {
            return CallerOutcome::AskAgain;
        }
        let run = self.seen.began(EffectRecord {
            client: self.client(),
            key: name.to_owned(),
            fence: won.fence,
            attempt: won.attempt,
            start: tick(),
            began: 0,
            end: None,
        });
        if whim < 14 {
            let renew = with(&won.lease, &[("checkpoint", json!({"run": run}))]);
            let path = format!("{CLAIMS}/{}/renew", won.id);
            // Whoever lost its lease is told so again at the settlement.
            let _ = self.post(&path, &renew, rng).await;
        }
        if whim >= 97 {
            return CallerOutcome::AskAgain;
        }
        let answer = ("answer", json!({"body": run}));
        let complete = with(&won.lease, &[("outcome", json!("complete")), answer]);
        if self.settle(won, &complete, rng).await {
            CallerOutcome::Answer(KeyEnding::Completed(run))
        } else {
            CallerOutcome::AskAgain
        }
    }

    /// → whether the server says that it is recorded.
    async fn settle(&self, won: &Won, settlement: &Value, rng: &mut StdRng) -> bool {
        let path = format!("{CLAIMS}/{}/settle", won.id);
        let reply = self.post(&path, settlement, rng).await;
        reply.is_some_and(|(status, ..)| status == 200)
    }
}

fn with(lease: &Value, members: &[(&str, Value)]) -> Value {
    let mut all = lease.clone();
    for (name, value) in members {
        all[*name] = value.clone();
    }
    all
}
