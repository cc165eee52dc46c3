//! Latency and memory over the number of records: flat, or not.

use std::time::Duration;

use semel::core::clock::SystemTime;
use semel::core::{ClaimTerms, MemoryStore, Namespace};

use crate::ops::{ANSWER_BYTES, claim_settle_once, memory, terms};
use crate::report::Row;

/// How many claims are timed at each size, in batches that take turns between the sizes.
const BATCHES: u64 = 40;
const BATCH: u64 = 5_000;

/// One row per size: nanoseconds of claim + settle against the smallest size; bytes per record.
pub(super) fn rows(most: usize) -> anyhow::Result<Vec<Row>> {
    let (namespace, terms) = (Namespace::new("", "", "charge")?, terms()?);
    let sizes: Vec<usize> = std::iter::successors(Some(10_000_usize), |size| size.checked_mul(10))
        .take_while(|&size| size <= most)
        .collect();
    let mut stores = Vec::new();
    let mut rows = Vec::new();
    for &size in &sizes {
        eprintln!("filling: {size} records");
        let before = resident_bytes()?;
        let store = fill(size, &namespace, terms);
        let each = (resident_bytes()? - before) / size as f64;
        if size == most {
            let answer = ANSWER_BYTES as f64;
            let name = format!("bytes per record, {size} records of {ANSWER_BYTES} bytes");
            rows.push(Row::at_most(name, "B", each, answer, None));
        }
        stores.push(store);
    }
    eprintln!("timing claim + settle at each size, in turns");
    let times = time(&stores, &sizes, &namespace, terms);
    for (size, time) in sizes.iter().zip(&times) {
        let name = format!("claim + settle with {size} records present, median");
        rows.push(Row::at_most(
            name,
            "ns",
            *time,
            times[0],
            (*size > sizes[0]).then_some(2.0),
        ));
    }
    Ok(rows)
}

fn fill(size: usize, namespace: &Namespace, terms: ClaimTerms) -> MemoryStore {
    // Room for what is claimed while timing.
    let store = memory(size + usize::try_from(BATCHES * BATCH).unwrap_or(0) + 1);
    for i in 0..size as u64 {
        claim_settle_once(&store, namespace, terms, i);
    }
    store
}

/// The median over batches of the mean time of one claim + settle of a new key, in nanoseconds.
fn time(
    stores: &[MemoryStore],
    sizes: &[usize],
    namespace: &Namespace,
    terms: ClaimTerms,
) -> Vec<f64> {
    let clock = SystemTime::default();
    let mut batches = vec![Vec::new(); stores.len()];
    for batch in 0..BATCHES {
        for (at, store) in stores.iter().enumerate() {
            let first = sizes[at] as u64 + batch * BATCH;
            let began = clock.now();
            for i in first..first + BATCH {
                claim_settle_once(store, namespace, terms, i);
            }
            batches[at].push(clock.now().since(began));
        }
    }
    batches.into_iter().map(median_nanos).collect()
}

fn median_nanos(mut batches: Vec<Duration>) -> f64 {
    batches.sort_unstable();
    batches[batches.len() / 2].as_nanos() as f64 / BATCH as f64
}

/// What this process has in memory now.
fn resident_bytes() -> anyhow::Result<f64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: f64 = statm.split_whitespace().nth(1).unwrap_or("0").parse()?;
    Ok(pages * 4096.0)
}
