//! P9: a takeover continues where the last owner stopped.

use anyhow::ensure;
use semel_core::{Claimed, CrashPolicy};

use super::make::again;
use super::{CheckVerdict, Scene};

/// A lapsed lease is taken over: another attempt, a larger fence, and the old lease is worth
/// nothing.
pub(super) async fn p09_lapsed_is_taken_over(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh_on(scene.lapsing(CrashPolicy::Takeover)?)?;
    let first = scene.won(&claim).await?;
    let before = scene.record(&claim.identity).await?;
    scene.lapse().await;
    let next = again(&claim);
    let second = scene.won(&next).await?;
    ensure!(
        second.attempt == 2,
        "the takeover is attempt {}",
        second.attempt
    );
    ensure!(
        second.fence > first.fence,
        "{} follows {}",
        second.fence,
        first.fence
    );
    ensure!(
        second.token == next.token,
        "the takeover has another's token"
    );
    let after = scene.record(&claim.identity).await?;
    ensure!(
        after.is_owned_by(second.fence, next.token),
        "the record is not the new owner's"
    );
    ensure!(
        after.created_at == before.created_at,
        "a takeover changed when the key was claimed"
    );
    scene.renew_is_lost(&first).await
}

/// What the last owner kept is given to the next.
pub(super) async fn p09_takeover_hands_on_the_checkpoint(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh_on(scene.lapsing(CrashPolicy::Takeover)?)?;
    let first = scene.won(&claim).await?;
    scene.held(&first, Some(b"step 3 of 5")).await?;
    scene.lapse().await;
    let second = scene.won(&again(&claim)).await?;
    ensure!(
        second.checkpoint == "step 3 of 5",
        "handed on {:?}",
        second.checkpoint
    );
    scene.lapse().await;
    let third = scene.won(&again(&claim)).await?;
    ensure!(
        third.checkpoint == "step 3 of 5",
        "handed on the second time {:?}",
        third.checkpoint
    );
    ensure!(
        third.attempt == 3,
        "the second takeover is attempt {}",
        third.attempt
    );
    Ok(())
}

/// Nobody takes over before the lease has ended on the store's own clock.
pub(super) async fn p09_no_takeover_before_the_lease_ended(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh_on(scene.lapsing(CrashPolicy::Takeover)?)?;
    scene.won(&claim).await?;
    let before = scene.record(&claim.identity).await?;
    for _ in 0..64 {
        if let Claimed::Won(_) = scene.claim(&again(&claim)).await? {
            let after = scene.record(&claim.identity).await?;
            let early = before.lease_end().since(after.written_at);
            ensure!(
                early.is_zero(),
                "taken over {early:?} before the lease ended"
            );
            return Ok(());
        }
        scene
            .unchanged(&claim.identity, &Some(before.clone()))
            .await?;
        scene.pass(scene.spans().lease / 8).await;
    }
    anyhow::bail!("the lease never lapsed")
}
