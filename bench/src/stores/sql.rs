//! Helpers that the rows of MariaDB and SQLite share.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use semel::core::{Claim, Claimed, Record, Settled, Store};

use super::{asked, completed};

/// Claim and settle.
pub(super) async fn fresh_run<S: Store>(store: Arc<S>, ask: Claim) -> anyhow::Result<()> {
    let Claimed::Won(grant) = store.claim(&ask).await? else {
        anyhow::bail!("the key is not new")
    };
    ensure!(store.settle(&grant, &completed()).await? == Settled::Done);
    Ok(())
}

/// A claim that replays.
pub(super) async fn replay<S: Store>(store: Arc<S>, run: u128) -> anyhow::Result<()> {
    let ask = Claim {
        retry: true,
        ..asked(run, 0)
    };
    ensure!(matches!(store.claim(&ask).await?, Claimed::Replay(_)));
    Ok(())
}

/// A claim that finds another running.
pub(super) async fn busy<S: Store>(store: Arc<S>, run: u128, i: u64) -> anyhow::Result<()> {
    let mut ask = asked(run, 0);
    ask.token = semel::core::Token(u128::from(i) + 1);
    ensure!(matches!(store.claim(&ask).await?, Claimed::Busy(_)));
    Ok(())
}

/// The key of the `i`-th claim, as the bare side writes it.
pub(super) fn id(run: u128, i: u64) -> Vec<u8> {
    asked(run, i).identity.address().to_vec()
}

/// What is kept at claim, and at settle, in its packed form: the bare side writes as many bytes.
pub(super) async fn packed<S: Store>(store: &S, ask: &Claim) -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
    let Claimed::Won(grant) = store.claim(ask).await? else {
        anyhow::bail!("the key is not new")
    };
    let record = |found: Option<Record>| found.context("the record is there");
    let running = record(store.read(&ask.identity).await?)?.encode();
    store.settle(&grant, &completed()).await?;
    let done = record(store.read(&ask.identity).await?)?.encode();
    Ok((running, done))
}
