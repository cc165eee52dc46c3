//! P16–P18: settlements end a lease exactly once.

use anyhow::ensure;
use bytes::Bytes;
use semel_core::{Answer, CrashPolicy, Fence, Record, Settlement, State};

use super::make::{again, answer, complete, settlements, token, under};
use super::{CheckVerdict, Scene};

/// Every settlement is written as what it is, and leaves the rest of the record alone.
pub(super) async fn p16_a_settlement_is_written(scene: Scene) -> CheckVerdict {
    for settlement in settlements() {
        let claim = scene.fresh()?;
        let lease = scene.won(&claim).await?;
        let before = scene.record(&claim.identity).await?;
        scene.settled(&lease, &settlement).await?;
        let after = scene.record(&claim.identity).await?;
        ensure!(
            after.written_at >= before.written_at,
            "the time of writing went back"
        );
        let expected = Record {
            state: settlement.state(),
            answer: settlement.answer().cloned(),
            written_at: after.written_at,
            ..before
        };
        ensure!(after == expected, "expected {expected:?}, found {after:?}");
    }
    Ok(())
}

/// The right token with another fence settles nothing.
pub(super) async fn p16_a_settlement_needs_the_fence(scene: Scene) -> CheckVerdict {
    let lease = scene.won(&scene.fresh()?).await?;
    for fence in [lease.fence.0 - 1, lease.fence.0 + 1] {
        let other = lease.clone().with_fence(Fence(fence));
        for settlement in settlements() {
            scene.settle_is_lost(&other, &settlement).await?;
        }
    }
    Ok(())
}

/// The right fence with another token settles nothing.
pub(super) async fn p16_a_settlement_needs_the_token(scene: Scene) -> CheckVerdict {
    let lease = scene.won(&scene.fresh()?).await?;
    let other = lease.with_token(token());
    for settlement in settlements() {
        scene.settle_is_lost(&other, &settlement).await?;
    }
    Ok(())
}

/// After a takeover, the old owner settles nothing: not while the new one runs, not afterwards.
pub(super) async fn p16_a_stale_settlement_is_lost(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh_on(scene.lapsing(CrashPolicy::Takeover)?)?;
    let stale = scene.won(&claim).await?;
    scene.lapse().await;
    let lasting = scene.lasting(CrashPolicy::Takeover)?;
    let current = scene.won(&under(&claim, lasting)).await?;
    for settlement in settlements() {
        scene.settle_is_lost(&stale, &settlement).await?;
    }
    scene
        .settled(&current, &complete("by the new owner"))
        .await?;
    for settlement in settlements() {
        scene.settle_is_lost(&stale, &settlement).await?;
    }
    let replay = scene.replayed(&again(&claim)).await?;
    ensure!(
        replay.answer == answer("by the new owner"),
        "replayed {:?}",
        replay.answer
    );
    Ok(())
}

/// A call that gave up cannot free the key for another under its successor.
pub(super) async fn p16_a_stale_release_frees_nothing(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh_on(scene.lapsing(CrashPolicy::Takeover)?)?;
    let stale = scene.won(&claim).await?;
    scene.lapse().await;
    let lasting = scene.lasting(CrashPolicy::Takeover)?;
    scene.won(&under(&claim, lasting)).await?;
    scene.settle_is_lost(&stale, &Settlement::Release).await?;
    scene.busy(&again(&claim)).await.map(drop)
}

/// A settlement makes no record where there is none: not after a deletion, not after expiry.
pub(super) async fn p16_an_absent_lease_settles_nothing(scene: Scene) -> CheckVerdict {
    let deleted = scene.won(&scene.fresh()?).await?;
    scene.store().delete(&deleted.identity).await?;
    let expired = scene.fresh_on(scene.expiring(CrashPolicy::Takeover)?)?;
    let expired = scene.won(&expired).await?;
    scene.expire().await;
    for lease in [deleted, expired] {
        for settlement in settlements() {
            scene.settle_is_lost(&lease, &settlement).await?;
        }
    }
    Ok(())
}

