//! The latency of a claim with few and with many records: a ratio between sizes, measured in turns.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use semel::core::clock::SystemTime;
use semel::core::{Claimed, Store};
use semel::tokio_env;
use semel_stores::redis::RedisStore;

use super::postgres::{self, Database};
use super::{asked, completed};
use semel_bench_core::ops::ANSWER_BYTES;
use semel_bench_core::report::{Row, median};

/// Claims in a turn, one after the other, and turns for each size.
const BATCH: u64 = 200;
const TURNS: u64 = 15;

/// The allowed ratio.
const TARGET: f64 = 1.5;

pub(super) async fn rows(most: u64, only: &str) -> anyhow::Result<Vec<Row>> {
    let sizes: Vec<u64> = [10_000, 1_000_000, 10_000_000]
        .into_iter()
        .filter(|size| *size <= most)
        .collect();
    let mut rows = Vec::new();
    if "Redis".starts_with(only) {
        rows.extend(on_redis(&sizes).await?);
    }
    if "PostgreSQL".starts_with(only) {
        rows.extend(on_postgres(&sizes).await?);
    }
    Ok(rows)
}

async fn on_postgres(sizes: &[u64]) -> anyhow::Result<Vec<Row>> {
    let mut databases = Vec::new();
    let mut stores: Vec<Arc<dyn Store>> = Vec::new();
    for size in sizes {
        eprintln!("filling: PostgreSQL with {size} records");
        let database = Database::make("sizes").await?;
        let store = database.store().await?;
        let pool = database.pool().await?;
        postgres::fill(&pool, *size).await?;
        pool.close().await;
        stores.push(store);
        databases.push(database);
    }
    let times = time(&stores).await?;
    drop(stores);
    for database in databases {
        database.discard().await?;
    }
    Ok(judge("PostgreSQL", sizes, &times))
}

/// Each size in a database of its own of the same server: they share a process, and no table of
/// keys.
async fn on_redis(sizes: &[u64]) -> anyhow::Result<Vec<Row>> {
    let url = std::env::var("SEMEL_TEST_REDIS_URL").context("SEMEL_TEST_REDIS_URL is not set")?;
    let mut stores: Vec<Arc<dyn Store>> = Vec::new();
    for (index, size) in sizes.iter().enumerate() {
        eprintln!("filling: Redis with {size} records");
        let url = format!("{url}/{}", index + 1);
        fill_redis(&url, *size).await?;
        stores.push(Arc::new(RedisStore::open(&url, tokio_env().clock).await?));
    }
    let times = time(&stores).await?;
    for (index, _) in sizes.iter().enumerate() {
        let client = redis::Client::open(format!("{url}/{}", index + 1))?;
        let mut link = client.get_multiplexed_async_connection().await?;
        let () = redis::cmd("FLUSHDB")
            .arg("ASYNC")
            .query_async(&mut link)
            .await?;
    }
    Ok(judge("Redis", sizes, &times))
}

async fn fill_redis(url: &str, count: u64) -> anyhow::Result<()> {
    let mut link = redis::Client::open(url)?
        .get_multiplexed_async_connection()
        .await?;
    let value = vec![7_u8; ANSWER_BYTES + 140];
    let life = Duration::from_secs(3600).as_millis();
    for first in (0..count).step_by(1000) {
        let mut lot = redis::pipe();
        for i in first..(first + 1000).min(count) {
            let key = format!(
                "semel:{:032x}",
                u128::from(i).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
            );
            lot.cmd("SET")
                .arg(key)
                .arg(&value)
                .arg("PX")
                .arg(u64::try_from(life)?)
                .ignore();
        }
        let () = lot.query_async(&mut link).await?;
    }
    Ok(())
}

/// The median time of a claim in each store, in microseconds.
async fn time(stores: &[Arc<dyn Store>]) -> anyhow::Result<Vec<f64>> {
    let clock = SystemTime::default();
    let run = tokio_env().entropy.next_u128();
    let mut times = vec![Vec::new(); stores.len()];
    for turn in 0..TURNS {
        for (store, times) in stores.iter().zip(&mut times) {
            for i in 0..BATCH {
                let ask = asked(run, turn * BATCH + i);
                let began = clock.now();
                let claimed = store.claim(&ask).await?;
                times.push(clock.now().since(began).as_secs_f64() * 1e6);
                let Claimed::Won(grant) = claimed else {
                    anyhow::bail!("the key is not new")
                };
                store.settle(&grant, &completed()).await?;
            }
        }
    }
    ensure!(times.iter().all(|times| !times.is_empty()));
    Ok(times.into_iter().map(median).collect())
}

fn judge(name: &str, sizes: &[u64], times: &[f64]) -> Vec<Row> {
    let row = |(size, time): (&u64, &f64)| {
        let target = (*size > sizes[0]).then_some(TARGET);
        let name = format!("{name}: claim with {size} records present");
        Row::at_most(name, "µs", *time, times[0], target)
    };
    sizes.iter().zip(times).map(row).collect()
}
