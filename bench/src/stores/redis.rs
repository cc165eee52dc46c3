//! Redis and Valkey, against the plain commands.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use redis::aio::MultiplexedConnection;
use semel::core::hex::hex;
use semel::core::{Claim, Claimed, Settled, Store};
use semel::tokio_env;
use semel_stores::redis::RedisStore;

use super::{CALLERS, RETENTION, asked, bytes_row, completed, whole};
use crate::turns::Setup;
use semel_bench_core::ops::ANSWER_BYTES;
use semel_bench_core::report::Row;

/// How long both sides keep a key, in milliseconds.
const LIFE: u128 = RETENTION.as_millis();

pub(super) async fn rows(name: &str, variable: &str, fresh: f64) -> anyhow::Result<Vec<Row>> {
    let url = std::env::var(variable)
        .with_context(|| format!("{variable} is not set; `cargo xtask services up` tells it"))?;
    let store = Arc::new(RedisStore::open(&url, tokio_env().clock).await?);
    let bare = redis::Client::open(&*url)?
        .get_multiplexed_async_connection()
        .await?;
    // Keys of this run, and of no other.
    let run = tokio_env().entropy.next_u128();
    let ask = move |i: u64| asked(run, i);
    let (running, completed) = packed(&store, &ask(u64::MAX)).await?;
    let mut rows = Vec::new();

    let server = Setup::of_server(process(bare.clone()).await?);
    let sizes = (running, completed);
    for callers in [1, CALLERS] {
        // The two sides' keys differ from those of the round before.
        let run = run ^ ((callers as u128) << 64);
        let (ours_store, bare_link, sizes) = (Arc::clone(&store), bare.clone(), sizes.clone());
        let row = server.with_callers(callers).compare(
            format!("{name}: fresh, callers: {callers}"),
            (callers == CALLERS).then_some(fresh),
            move |i| fresh_run(Arc::clone(&ours_store), asked(run, i)),
            move |i| bare_writes(bare_link.clone(), run, i, sizes.clone()),
        );
        rows.push(row.await?);
    }
    let (semel, bare_link) = (whole::plain(&url).await?, bare.clone());
    let row = server.compare(
        format!("{name}: a whole run of the engine"),
        None,
        move |i| whole::run(semel.clone(), run, i),
        move |i| bare_writes(bare_link.clone(), run ^ (1 << 96), i, sizes.clone()),
    );
    rows.push(row.await?);
    rows.push(whole::encryption_row(name, &url, server).await?);

    let same = packed(&store, &ask(u64::MAX - 1)).await?;
    bare_writes(bare.clone(), run, u64::MAX, same).await?;
    for (says, retry, target) in [("a retry", true, Some(0.90)), ("nothing", false, None)] {
        let (ours_store, bare_link) = (Arc::clone(&store), bare.clone());
        let ask = Claim {
            retry,
            ..ask(u64::MAX)
        };
        let row = server.compare(
            format!("{name}: replay to a caller that says {says}"),
            target,
            move |_| replay(Arc::clone(&ours_store), ask.clone()),
            move |_| bare_read(bare_link.clone(), run),
        );
        rows.push(row.await?);
    }

    let (held, bare_link) = (ask(u64::MAX - 2), bare.clone());
    ensure!(matches!(store.claim(&held).await?, Claimed::Won(_)));
    let ours_store = Arc::clone(&store);
    let row = server.compare(
        format!("{name}: contended, {CALLERS} callers, one key"),
        None,
        move |i| busy(Arc::clone(&ours_store), held.clone(), i),
        move |_| bare_loses(bare_link.clone(), run),
    );
    rows.push(row.await?);
    rows.push(bytes(name, bare, run).await?);
    Ok(rows)
}

/// The server's process.
async fn process(mut link: MultiplexedConnection) -> anyhow::Result<u32> {
    let info: String = redis::cmd("INFO")
        .arg("server")
        .query_async(&mut link)
        .await?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("process_id:"));
    Ok(line.context("INFO names the process")?.trim().parse()?)
}