/// A settlement after a deletion does not reach the record that came after it.
pub(super) async fn p16_a_deleted_lease_settles_nothing_later(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    let stale = scene.won(&claim).await?;
    scene.store().delete(&claim.identity).await?;
    let current = scene.won(&again(&claim)).await?;
    for settlement in settlements() {
        scene.settle_is_lost(&stale, &settlement).await?;
    }
    scene.settled(&current, &complete("by the new owner")).await
}

/// An owner that comes late, but before anybody took over, is heard: it knows what happened.
pub(super) async fn p17_a_late_settlement_is_accepted(scene: Scene) -> CheckVerdict {
    let mut late = Vec::new();
    for crash in [CrashPolicy::Takeover, CrashPolicy::Hold] {
        for settlement in settlements() {
            let claim = scene.fresh_on(scene.lapsing(crash)?)?;
            late.push((scene.won(&claim).await?, settlement));
        }
    }
    scene.lapse().await;
    for (lease, settlement) in late {
        scene.settled(&lease, &settlement).await?;
        let record = scene.record(&lease.identity).await?;
        ensure!(
            record.state == settlement.state(),
            "{settlement:?} left {:?}",
            record.state
        );
    }
    Ok(())
}

/// The same after the lapse was noticed and the record put in doubt.
pub(super) async fn p17_a_late_settlement_ends_a_noticed_doubt(scene: Scene) -> CheckVerdict {
    for settlement in settlements() {
        let claim = scene.fresh_on(scene.lapsing(CrashPolicy::Hold)?)?;
        let lease = scene.won(&claim).await?;
        scene.lapse().await;
        scene.in_doubt(&again(&claim)).await?;
        scene.settled(&lease, &settlement).await?;
        let record = scene.record(&claim.identity).await?;
        ensure!(
            record.state == settlement.state(),
            "{settlement:?} left {:?}",
            record.state
        );
    }
    Ok(())
}

/// An owner that was in doubt itself may learn what happened, and say so.
pub(super) async fn p17_an_owner_may_end_its_own_doubt(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    let lease = scene.won(&claim).await?;
    scene.settled(&lease, &Settlement::Doubt).await?;
    scene.settled(&lease, &complete("it did happen")).await?;
    let replay = scene.replayed(&again(&claim)).await?;
    ensure!(
        replay.answer == answer("it did happen"),
        "replayed {:?}",
        replay.answer
    );
    Ok(())
}

/// The same settlement sent again is done, and changes nothing, not even the time.
pub(super) async fn p18_a_resent_settlement_is_done(scene: Scene) -> CheckVerdict {
    for settlement in settlements() {
        let lease = scene.won(&scene.fresh()?).await?;
        scene.settled(&lease, &settlement).await?;
        let before = scene.read(&lease.identity).await?;
        scene.pass(scene.spans().lease / 8).await;
        scene.settled(&lease, &settlement).await?;
        scene.unchanged(&lease.identity, &before).await?;
    }
    Ok(())
}

/// Another settlement of what is completed, failed or released is lost.
pub(super) async fn p18_another_settlement_is_lost(scene: Scene) -> CheckVerdict {
    let mut second = settlements().to_vec();
    second.push(complete("another answer"));
    second.push(Settlement::Fail(answer("the answer")));
    for first in settlements() {
        if first == Settlement::Doubt {
            continue; // P17: a doubt may be settled.
        }
        let lease = scene.won(&scene.fresh()?).await?;
        scene.settled(&lease, &first).await?;
        for settlement in second.iter().filter(|settlement| **settlement != first) {
            scene.settle_is_lost(&lease, settlement).await?;
        }
    }
    Ok(())
}

/// A second answer of the same owner never replaces the first: all replays are alike.
pub(super) async fn p18_the_first_answer_stays(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    let lease = scene.won(&claim).await?;
    scene.settled(&lease, &complete("the first")).await?;
    scene.settle(&lease, &complete("the second")).await?;
    let another_head = Answer {
        head: Bytes::from_static(b"another head"),
        ..Answer::clone(&answer("the first"))
    };
    let third = Settlement::Complete(another_head.into());
    scene.settle(&lease, &third).await?;
    let replay = scene.replayed(&again(&claim)).await?;
    ensure!(
        replay.state == State::Completed,
        "replayed as {:?}",
        replay.state
    );
    ensure!(
        replay.answer == answer("the first"),
        "the answer was changed afterwards"
    );
    Ok(())
}
