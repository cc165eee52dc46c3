//! Concurrent callers that retry and disconnect, on the peer and on our layer, judged by the rules
//! of the fault runs.

#![expect(clippy::disallowed_methods, reason = "real processes and sockets run on real time")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::ensure;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use comfy_table::Table;
use semel::Semel;
use semel::core::clock::SystemTime;
use semel_testkit::history::callers::{CallerOutcome, CallerReport, Reading, check};
use semel_testkit::history::{EffectRecord, KeyEnding};

use crate::load::Connection;
use crate::peer;

const KEYS: u64 = 400;
/// Callers of one key, all at once.
const CALLERS: u32 = 6;

/// The application: it counts what it does.
#[derive(Clone)]
struct App {
    clock: SystemTime,
    runs: Arc<AtomicU64>,
    effects: Arc<Mutex<Vec<EffectRecord>>>,
}

impl App {
    fn new() -> Self {
        Self {
            clock: SystemTime::default(),
            runs: Arc::default(),
            effects: Arc::default(),
        }
    }

    fn tick(&self) -> u64 {
        u64::try_from(self.clock.now().since_origin().as_nanos()).unwrap_or(u64::MAX)
    }

    fn router(&self) -> Router {
        Router::new()
            .route("/charges", post(charge))
            .with_state(self.clone())
    }
}

async fn charge(State(app): State<App>, headers: HeaderMap) -> (StatusCode, String) {
    let key = headers.get("idempotency-key");
    let key = key.and_then(|key| key.to_str().ok()).unwrap_or_default();
    let run = app.runs.fetch_add(1, Ordering::SeqCst) + 1;
    let start = app.tick();
    let effect = EffectRecord {
        client: 0,
        key: key.to_owned(),
        fence: run,
        attempt: 1,
        start,
        began: start / 1_000,
        end: None,
    };
    if let Ok(mut effects) = app.effects.lock() {
        effects.push(effect);
    }
    tokio::time::sleep(Duration::from_millis(run % 4)).await;
    (StatusCode::CREATED, run.to_string())
}

/// What one layer has shown.
struct FaultSummary {
    name: &'static str,
    operations: usize,
    effects: usize,
    violations: Vec<String>,
}

async fn serve(router: Router) -> anyhow::Result<SocketAddr> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

/// One caller of a key. Every third disconnects before its answer and retries.
async fn call(
    app: App,
    mut connection: Connection,
    address: SocketAddr,
    key: u64,
    seed: u64,
    client: u32,
) -> Option<CallerReport> {
    let name = format!("{seed:08}-{key:08}");
    let start = app.tick();
    if (key + u64::from(client)).is_multiple_of(3) {
        let patience =
            Duration::from_micros(300 + (key * 7919 + u64::from(client) * 104_729 + seed) % 3_000);
        let left = tokio::time::timeout(patience, connection.charge(&name)).await;
        if left.is_err() {
            connection = connection.beside(address).await.ok()?;
        }
    }
    connection.charge(&name).await.ok()?;
    let run = connection.body().parse().ok()?;
    Some(CallerReport {
        client,
        key: name,
        payload: 0,
        start,
        end: app.tick(),
        what: CallerOutcome::Answer(KeyEnding::Completed(run)),
    })
}

async fn drive(
    name: &'static str,
    app: App,
    router: Router,
    session: bool,
    seed: u64,
) -> anyhow::Result<FaultSummary> {
    let address = serve(router).await?;
    let first = Connection::open(address, session).await?;
    let mut told = Vec::new();
    for key in 0..KEYS {
        let mut callers = Vec::new();
        for client in 0..CALLERS {
            let connection = first.beside(address).await?;
            callers.push(tokio::spawn(call(
                app.clone(),
                connection,
                address,
                key,
                seed,
                client,
            )));
        }
        for caller in callers {
            told.extend(caller.await?);
        }
    }
    ensure!(
        told.len() > 200,
        "{name}: only {} were answered",
        told.len()
    );
    let effects = app
        .effects
        .lock()
        .map(|effects| effects.clone())
        .unwrap_or_default();
    let reading = Reading {
        store: None,
        undisturbed: true,
    };
    let violations = check(&told, &effects, reading);
    Ok(FaultSummary {
        name,
        operations: told.len(),
        effects: effects.len(),
        violations: violations.iter().map(ToString::to_string).collect(),
    })
}

/// Runs both, prints the table, and fails unless the peer breaks a rule and our layer does not.
pub(crate) fn show(seed: u64, json: Option<&Path>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let shown = runtime.block_on(async {
        let app = App::new();
        let router = peer::wrap(
            app.router(),
            ruts::store::moka::MokaStore::builder().build(),
        );
        let theirs = drive("axum-idempotent 0.6.0", app, router, true, seed).await?;
        let app = App::new();
        let semel = Semel::open("memory://").await?;
        let router = app.router().layer(semel.http());
        let ours = drive("semel", app, router, false, seed).await?;
        anyhow::Ok([theirs, ours])
    })?;
    let mut table = Table::new();
    table.set_header(["layer", "operations", "keys", "effects", "violations"]);
    for row in &shown {
        let numbers = [
            row.operations as u64,
            KEYS,
            row.effects as u64,
            row.violations.len() as u64,
        ];
        let numbers = numbers.map(|number| number.to_string());
        table.add_row([&[row.name.to_owned()][..], &numbers[..]].concat());
    }
    println!("{table}");
    let [theirs, ours] = &shown;
    if let Some(first) = theirs.violations.first() {
        println!("the first of the peer's:\n{first}");
    }
    if let Some(path) = json {
        let row = |row: &FaultSummary| {
            serde_json::json!({ "layer": row.name, "operations": row.operations, "keys": KEYS,
            "effects": row.effects, "violations": row.violations.len(), "first": row.violations.first() })
        };
        std::fs::write(
            path,
            serde_json::to_string_pretty(&shown.each_ref().map(row))? + "\n",
        )?;
    }
    ensure!(
        !theirs.violations.is_empty(),
        "the peer was not found out: the checker proves nothing"
    );
    ensure!(
        ours.violations.is_empty(),
        "our layer: {}",
        ours.violations[0]
    );
    println!("the peer is found out, as it has to be; our layer, under the same callers, is not");
    Ok(())
}