/// A claim that finds another running.
async fn busy(store: Arc<RedisStore>, mut ask: Claim, i: u64) -> anyhow::Result<()> {
    ask.token = semel::core::Token(u128::from(i) + 1);
    ensure!(matches!(store.claim(&ask).await?, Claimed::Busy(_)));
    Ok(())
}

/// A plain `SET … NX GET` that loses.
async fn bare_loses(mut link: MultiplexedConnection, run: u128) -> anyhow::Result<()> {
    let mut set = redis::cmd("SET");
    set.arg(bare_key(run, u64::MAX)).arg(vec![7_u8; 130]);
    set.arg("NX").arg("GET").arg("PX").arg(LIFE);
    let found: Option<Vec<u8>> = set.query_async(&mut link).await?;
    ensure!(found.is_some());
    Ok(())
}

/// What a settled record takes in the server's memory, against a key of the same length and an
/// answer.
async fn bytes(name: &str, mut link: MultiplexedConnection, run: u128) -> anyhow::Result<Row> {
    let ours = format!("semel:{}", hex(&asked(run, u64::MAX).identity.address()));
    let bare = "x".repeat(ours.len());
    let mut set = redis::cmd("SET");
    set.arg(&bare)
        .arg(vec![7_u8; ANSWER_BYTES])
        .arg("PX")
        .arg(LIFE);
    let () = set.query_async(&mut link).await?;
    let mut sizes = Vec::new();
    for key in [ours, bare] {
        let mut usage = redis::cmd("MEMORY");
        let size: u64 = usage.arg("USAGE").arg(key).query_async(&mut link).await?;
        sizes.push(size as f64);
    }
    Ok(bytes_row(name, sizes[0], sizes[1]))
}

/// What is written at claim, and at settle: the bare side writes the same bytes.
async fn packed(store: &RedisStore, ask: &Claim) -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
    let Claimed::Won(grant) = store.claim(ask).await? else {
        anyhow::bail!("the key is not new")
    };
    let running = grant.memo.to_vec();
    store.settle(&grant, &completed()).await?;
    let record = store
        .read(&ask.identity)
        .await?
        .context("the record is there")?;
    Ok((running, record.encode()))
}

async fn fresh_run(store: Arc<RedisStore>, ask: Claim) -> anyhow::Result<()> {
    let Claimed::Won(grant) = store.claim(&ask).await? else {
        anyhow::bail!("the key is not new")
    };
    ensure!(store.settle(&grant, &completed()).await? == Settled::Done);
    Ok(())
}

async fn replay(store: Arc<RedisStore>, ask: Claim) -> anyhow::Result<()> {
    ensure!(matches!(store.claim(&ask).await?, Claimed::Replay(_)));
    Ok(())
}

fn bare_key(run: u128, i: u64) -> String {
    format!("bare-{:032x}", run ^ u128::from(i))
}

async fn bare_writes(
    mut link: MultiplexedConnection,
    run: u128,
    i: u64,
    (running, completed): (Vec<u8>, Vec<u8>),
) -> anyhow::Result<()> {
    let key = bare_key(run, i);
    let mut claim = redis::cmd("SET");
    claim.arg(&key).arg(running).arg("NX").arg("PX").arg(LIFE);
    let () = claim.query_async(&mut link).await?;
    let mut settle = redis::cmd("SET");
    settle.arg(&key).arg(completed).arg("PX").arg(LIFE);
    Ok(settle.query_async(&mut link).await?)
}

async fn bare_read(mut link: MultiplexedConnection, run: u128) -> anyhow::Result<()> {
    let found: Vec<u8> = redis::cmd("GET")
        .arg(bare_key(run, u64::MAX))
        .query_async(&mut link)
        .await?;
    ensure!(!found.is_empty());
    Ok(())
}
