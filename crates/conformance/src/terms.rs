//! P13: the terms of the first claim decide.

use anyhow::ensure;
use semel_core::{CrashPolicy, Settlement};

use super::make::{again, under};
use super::{CheckVerdict, Scene};

/// A caller that is configured for takeover cannot take over what was begun under `hold`.
pub(super) async fn p13_stored_hold_beats_the_askers_takeover(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh_on(scene.lapsing(CrashPolicy::Hold)?)?;
    let lease = scene.won(&claim).await?;
    scene.lapse().await;
    let asker = under(&claim, scene.lasting(CrashPolicy::Takeover)?);
    let doubt = scene.in_doubt(&asker).await?;
    ensure!(
        doubt.fence == lease.fence,
        "the doubt names fence {}",
        doubt.fence
    );
    let record = scene.record(&claim.identity).await?;
    ensure!(
        record.crash == CrashPolicy::Hold,
        "the asker's policy was written"
    );
    Ok(())
}

/// A caller that is configured for `hold` takes over what was begun under takeover, and its own
/// policy is not written.
pub(super) async fn p13_stored_takeover_beats_the_askers_hold(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh_on(scene.lapsing(CrashPolicy::Takeover)?)?;
    scene.won(&claim).await?;
    scene.lapse().await;
    let grant = scene
        .won(&under(&claim, scene.lapsing(CrashPolicy::Hold)?))
        .await?;
    ensure!(
        grant.attempt == 2,
        "the takeover is attempt {}",
        grant.attempt
    );
    ensure!(
        grant.crash == CrashPolicy::Takeover,
        "the asker's policy was granted"
    );
    let record = scene.record(&claim.identity).await?;
    ensure!(
        record.crash == CrashPolicy::Takeover,
        "the asker's policy was written"
    );
    scene.lapse().await;
    scene.won(&again(&claim)).await.map(drop)
}

/// A caller that allows more attempts, or fewer, changes nothing about the number stored.
pub(super) async fn p13_stored_attempts_beat_the_askers(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh_on(scene.lapsing_after(CrashPolicy::Takeover, 2)?)?;
    scene.won(&claim).await?;
    scene.lapse().await;
    scene
        .won(&under(
            &claim,
            scene.lapsing_after(CrashPolicy::Takeover, 1)?,
        ))
        .await?;
    let record = scene.record(&claim.identity).await?;
    ensure!(
        record.max_attempts == 2,
        "{} attempts are stored",
        record.max_attempts
    );
    scene.lapse().await;
    let asker = under(&claim, scene.lapsing_after(CrashPolicy::Takeover, 100)?);
    scene.in_doubt(&asker).await.map(drop)
}

/// Spans are the owner's: whoever takes over holds the lease for as long as it asked.
pub(super) async fn p13_a_takeover_brings_its_own_spans(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh_on(scene.lapsing(CrashPolicy::Takeover)?)?;
    scene.won(&claim).await?;
    scene.lapse().await;
    let longer = scene.lasting(CrashPolicy::Takeover)?;
    let grant = scene.won(&under(&claim, longer)).await?;
    ensure!(grant.lease == longer.lease(), "granted {:?}", grant.lease);
    let record = scene.record(&claim.identity).await?;
    ensure!(record.lease == longer.lease(), "stored {:?}", record.lease);
    ensure!(
        record.retention == longer.retention(),
        "stored {:?}",
        record.retention
    );
    Ok(())
}

/// A released key was never used: its next claim brings all its terms.
pub(super) async fn p13_a_released_key_takes_new_terms(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh_on(scene.lasting(CrashPolicy::Hold)?)?;
    let lease = scene.won(&claim).await?;
    scene.settled(&lease, &Settlement::Release).await?;
    let terms = scene.lapsing_after(CrashPolicy::Takeover, 2)?;
    scene.won(&under(&claim, terms)).await?;
    let record = scene.record(&claim.identity).await?;
    ensure!(
        record.crash == CrashPolicy::Takeover,
        "the old policy stayed"
    );
    ensure!(
        record.max_attempts == 2,
        "{} attempts are stored",
        record.max_attempts
    );
    Ok(())
}
