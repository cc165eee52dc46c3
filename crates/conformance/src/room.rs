//! P26: a full store refuses new keys, and keeps all records.

use anyhow::{Context as _, bail, ensure};
use semel_core::{Certainty, Claim, ClaimTerms, CrashPolicy, Grant, Settlement, StoreErrorKind};

use super::make::{again, answer, complete};
use super::{CheckVerdict, Scene};

/// A store with room for no more keys than these, which run under `terms`.
struct Full {
    scene: Scene,
    running: Vec<(Claim, Grant)>,
}

/// Fills a tiny store. `None` where stores of this kind are bounded by nothing of their own, which
/// their statistics must then say.
async fn fill(scene: &Scene, terms: ClaimTerms) -> anyhow::Result<Option<Full>> {
    let Some(tiny) = scene.subject().tiny().await else {
        let capacity = scene.store().stats().await?.capacity;
        ensure!(
            capacity.is_none(),
            "it has room for {capacity:?}, and no tiny store to show it"
        );
        return Ok(None);
    };
    let capacity = tiny
        .stats()
        .await?
        .capacity
        .context("a tiny store says how much it takes")?;
    ensure!(
        (1..=8).contains(&capacity),
        "a tiny store takes {capacity} records"
    );
    let scene = scene.over(tiny);
    let mut running = Vec::new();
    for _ in 0..capacity {
        let claim = scene.fresh_on(terms)?;
        running.push((claim.clone(), scene.won(&claim).await?));
    }
    Ok(Some(Full { scene, running }))
}

async fn is_full(scene: &Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    match scene.store().claim(&claim).await {
        Ok(answer) => bail!("expected a full store to refuse, got {answer:?}"),
        Err(error) => {
            ensure!(
                error.kind == StoreErrorKind::Full,
                "refused as {:?}",
                error.kind
            );
            ensure!(
                error.certainty == Certainty::Definite,
                "refused as {:?}",
                error.certainty
            );
        }
    }
    ensure!(
        scene.read(&claim.identity).await?.is_none(),
        "a refused claim left a record"
    );
    Ok(())
}

/// A new key is refused, and every live record is still there, whatever its state.
pub(super) async fn p26_full_refuses_a_new_key(scene: Scene) -> CheckVerdict {
    let terms = scene.lapsing(CrashPolicy::Hold)?;
    let Some(Full { scene, running }) = fill(&scene, terms).await? else {
        return Ok(());
    };
    is_full(&scene).await?;
    scene.lapse().await;
    is_full(&scene).await?;
    for (_, lease) in &running {
        scene.record(&lease.identity).await?;
        scene.settled(lease, &complete("the answer")).await?;
    }
    is_full(&scene).await?;
    for (claim, _) in &running {
        let replay = scene.replayed(&again(claim)).await?;
        ensure!(
            replay.answer == answer("the answer"),
            "replayed {:?}",
            replay.answer
        );
    }
    Ok(())
}

/// Renewing, settling, and claiming a released key again need no new room.
pub(super) async fn p26_full_still_renews_and_settles(scene: Scene) -> CheckVerdict {
    let terms = scene.lasting(CrashPolicy::Takeover)?;
    let Some(Full { scene, running }) = fill(&scene, terms).await? else {
        return Ok(());
    };
    for (claim, lease) in &running {
        scene.held(lease, Some(b"progress")).await?;
        scene.busy(&again(claim)).await?;
        scene.settled(lease, &Settlement::Release).await?;
        let next = scene.won(&again(claim)).await?;
        scene.settled(&next, &complete("the answer")).await?;
        scene.replayed(&again(claim)).await?;
    }
    is_full(&scene).await
}

/// What has expired, or was deleted, makes room.
pub(super) async fn p26_the_expired_make_room(scene: Scene) -> CheckVerdict {
    let terms = scene.expiring(CrashPolicy::Takeover)?;
    let Some(Full { scene, running }) = fill(&scene, terms).await? else {
        return Ok(());
    };
    is_full(&scene).await?;
    scene.expire().await;
    let mut last = None;
    for _ in &running {
        last = Some(scene.won(&scene.fresh()?).await?);
    }
    is_full(&scene).await?;
    let last = last.context("a tiny store takes no record")?;
    ensure!(
        scene.store().delete(&last.identity).await?,
        "delete found nothing"
    );
    scene.won(&scene.fresh()?).await?;
    is_full(&scene).await
}
