//! `bench stores`: each store against its bare engine, in one run: same client library, same number
//! of connections and callers, same bytes, taking turns.

mod mysql;
mod object;
pub(crate) mod postgres;
mod redis;
mod sizes;
mod sql;
mod sqlite;
pub(crate) mod whole;

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use semel::core::{Answer, Claim, ClaimTerms, CrashPolicy, Identity, Namespace, Settlement, Token};

use semel_bench_core::ops::{ANSWER_BYTES, claim};
use semel_bench_core::report::{Row, publish};

use crate::turns::{CALLERS, Setup};

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

/// Operations a second of `ours` and of `bare`, taking turns.
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
    Setup::default().compare(name, target, ours, bare).await
}
