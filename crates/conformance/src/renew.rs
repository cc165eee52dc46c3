//! P14 and P15: an owner renews its lease, and keeps its checkpoint.

use anyhow::ensure;
use semel_core::{Claim, ClaimTerms, CrashPolicy, Fence, Record};

use super::make::{again, complete, settlements, token, under};
use super::{CheckVerdict, Scene};

/// A renewal moves the time of the last write, and nothing else.
pub(super) async fn p14_a_renewal_is_held(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    let lease = scene.won(&claim).await?;
    let before = scene.record(&claim.identity).await?;
    scene.pass(scene.spans().lease / 8).await;
    scene.held(&lease, None).await?;
    let after = scene.record(&claim.identity).await?;
    ensure!(
        after.written_at > before.written_at,
        "the renewal did not count from the store's now"
    );
    let expected = Record {
        written_at: after.written_at,
        ..before
    };
    ensure!(after == expected, "expected {expected:?}, found {after:?}");
    Ok(())
}

/// A renewed lease outlives the span it began with.
pub(super) async fn p14_a_renewed_lease_lives_its_full_span(scene: Scene) -> CheckVerdict {
    // As long as a late retention, so that a slow test machine doesn't outsleep it.
    let (span, lasting) = (
        scene.late_retention(),
        scene.lasting(CrashPolicy::Takeover)?,
    );
    let terms = ClaimTerms::new(span, lasting.retention(), CrashPolicy::Takeover, 10)?;
    let claim = scene.fresh_on(terms)?;
    let lease = scene.won(&claim).await?;
    scene.pass(span * 6 / 10).await;
    scene.held(&lease, None).await?;
    scene.pass(span * 6 / 10).await;
    scene.busy(&again(&claim)).await.map(drop)
}

/// A renewal keeps the record too, for its full retention.
pub(super) async fn p14_a_renewal_restarts_the_retention(scene: Scene) -> CheckVerdict {
    let terms = scene.expiring_late(CrashPolicy::Hold)?;
    let claim = scene.fresh_on(terms)?;
    let lease = scene.won(&claim).await?;
    scene.pass(terms.retention() * 2 / 3).await;
    scene.held(&lease, None).await?;
    scene.pass(terms.retention() * 2 / 3).await;
    scene.record(&claim.identity).await.map(drop)
}

/// A lapsed lease that nobody took over is still its owner's to renew.
pub(super) async fn p14_a_lapsed_lease_can_be_renewed(scene: Scene) -> CheckVerdict {
    for crash in [CrashPolicy::Takeover, CrashPolicy::Hold] {
        let claim = scene.fresh_on(scene.lapsing(crash)?)?;
        let lease = scene.won(&claim).await?;
        let before = scene.record(&claim.identity).await?;
        scene.lapse().await;
        scene.held(&lease, None).await?;
        let after = scene.record(&claim.identity).await?;
        ensure!(
            after.written_at >= before.lease_end(),
            "the lease was not prolonged"
        );
    }
    Ok(())
}

/// After a takeover, the old owner's renewal is lost.
pub(super) async fn p14_a_stale_renewal_is_lost(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh_on(scene.lapsing(CrashPolicy::Takeover)?)?;
    let stale = scene.won(&claim).await?;
    scene.lapse().await;
    let lasting = scene.lasting(CrashPolicy::Takeover)?;
    let current = scene.won(&under(&claim, lasting)).await?;
    scene.renew_is_lost(&stale).await?;
    scene.held(&current, None).await
}

/// The right token with another fence is not the lease.
pub(super) async fn p14_a_renewal_needs_the_fence(scene: Scene) -> CheckVerdict {
    let lease = scene.won(&scene.fresh()?).await?;
    for fence in [lease.fence.0 - 1, lease.fence.0 + 1] {
        scene
            .renew_is_lost(&lease.clone().with_fence(Fence(fence)))
            .await?;
    }
    Ok(())
}

