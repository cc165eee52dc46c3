//! Processor time of one process for each operation. On a machine whose processors are shared, it
//! says more than a rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use semel_bench_core::report::{Row, median};

use crate::interval::interval;

/// Operations of a turn, and concurrent callers.
const OPERATIONS: u64 = 2_000;
const CALLERS: u64 = 32;
/// Pairs of turns. Their keys fit into the memory store.
const PAIRS: usize = 40;
const WARM_UP: usize = 2;

/// Nanoseconds that a process and its children have run so far: PostgreSQL has a process for each
/// connection.
pub(crate) fn nanoseconds_with_children(process: u32) -> anyhow::Result<u64> {
    let mut sum = nanoseconds(process)?;
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(child) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process that ends meanwhile has nothing to say.
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{child}/stat")) else {
            continue;
        };
        // The name is in brackets and may contain blanks: the state and the parent follow it.
        let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        if after_name.split(' ').nth(1) == Some(process.to_string().as_str()) {
            sum += nanoseconds(child).unwrap_or(0);
        }
    }
    Ok(sum)
}

/// Nanoseconds that all threads of a process have run so far.
pub(crate) fn nanoseconds(process: u32) -> anyhow::Result<u64> {
    let mut sum = 0;
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let path = task?.path().join("schedstat");
        let text = std::fs::read_to_string(path)?;
        let first = text.split(' ').next().context("an empty schedstat")?;
        sum += first.parse::<u64>()?;
    }
    Ok(sum)
}

/// An operation, and the process whose time it takes.
pub(crate) struct Side<F> {
    pub(crate) process: u32,
    pub(crate) operation: F,
}

/// Microseconds of both processes for each operation, in turns of the order ABBA: the medians, the
/// median of the pairs' ratios, and its 95 % interval.
pub(crate) async fn compare<A, B, FutA, FutB>(
    name: &str,
    target: Option<f64>,
    ours: Side<A>,
    bare: Side<B>,
) -> anyhow::Result<Row>
where
    A: Fn(u64) -> FutA + Send + Sync + 'static,
    B: Fn(u64) -> FutB + Send + Sync + 'static,
    FutA: Future<Output = anyhow::Result<()>> + Send,
    FutB: Future<Output = anyhow::Result<()>> + Send,
{
    eprintln!("measuring: {name}");
    let (first, second) = (Arc::new(ours.operation), Arc::new(bare.operation));
    let next = Arc::new(AtomicU64::new(0));
    let (mut costs, mut bare_costs) = (Vec::new(), Vec::new());
    for pair in 0..WARM_UP + PAIRS {
        let (cost, bare_cost);
        if pair % 2 == 0 {
            cost = turn(ours.process, &first, &next).await?;
            bare_cost = turn(bare.process, &second, &next).await?;
        } else {
            bare_cost = turn(bare.process, &second, &next).await?;
            cost = turn(ours.process, &first, &next).await?;
        }
        if pair >= WARM_UP {
            costs.push(cost);
            bare_costs.push(bare_cost);
        }
    }
    let ratios: Vec<f64> = costs.iter().zip(&bare_costs).map(|(a, b)| a / b).collect();
    let row = Row::at_most(name, "µs", median(costs), median(bare_costs), target);
    Ok(row.with_interval(median(ratios.clone()), interval(&ratios)))
}

/// Microseconds of `process` for each operation.
async fn turn<F, Fut>(
    process: u32,
    operation: &Arc<F>,
    next: &Arc<AtomicU64>,
) -> anyhow::Result<f64>
where
    F: Fn(u64) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = anyhow::Result<()>> + Send,
{
    let before = nanoseconds(process)?;
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (operation, next) = (Arc::clone(operation), Arc::clone(next));
            tokio::spawn(async move {
                for _ in 0..OPERATIONS / CALLERS {
                    operation(next.fetch_add(1, Ordering::Relaxed)).await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    let done = OPERATIONS / CALLERS * CALLERS;
    Ok((nanoseconds(process)? - before) as f64 / 1_000.0 / done as f64)
}
