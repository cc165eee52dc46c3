//! `bench erase`: how long it takes to erase a subject, and what is left to read of it.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use semel::encrypted::DataKeyUse;
use semel::{DataSubject, Semel, tokio_env};

use crate::stores::postgres::Database;
use crate::stores::whole::{encrypted, encryption};
use semel_bench_core::ops::ANSWER_BYTES;
use semel_bench_core::report::{Row, publish};

/// Concurrent callers that make and read the records.
const CALLERS: u64 = 64;
/// How much longer erasing many records may take than erasing one: it destroys one key.
const TARGET: f64 = 5.0;

pub(crate) fn bench(records: u64) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let rows = runtime.block_on(async {
        let mut rows = Vec::new();
        let redis = std::env::var("SEMEL_TEST_REDIS_URL")
            .context("SEMEL_TEST_REDIS_URL is not set; `cargo xtask services up` tells it")?;
        rows.push(erase("Redis", &redis, records).await?);
        let database = Database::make("erase").await?;
        let row = erase("PostgreSQL", &database.url, records).await;
        database.discard().await?;
        rows.push(row?);
        anyhow::Ok(rows)
    })?;
    publish("erase", &rows)
}

/// One key of a subject.
async fn call(semel: Semel, subject: String, key: String) -> Result<bool, semel::Error> {
    let operation = semel.operation("erase").subject(&subject);
    let call = operation.key(&key).payload(&1);
    let run = call.run(|_| async { Ok::<_, std::io::Error>("x".repeat(ANSWER_BYTES)) });
    run.await.map(|answer| answer.replayed)
}

/// Calls every key of a subject, and counts those that ran, were replayed, and were refused as
/// erased.
async fn call_all(semel: &Semel, subject: &str, records: u64) -> anyhow::Result<[u64; 3]> {
    let subject = Arc::<str>::from(subject);
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let (semel, subject) = (semel.clone(), Arc::clone(&subject));
        callers.spawn(async move {
            let mut counts = [0; 3];
            for i in (caller..records).step_by(usize::try_from(CALLERS)?) {
                let answer = call(semel.clone(), subject.to_string(), format!("{subject}-{i}"));
                match answer.await {
                    Ok(false) => counts[0] += 1,
                    Ok(true) => counts[1] += 1,
                    Err(error) if error.to_string().contains("erased") => counts[2] += 1,
                    Err(error) => return Err(error.into()),
                }
            }
            anyhow::Ok(counts)
        });
    }
    let mut counts = [0; 3];
    while let Some(each) = callers.join_next().await {
        for (sum, count) in counts.iter_mut().zip(each??) {
            *sum += count;
        }
    }
    Ok(counts)
}

/// Erases a subject with many records, against one with a single record. Another process, with no
/// copy of any answer, then finds nothing of them, and everything of a third subject.
async fn erase(name: &str, url: &str, records: u64) -> anyhow::Result<Row> {
    eprintln!("measuring: {name}, a subject with {records} records");
    let open = || async { encrypted(url, encryption()?.data_keys(DataKeyUse::Subject)).await };
    let semel = open().await?;
    let run = tokio_env().entropy.next_u128();
    let [many, one, other] = ["many", "one", "other"].map(|who| format!("{run:032x}-{who}"));
    const OTHER: u64 = 1_000;
    for (subject, count) in [(&many, records), (&one, 1), (&other, OTHER)] {
        ensure!(call_all(&semel, subject, count).await? == [count, 0, 0]);
    }
    let clock = tokio_env().clock;
    let mut times = Vec::new();
    for subject in [&many, &one] {
        let began = clock.now();
        let erased = semel.erase("", Some(DataSubject::new(subject)?)).await?;
        ensure!(erased.destroyed == 1, "{erased:?}");
        times.push(clock.now().since(began).as_secs_f64() * 1e3);
    }
    let another = open().await?;
    ensure!(call_all(&another, &many, records).await? == [0, 0, records]);
    ensure!(call_all(&another, &other, OTHER).await? == [0, OTHER, 0]);
    let title = format!("{name}: erase a subject with {records} records, against one with 1");
    Ok(Row::at_most(title, "ms", times[0], times[1], Some(TARGET)))
}
