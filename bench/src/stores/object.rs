//! Object storage, against the plain conditional requests: the same client, the same connections,
//! the same bytes.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore as _, ObjectStoreExt as _, PutMode, PutOptions, UpdateVersion};
use semel::core::{Claim, Claimed, Settled, Store};
use semel::tokio_env;
use semel_stores::object::ObjectStore;

use super::{CALLERS, asked, compare, completed};
use semel_bench_core::report::Row;

const NAME: &str = "Object store";

pub(super) async fn rows() -> anyhow::Result<Vec<Row>> {
    let url = std::env::var("SEMEL_TEST_S3_URL")
        .context("SEMEL_TEST_S3_URL is not set; `cargo xtask services up` tells it")?;
    // A folder of this run's own, so that what is left of others slows nothing down.
    let run = tokio_env().entropy.next_u128();
    let url = url.replace('?', &format!("/bench-{run:032x}?"));
    let store = Arc::new(ObjectStore::open(&url, tokio_env().clock).await?);
    let ask = move |i: u64| asked(run, i);
    let (running, settled) = packed(&store, &ask(u64::MAX)).await?;
    let bare = Bare {
        store: Arc::clone(&store),
        run,
        running,
        settled,
    };
    let mut rows = Vec::new();

    let (ours, theirs) = (Arc::clone(&store), bare.clone());
    let row = compare(
        format!("{NAME}: fresh"),
        Some(0.9),
        move |i| fresh(Arc::clone(&ours), ask(i)),
        move |i| {
            let bare = theirs.clone();
            async move { bare.writes(i).await }
        },
    );
    rows.push(row.await?);

    bare.writes(u64::MAX).await?;
    for (says, retry, target) in [("a retry", true, Some(0.9)), ("nothing", false, None)] {
        let (ours, theirs) = (Arc::clone(&store), bare.clone());
        let ask = Claim {
            retry,
            ..ask(u64::MAX)
        };
        let row = compare(
            format!("{NAME}: replay to a caller that says {says}"),
            target,
            move |_| replay(Arc::clone(&ours), ask.clone()),
            move |_| {
                let bare = theirs.clone();
                async move { bare.read().await }
            },
        );
        rows.push(row.await?);
    }

    let held = ask(u64::MAX - 2);
    ensure!(matches!(store.claim(&held).await?, Claimed::Won(_)));
    let (ours, theirs) = (Arc::clone(&store), bare);
    let row = compare(
        format!("{NAME}: contended, {CALLERS} callers, one key"),
        None,
        move |i| busy(Arc::clone(&ours), held.clone(), i),
        move |_| {
            let bare = theirs.clone();
            async move { bare.loses().await }
        },
    );
    rows.push(row.await?);
    Ok(rows)
}

/// What is written at claim, and at settle.
async fn packed(store: &ObjectStore, ask: &Claim) -> anyhow::Result<(Bytes, Bytes)> {
    let path = store.path_of(&ask.identity);
    let Claimed::Won(grant) = store.claim(ask).await? else {
        anyhow::bail!("the key is not new")
    };
    let running = store.client().get(&path).await?.bytes().await?;
    store.settle(&grant, &completed()).await?;
    Ok((running, store.client().get(&path).await?.bytes().await?))
}

/// The plain requests.
#[derive(Clone)]
struct Bare {
    store: Arc<ObjectStore>,
    run: u128,
    running: Bytes,
    settled: Bytes,
}

impl Bare {
    fn path(&self, i: u64) -> Path {
        let name = format!("{:032x}", (self.run ^ u128::from(i)).rotate_left(64));
        Path::from(format!("bare-{:032x}/{}/{name}", self.run, &name[..2]))
    }

    async fn writes(&self, i: u64) -> anyhow::Result<()> {
        let (client, path) = (self.store.client(), self.path(i));
        let create = PutOptions::from(PutMode::Create);
        let put = client.put_opts(&path, self.running.clone().into(), create);
        let put = put.await?;
        let update = PutOptions::from(PutMode::Update(UpdateVersion {
            e_tag: put.e_tag,
            version: put.version,
        }));
        let put = client.put_opts(&path, self.settled.clone().into(), update);
        put.await?;
        Ok(())
    }

    async fn read(&self) -> anyhow::Result<()> {
        let found = self.store.client().get(&self.path(u64::MAX)).await?;
        ensure!(!found.bytes().await?.is_empty());
        Ok(())
    }

    /// A creation that loses, and the look at what is there.
    async fn loses(&self) -> anyhow::Result<()> {
        let create = PutOptions::from(PutMode::Create);
        let (client, path) = (self.store.client(), self.path(u64::MAX));
        let put = client.put_opts(&path, self.running.clone().into(), create);
        ensure!(put.await.is_err());
        self.read().await
    }
}

async fn fresh(store: Arc<ObjectStore>, ask: Claim) -> anyhow::Result<()> {
    let Claimed::Won(grant) = store.claim(&ask).await? else {
        anyhow::bail!("the key is not new")
    };
    ensure!(store.settle(&grant, &completed()).await? == Settled::Done);
    Ok(())
}

async fn replay(store: Arc<ObjectStore>, ask: Claim) -> anyhow::Result<()> {
    ensure!(matches!(store.claim(&ask).await?, Claimed::Replay(_)));
    Ok(())
}

/// A claim that finds another running.
async fn busy(store: Arc<ObjectStore>, mut ask: Claim, i: u64) -> anyhow::Result<()> {
    ask.token = semel::core::Token(u128::from(i) + 1);
    ensure!(matches!(store.claim(&ask).await?, Claimed::Busy(_)));
    Ok(())
}
