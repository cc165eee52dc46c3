//! The stage: the client of the story, the two services, the two sidecars, and one run at a time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use semel::core::hex::hex;
use semel::core::{Code, Entropy, Identity, KeyRules, Namespace, Secret};
use serde::Serialize;
use serde_json::{Value, json};

use super::board::Board;
use super::http::Http;
use super::run::{Crash, Event, Kind, Lane, Reply, Run, Scenario, Tone};
use super::sidecar::{ENVIRONMENT, Sidecar};
use crate::payments::Payments;

/// How often a sidecar is asked how many requests wait.
const ASK_EVERY: Duration = Duration::from_millis(60);

/// What the page may ask for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) scenario: Scenario,
    pub(super) with_semel: bool,
    pub(super) crash: Crash,
}

/// Everything that takes part.
pub(super) struct Stage {
    pub(super) board: Arc<Board>,
    pub(super) http: Http,
    pub(super) a: Arc<Sidecar>,
    pub(super) b: Arc<Sidecar>,
    /// The service behind the sidecars.
    pub(super) behind: Payments,
    /// The same service without Semel, with counts of its own.
    pub(super) bare: Payments,
    pub(super) entropy: Arc<dyn Entropy>,
    pub(super) next: AtomicU32,
    pub(super) is_busy: AtomicBool,
}

/// Orders, charges and duplicates of one service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Totals {
    pub(super) orders: u32,
    pub(super) charges: u32,
    pub(super) duplicates: u32,
}

impl Totals {
    pub(super) fn of(payments: &Payments) -> Self {
        let mut totals = Self::default();
        for charges in payments.charges().into_values() {
            totals.orders += 1;
            totals.charges += charges;
            totals.duplicates += charges.saturating_sub(1);
        }
        totals
    }
}

/// One request of a run.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) run: u32,
    pub(super) to: Lane,
    pub(super) address: SocketAddr,
    pub(super) path: &'static str,
    pub(super) key: String,
    pub(super) body: Value,
}

impl Stage {
    /// The run of a new order, with a key that nobody has used.
    pub(super) fn new_run(&self, asked: Asked) -> Run {
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let crash = match asked.scenario {
            Scenario::Kill if asked.with_semel => asked.crash,
            _ => Crash::Hold,
        };
        let order = format!("ord-{number:04}");
        let key = format!("{order}-{:06x}", self.entropy.next_u128() & 0xff_ffff);
        Run {
            number,
            scenario: asked.scenario,
            with_semel: asked.with_semel,
            crash,
            id: hash(crash.path(), &key),
            order,
            key,
            began: self.board.wall_ms(),
            is_done: false,
            verdict: None,
            replies: Vec::new(),
            events: Vec::new(),
        }
    }

    /// A request of `run` for this sum: to a sidecar, or to the service itself.
    pub(super) fn call(&self, run: &Run, to: Lane, cents: u32) -> Call {
        let (to, address) = match (run.with_semel, to) {
            (true, Lane::B) => (Lane::B, self.b.address),
            (true, _) => (Lane::A, self.a.address),
            (false, _) => (Lane::Service, self.bare.address),
        };
        Call {
            run: run.number,
            to,
            address,
            path: run.crash.path(),
            key: run.key.clone(),
            body: json!({"order": run.order, "cents": cents}),
        }
    }

    pub(super) fn note_request(&self, call: &Call, label: &str) {
        let event = Event::arrow(Kind::Request, Lane::Client, call.to, label);
        self.board.note(call.run, event);
    }

    /// Sends a request whose arrow is drawn already, and notes its reply. `None` where none comes.
    pub(super) async fn send(&self, call: &Call, is_lost: bool) -> Option<Reply> {
        let url = format!("http://{}{}", call.address, call.path);
        let sent = self.http.post(&url, &call.key, call.body.to_string()).await;
        let Ok(got) = sent else {
            self.note_broken(call);
            return None;
        };
        let reply = Reply {
            status: got.status,
            is_replayed: got.headers.contains_key("idempotent-replayed"),
            is_lost,
            body: String::from_utf8_lossy(&got.body).into_owned(),
        };
        let event = Event::arrow(Kind::Reply, call.to, Lane::Client, words(&reply));
        let event = match (is_lost, reply.status) {
            (true, _) => event.lost(),
            (_, 200..=299) => event.toned(Tone::Good),
            _ => event.toned(Tone::Warn),
        };
        self.board.note(call.run, event);
        let kept = reply.clone();
        self.board.change(call.run, |run| run.replies.push(kept));
        Some(reply)
    }

    /// The client's connection broke before a reply came.
    pub(super) fn note_broken(&self, call: &Call) {
        let event = Event::arrow(Kind::Reply, call.to, Lane::Client, "connection broken");
        self.board.note(call.run, event.lost());
    }

    pub(super) fn note_client(&self, run: u32, label: &str) {
        let event = Event::note(Kind::Note, Lane::Client, Tone::Calm, label);
        self.board.note(run, event);
    }

    /// Asks a sidecar how many requests wait, until some do, and notes it.
    pub(super) async fn watch_waiting(&self, run: u32, sidecar: &Sidecar) {
        let url = format!("http://{}/admin/v1/stats", sidecar.admin);
        let mut seen = 0;
        loop {
            self.board.clock.sleep(ASK_EVERY).await;
            let Ok(reply) = self.http.get(&url).await else {
                continue;
            };
            let stats: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
            let waiting = stats["engine"]["waiting"].as_u64().unwrap_or(0);
            // The same number twice: everybody who will wait does.
            if waiting > 0 && waiting == seen {
                break;
            }
            seen = waiting;
        }
        let label = match seen {
            1 => "waiting".to_owned(),
            many => format!("{many} waiting"),
        };
        let event = Event::note(Kind::Note, sidecar.lane, Tone::Waiting, label);
        self.board.note(run, event);
    }

    /// Waits, so that people can follow.
    pub(super) async fn pause(&self, millis: u64) {
        self.board.clock.sleep(Duration::from_millis(millis)).await;
    }
}

/// What a reply says, in a few words.
fn words(reply: &Reply) -> String {
    let problem: Value = serde_json::from_str(&reply.body).unwrap_or_default();
    let code = problem["code"].as_str().and_then(|code| code.parse().ok());
    let more = match (reply.is_lost, reply.is_replayed, code) {
        (true, _, _) => ", lost",
        (_, true, _) => ", the stored response",
        (_, _, Some(Code::Conflict)) => ", nothing runs",
        (_, _, Some(Code::InDoubt)) => ", outcome unknown",
        _ => "",
    };
    format!("{}{more}", reply.status)
}

/// The hash under which Semel keeps a key of this command.
fn hash(scope: &str, key: &str) -> String {
    let namespace = Namespace::with_principal(ENVIRONMENT, "", scope, "");
    let key = KeyRules::default().check(key);
    let (Ok(namespace), Ok(key)) = (namespace, key) else {
        return String::new();
    };
    let identity = Identity::new(&Secret::none(), &namespace, &key);
    hex(identity.as_bytes())
}