/// However long ago it was claimed: what was renewed in time is settled, and replayed.
pub(super) async fn p14_what_was_renewed_past_its_first_retention_settles(
    scene: Scene,
) -> CheckVerdict {
    let claim = scene.fresh_on(scene.expiring_late(CrashPolicy::Takeover)?)?;
    let lease = scene.won(&claim).await?;
    // In small steps: a renewal may come late by two thirds of the retention.
    for _ in 0..4 {
        scene.pass(scene.late_retention() * 3 / 10).await;
        scene.held(&lease, None).await?;
    }
    scene.settled(&lease, &complete("the answer")).await?;
    scene.replayed(&again(&claim)).await?;
    Ok(())
}

/// The right fence with another token is not the lease.
pub(super) async fn p14_a_renewal_needs_the_token(scene: Scene) -> CheckVerdict {
    let lease = scene.won(&scene.fresh()?).await?;
    scene.renew_is_lost(&lease.with_token(token())).await
}

/// What is settled, or in doubt, cannot be renewed.
pub(super) async fn p14_a_settled_lease_cannot_be_renewed(scene: Scene) -> CheckVerdict {
    for settlement in settlements() {
        let lease = scene.won(&scene.fresh()?).await?;
        scene.settled(&lease, &settlement).await?;
        scene.renew_is_lost(&lease).await?;
    }
    Ok(())
}

/// A renewal makes no record where there is none.
pub(super) async fn p14_an_absent_lease_cannot_be_renewed(scene: Scene) -> CheckVerdict {
    let deleted = scene.won(&scene.fresh()?).await?;
    scene.store().delete(&deleted.identity).await?;
    scene.renew_is_lost(&deleted).await?;
    let expired: Claim = scene.fresh_on(scene.expiring(CrashPolicy::Takeover)?)?;
    let expired = scene.won(&expired).await?;
    scene.expire().await;
    scene.renew_is_lost(&expired).await
}

/// A checkpoint replaces the last one, an empty one too.
pub(super) async fn p15_a_checkpoint_replaces_the_last(scene: Scene) -> CheckVerdict {
    let lease = scene.won(&scene.fresh()?).await?;
    for checkpoint in ["first", "second", ""] {
        scene.held(&lease, Some(checkpoint.as_bytes())).await?;
        let record = scene.record(&lease.identity).await?;
        ensure!(
            record.checkpoint == checkpoint,
            "kept {:?}",
            record.checkpoint
        );
    }
    Ok(())
}

/// A renewal without a checkpoint keeps the last.
pub(super) async fn p15_a_plain_renewal_keeps_the_checkpoint(scene: Scene) -> CheckVerdict {
    let lease = scene.won(&scene.fresh()?).await?;
    scene.held(&lease, Some(b"kept")).await?;
    scene.held(&lease, None).await?;
    let record = scene.record(&lease.identity).await?;
    ensure!(record.checkpoint == "kept", "kept {:?}", record.checkpoint);
    Ok(())
}

/// A checkpoint is bytes: every value of a byte, in a takeover and in a doubt.
pub(super) async fn p15_a_checkpoint_is_binary(scene: Scene) -> CheckVerdict {
    let bytes: Vec<u8> = (0..=255).collect();
    let taken = scene.fresh_on(scene.lapsing(CrashPolicy::Takeover)?)?;
    let doubted = scene.fresh_on(scene.lapsing(CrashPolicy::Hold)?)?;
    for claim in [&taken, &doubted] {
        let lease = scene.won(claim).await?;
        scene.held(&lease, Some(&bytes)).await?;
    }
    scene.lapse().await;
    let grant = scene.won(&again(&taken)).await?;
    ensure!(
        grant.checkpoint == bytes,
        "handed on {:?}",
        grant.checkpoint
    );
    let doubt = scene.in_doubt(&again(&doubted)).await?;
    ensure!(doubt.checkpoint == bytes, "shown {:?}", doubt.checkpoint);
    Ok(())
}
