//! `bench stores`: each store against its bare engine, in one run: same client library, same number
//! of connections and callers, same bytes, taking turns.

mod mysql;
mod object;
pub(crate) mod postgres;
mod redis;
mod sizes;
mod sql;
mod sqlite;

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use semel::core::clock::SystemTime;
use semel::core::{Answer, Claim, ClaimTerms, CrashPolicy, Identity, Namespace, Settlement, Token};

use semel_bench_core::ops::{ANSWER_BYTES, claim};
use semel_bench_core::report::{Row, median, publish};

/// Callers at the same time.
const CALLERS: usize = 64;
/// How long one turn takes, and how many turns each side gets. Short, so that whatever else the
/// machine does falls on both sides of a pair alike.
const TURN: Duration = Duration::from_millis(100);
const TURNS: usize = 60;
/// Turns that don't count.
const WARM_UP: usize = 20;

/// How long both sides keep a key.
const RETENTION: Duration = Duration::from_secs(60);

pub(crate) fn bench(records: u64, only: &str) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let mut rows = Vec::new();
    runtime.block_on(async {
        if "Redis".starts_with(only) {
            rows.extend(redis::rows("Redis", "SEMEL_TEST_REDIS_URL", 0.65).await?);
        }
        if "Valkey".starts_with(only) {
            rows.extend(redis::rows("Valkey", "SEMEL_TEST_VALKEY_URL", 0.95).await?);
        }
        if "PostgreSQL".starts_with(only.split(':').next().unwrap_or_default()) {
            let row = only.split_once(": ").map_or("", |(_, row)| row);
            rows.extend(postgres::rows(row).await?);
        }
        if "Object store".starts_with(only) {
            rows.extend(object::rows().await?);
        }
        if "MariaDB".starts_with(only) {
            rows.extend(mysql::rows().await?);
        }
        if "SQLite".starts_with(only) {
            rows.extend(sqlite::rows().await?);
        }
        rows.extend(sizes::rows(records, only).await?);
        anyhow::Ok(())
    })?;
    publish("stores", &rows)
}

/// Made once, as a door makes it for a route.
static NAMESPACE: OnceLock<Namespace> = OnceLock::new();

/// The `i`-th claim of a run.
fn asked(run: u128, i: u64) -> Claim {
    // As long as the bare side keeps its keys: a bench leaves no litter for a day.
    let terms = ClaimTerms::new(RETENTION / 2, RETENTION, CrashPolicy::Takeover, 5);
    let terms = terms.expect("the terms are within bounds");
    let namespace =
        NAMESPACE.get_or_init(|| Namespace::new("", "", "bench").expect("within bounds"));
    let mut bytes = [0; 32];
    // Spread over the whole range, as hashes are.
    let spread = (run ^ u128::from(i)).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
    bytes[..16].copy_from_slice(&spread.to_be_bytes());
    let base = claim(namespace, terms, i);
    Claim {
        identity: Identity::from_bytes(bytes),
        token: Token(u128::from(i)),
        ..base
    }
}

/// The answer that every side keeps.
fn completed() -> Settlement {
    Settlement::Complete(Answer::from_body(vec![7; ANSWER_BYTES]).into())
}

/// Bytes per record: at most 1.25 times the bare key and answer, and 100 more.
fn bytes_row(name: &str, ours: f64, bare: f64) -> Row {
    let most = bare.mul_add(1.25, 100.0) / bare;
    Row::at_most(
        format!("{name}: bytes per record"),
        "B",
        ours,
        bare,
        Some(most),
    )
}

/// Operations a second of `ours` and of `bare`, taking turns: the medians, and the median of the
/// pairs' ratios.
pub(crate) async fn compare<A, B, FutA, FutB>(
    name: String,
    target: Option<f64>,
    ours: A,
    bare: B,
) -> anyhow::Result<Row>
where
    A: Fn(u64) -> FutA + Send + Sync + 'static,
    B: Fn(u64) -> FutB + Send + Sync + 'static,
    FutA: Future<Output = anyhow::Result<()>> + Send,
    FutB: Future<Output = anyhow::Result<()>> + Send,
{
    eprintln!("measuring: {name}");
    let (ours, bare, next) = (Arc::new(ours), Arc::new(bare), Arc::new(AtomicU64::new(0)));
    let (mut ours_rates, mut bare_rates) = (Vec::new(), Vec::new());
    // Connections are made, statements prepared and plans chosen before anything counts.
    for _ in 0..WARM_UP {
        turn(&ours, &next).await?;
        turn(&bare, &next).await?;
    }
    for _ in 0..TURNS {
        ours_rates.push(turn(&ours, &next).await?);
        bare_rates.push(turn(&bare, &next).await?);
    }
    let pairs = ours_rates.iter().zip(&bare_rates);
    let ratio = median(pairs.map(|(ours, bare)| ours / bare).collect());
    let row = Row::at_least(name, "/s", median(ours_rates), median(bare_rates), target);
    Ok(row.with_ratio(ratio))
}

async fn turn<F, Fut>(operation: &Arc<F>, next: &Arc<AtomicU64>) -> anyhow::Result<f64>
where
    F: Fn(u64) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = anyhow::Result<()>> + Send,
{
    let clock = SystemTime::default();
    let began = clock.now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (operation, next) = (Arc::clone(operation), Arc::clone(next));
            tokio::spawn(async move {
                let mut done = 0_u64;
                while clock.now().since(began) < TURN {
                    operation(next.fetch_add(1, Ordering::Relaxed)).await?;
                    done += 1;
                }
                anyhow::Ok(done)
            })
        })
        .collect();
    let mut done = 0;
    for caller in callers {
        done += caller.await??;
    }
    Ok(done as f64 / clock.now().since(began).as_secs_f64())
}
