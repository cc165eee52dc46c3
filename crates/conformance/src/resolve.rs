//! P19: a person or a recover hook resolves a doubt.

use anyhow::ensure;
use semel_core::{Claim, CrashPolicy, Fence, Grant, Resolution, Settlement, State};

use super::make::{again, answer, settlements};
use super::{CheckVerdict, Scene};

fn resolutions() -> [Resolution; 3] {
    let [complete, fail] = ["it happened", "it failed"].map(answer);
    [
        Resolution::Complete(complete),
        Resolution::Fail(fail),
        Resolution::Release,
    ]
}

async fn doubt(scene: &Scene) -> anyhow::Result<(Claim, Grant)> {
    let claim = scene.fresh()?;
    let lease = scene.won(&claim).await?;
    scene.settled(&lease, &Settlement::Doubt).await?;
    Ok((claim, lease))
}

/// A doubt resolved as completed is replayed from then on.
pub(super) async fn p19_a_doubt_can_be_completed(scene: Scene) -> CheckVerdict {
    let (claim, lease) = doubt(&scene).await?;
    let resolution = Resolution::Complete(answer("it happened"));
    scene
        .resolved(&claim.identity, lease.fence, &resolution)
        .await?;
    let replay = scene.replayed(&again(&claim)).await?;
    ensure!(
        replay.state == State::Completed,
        "replayed as {:?}",
        replay.state
    );
    ensure!(
        replay.answer == answer("it happened"),
        "replayed {:?}",
        replay.answer
    );
    Ok(())
}

/// A doubt resolved as failed is replayed as a failure.
pub(super) async fn p19_a_doubt_can_be_failed(scene: Scene) -> CheckVerdict {
    let (claim, lease) = doubt(&scene).await?;
    let resolution = Resolution::Fail(answer("it failed"));
    scene
        .resolved(&claim.identity, lease.fence, &resolution)
        .await?;
    let replay = scene.replayed(&again(&claim)).await?;
    ensure!(
        replay.state == State::Failed,
        "replayed as {:?}",
        replay.state
    );
    ensure!(
        replay.answer == answer("it failed"),
        "replayed {:?}",
        replay.answer
    );
    Ok(())
}

/// A doubt resolved as released frees the key.
pub(super) async fn p19_a_doubt_can_be_released(scene: Scene) -> CheckVerdict {
    let (claim, lease) = doubt(&scene).await?;
    scene
        .resolved(&claim.identity, lease.fence, &Resolution::Release)
        .await?;
    let next = scene.won(&again(&claim)).await?;
    ensure!(
        next.fence > lease.fence,
        "{} follows {}",
        next.fence,
        lease.fence
    );
    ensure!(
        next.attempt == 1,
        "the run after a release is attempt {}",
        next.attempt
    );
    Ok(())
}

/// A lapse that no claim has noticed is a doubt already, if it may not be taken over.
pub(super) async fn p19_an_unnoticed_lapse_can_be_resolved(scene: Scene) -> CheckVerdict {
    let held = scene.fresh_on(scene.lapsing(CrashPolicy::Hold)?)?;
    let used_up = scene.fresh_on(scene.lapsing_after(CrashPolicy::Takeover, 1)?)?;
    let mut leases = Vec::new();
    for claim in [held, used_up] {
        leases.push((scene.won(&claim).await?, claim));
    }
    scene.lapse().await;
    for (lease, claim) in leases {
        let resolution = Resolution::Complete(answer("it happened"));
        scene
            .resolved(&claim.identity, lease.fence, &resolution)
            .await?;
        scene.replayed(&again(&claim)).await?;
    }
    Ok(())
}

/// A resolution that names another fence than the doubt's was meant for another run.
pub(super) async fn p19_a_resolution_needs_the_fence(scene: Scene) -> CheckVerdict {
    let (claim, lease) = doubt(&scene).await?;
    for fence in [Fence(lease.fence.0 - 1), Fence(lease.fence.0 + 1), Fence(0)] {
        for resolution in resolutions() {
            scene
                .resolve_is_refused(&claim.identity, fence, &resolution)
                .await?;
        }
    }
    Ok(())
}

/// A run that is under way is nobody's to resolve, and neither is one that may be taken over.
pub(super) async fn p19_a_run_cannot_be_resolved(scene: Scene) -> CheckVerdict {
    let live = scene.fresh_on(scene.lasting(CrashPolicy::Hold)?)?;
    let lapsed = scene.fresh_on(scene.lapsing(CrashPolicy::Takeover)?)?;
    let mut leases = Vec::new();
    for claim in [live, lapsed] {
        leases.push(scene.won(&claim).await?);
    }
    scene.lapse().await;
    for lease in leases {
        for resolution in resolutions() {
            scene
                .resolve_is_refused(&lease.identity, lease.fence, &resolution)
                .await?;
        }
    }
    Ok(())
}

/// What is settled, absent, deleted or expired is not in doubt.
pub(super) async fn p19_only_a_doubt_can_be_resolved(scene: Scene) -> CheckVerdict {
    let absent = scene.fresh()?;
    let resolution = Resolution::Complete(answer("made up"));
    scene
        .resolve_is_refused(&absent.identity, Fence(1), &resolution)
        .await?;
    for settlement in settlements() {
        if settlement != Settlement::Doubt {
            let claim = scene.fresh()?;
            let lease = scene.won(&claim).await?;
            scene.settled(&lease, &settlement).await?;
            scene
                .resolve_is_refused(&claim.identity, lease.fence, &resolution)
                .await?;
        }
    }
    for resolution in resolutions() {
        let (claim, lease) = doubt(&scene).await?;
        scene.store().delete(&claim.identity).await?;
        scene
            .resolve_is_refused(&claim.identity, lease.fence, &resolution)
            .await?;
    }
    let claim = scene.fresh_on(scene.expiring(CrashPolicy::Hold)?)?;
    let lease = scene.won(&claim).await?;
    scene.settled(&lease, &Settlement::Doubt).await?;
    scene.expire().await;
    scene
        .resolve_is_refused(&claim.identity, lease.fence, &resolution)
        .await
}

/// The same resolution sent again is done, and changes nothing.
pub(super) async fn p19_a_resent_resolution_is_done(scene: Scene) -> CheckVerdict {
    for resolution in resolutions() {
        let (claim, lease) = doubt(&scene).await?;
        scene
            .resolved(&claim.identity, lease.fence, &resolution)
            .await?;
        let before = scene.read(&claim.identity).await?;
        scene
            .resolved(&claim.identity, lease.fence, &resolution)
            .await?;
        scene.unchanged(&claim.identity, &before).await?;
    }
    Ok(())
}

/// A doubt is resolved once: the second opinion comes too late, and so does the owner's.
pub(super) async fn p19_a_doubt_is_resolved_once(scene: Scene) -> CheckVerdict {
    for first in resolutions() {
        let (claim, lease) = doubt(&scene).await?;
        scene.resolved(&claim.identity, lease.fence, &first).await?;
        for second in resolutions() {
            if second != first {
                scene
                    .resolve_is_refused(&claim.identity, lease.fence, &second)
                    .await?;
            }
        }
        let other = Settlement::Complete(answer("says the owner"));
        scene.settle_is_lost(&lease, &other).await?;
    }
    Ok(())
}
