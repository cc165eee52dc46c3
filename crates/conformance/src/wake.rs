//! P34: wake-ups of waiters, as reliable as the store promises.

#![expect(
    clippy::disallowed_methods,
    reason = "a suite that hangs must end, whatever clock the store has"
)]

use std::time::Duration;

use anyhow::ensure;
use semel_core::store::Wake;
use semel_core::wake::Wakeup;
use semel_core::{Resolution, Settlement};

use super::make::{again, answer, complete, settlements};
use super::{CheckVerdict, Scene};

/// How long to wait for a wake-up. Real time: a wake-up is an event, not a span.
const PATIENCE: Duration = Duration::from_secs(3);

/// How many wake-ups to try of a store that only hints.
const TRIES: usize = 10;

async fn comes(wakeup: Wakeup) -> bool {
    tokio::time::timeout(PATIENCE, wakeup).await.is_ok()
}

/// Tries wake-ups one after the other and holds the store to its word: exact ones all come, hints
/// mostly do, and none comes from a store that has none.
async fn try_all<W, R>(scene: &Scene, woken: W) -> CheckVerdict
where
    W: Fn(Scene, usize) -> R,
    R: Future<Output = anyhow::Result<bool>>,
{
    let wake = scene.store().capabilities().wake;
    let of = if wake == Wake::Never { 1 } else { TRIES };
    let mut came = 0;
    for round in 0..of {
        came += usize::from(woken(scene.clone(), round).await?);
        if wake == Wake::Exact && came <= round {
            break; // One miss is enough, and a miss takes all our patience.
        }
    }
    judge(wake, came, of)
}

fn judge(wake: Wake, came: usize, of: usize) -> CheckVerdict {
    match wake {
        Wake::Exact => ensure!(
            came == of,
            "an exact wake-up did not come; {came} of {of} did"
        ),
        Wake::Hint => ensure!(came * 2 >= of, "{came} of {of} hints came"),
        Wake::Never => ensure!(came == 0, "{came} wake-ups came from a store that has none"),
    }
    Ok(())
}

/// Whoever waits is woken by every kind of settlement, from another process too.
pub(super) async fn p34_a_settlement_wakes(scene: Scene) -> CheckVerdict {
    try_all(&scene, |scene, round| async move {
        let settler = scene.from_another_process();
        let claim = scene.fresh()?;
        let lease = settler.won(&claim).await?;
        let wakeup = scene.store().watch(&claim.identity);
        scene.busy(&again(&claim)).await?;
        let waiter = tokio::spawn(comes(wakeup));
        tokio::task::yield_now().await;
        settler.settled(&lease, &settlements()[round % 4]).await?;
        Ok(waiter.await?)
    })
    .await
}

/// Whoever waits is woken when a doubt is resolved.
pub(super) async fn p34_a_resolution_wakes(scene: Scene) -> CheckVerdict {
    try_all(&scene, |scene, _| async move {
        let operator = scene.from_another_process();
        let claim = scene.fresh()?;
        let lease = scene.won(&claim).await?;
        scene.settled(&lease, &Settlement::Doubt).await?;
        let wakeup = scene.store().watch(&claim.identity);
        scene.in_doubt(&again(&claim)).await?;
        let waiter = tokio::spawn(comes(wakeup));
        tokio::task::yield_now().await;
        let resolution = Resolution::Complete(answer("it happened"));
        operator
            .resolved(&claim.identity, lease.fence, &resolution)
            .await?;
        Ok(waiter.await?)
    })
    .await
}

/// A settlement between the watch and the wait is not missed: a wake-up counts from its making.
pub(super) async fn p34_an_early_settlement_is_not_missed(scene: Scene) -> CheckVerdict {
    try_all(&scene, |scene, _| async move {
        let claim = scene.fresh()?;
        let lease = scene.won(&claim).await?;
        let wakeup = scene.store().watch(&claim.identity);
        scene.settled(&lease, &complete("the answer")).await?;
        Ok(comes(wakeup).await)
    })
    .await
}

/// All who wait for one key are woken, and a waiter that left takes nobody's wake-up with it.
pub(super) async fn p34_all_waiters_wake(scene: Scene) -> CheckVerdict {
    let wake = scene.store().capabilities().wake;
    let claim = scene.fresh()?;
    let lease = scene.won(&claim).await?;
    let count = if wake == Wake::Never { 1 } else { 16 };
    let mut waiters = Vec::new();
    for _ in 0..count {
        let wakeup = scene.store().watch(&claim.identity);
        waiters.push(tokio::spawn(comes(wakeup)));
        let leaving = scene.store().watch(&claim.identity);
        drop(tokio::time::timeout(Duration::ZERO, leaving).await);
    }
    scene.settled(&lease, &complete("the answer")).await?;
    let mut came = 0;
    for waiter in waiters {
        came += usize::from(waiter.await?);
    }
    judge(wake, came, count)
}
