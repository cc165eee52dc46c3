//! P7: a key that was used with another payload is refused.

use semel_core::{CrashPolicy, Resolution, Settlement};

use super::make::{again, answer, complete, other_payload};
use super::{CheckVerdict, Scene};

/// Another payload is refused while the first still runs.
pub(super) async fn p07_mismatch_while_running(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    scene.won(&claim).await?;
    scene.mismatch(&other_payload(&claim)).await?;
    scene.busy(&again(&claim)).await.map(drop)
}

/// Another payload takes over nothing, and puts nothing in doubt.
pub(super) async fn p07_mismatch_when_lapsed(scene: Scene) -> CheckVerdict {
    let takeover = scene.fresh_on(scene.lapsing(CrashPolicy::Takeover)?)?;
    let hold = scene.fresh_on(scene.lapsing(CrashPolicy::Hold)?)?;
    scene.won(&takeover).await?;
    scene.won(&hold).await?;
    scene.lapse().await;
    scene.mismatch(&other_payload(&takeover)).await?;
    scene.mismatch(&other_payload(&hold)).await
}

/// Another payload is refused once the first is completed: no answer is given away.
pub(super) async fn p07_mismatch_when_completed(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    let lease = scene.won(&claim).await?;
    scene.settled(&lease, &complete("the answer")).await?;
    scene.mismatch(&other_payload(&claim)).await?;
    scene.replayed(&again(&claim)).await.map(drop)
}

/// Another payload is refused once the first has failed.
pub(super) async fn p07_mismatch_when_failed(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    let lease = scene.won(&claim).await?;
    scene
        .settled(&lease, &Settlement::Fail(answer("the failure")))
        .await?;
    scene.mismatch(&other_payload(&claim)).await
}

/// Another payload is refused while the first is in doubt, and after the doubt is resolved.
pub(super) async fn p07_mismatch_when_in_doubt(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    let lease = scene.won(&claim).await?;
    scene.settled(&lease, &Settlement::Doubt).await?;
    scene.mismatch(&other_payload(&claim)).await?;
    let resolution = Resolution::Complete(answer("resolved"));
    scene
        .resolved(&claim.identity, lease.fence, &resolution)
        .await?;
    scene.mismatch(&other_payload(&claim)).await
}
