//! P20–P23: expiry, sweeping, deletion, and fences that only grow.

use anyhow::ensure;
use semel_core::store::Query;
use semel_core::{Claim, ClaimTerms, CrashPolicy, Fence, Grant, Resolution, Settlement};

use super::make::{again, complete, settlements};
use super::{CheckVerdict, Scene};

/// One record per state, each on these terms, with its lease.
async fn one_of_each(scene: &Scene, terms: ClaimTerms) -> anyhow::Result<Vec<(Claim, Grant)>> {
    let running = scene.fresh_on(terms)?;
    let mut all = vec![(running.clone(), scene.won(&running).await?)];
    for settlement in settlements() {
        let claim = scene.fresh_on(terms)?;
        let lease = scene.won(&claim).await?;
        scene.settled(&lease, &settlement).await?;
        all.push((claim, lease));
    }
    Ok(all)
}

/// From the moment of expiry a record counts as absent for every call, removed or not.
pub(super) async fn p20_expired_is_absent_at_once(scene: Scene) -> CheckVerdict {
    let all = one_of_each(&scene, scene.expiring_late(CrashPolicy::Hold)?).await?;
    for (claim, _) in &all {
        scene.record(&claim.identity).await?;
    }
    scene.expire_late().await;
    let environment = Some(scene.environment().to_owned());
    let listed = scene
        .store()
        .list(&Query::default().with_environment(environment))
        .await?;
    ensure!(
        listed.records.is_empty(),
        "{} expired records were listed",
        listed.records.len()
    );
    for (claim, lease) in &all {
        ensure!(
            scene.read(&claim.identity).await?.is_none(),
            "read showed an expired record"
        );
        scene.renew_is_lost(lease).await?;
        scene.settle_is_lost(lease, &complete("too late")).await?;
        scene
            .resolve_is_refused(&claim.identity, lease.fence, &Resolution::Release)
            .await?;
        ensure!(
            !scene.store().delete(&claim.identity).await?,
            "delete found an expired record"
        );
    }
    Ok(())
}

/// An answer lives for its full retention from the moment it was written.
pub(super) async fn p20_settling_restarts_the_retention(scene: Scene) -> CheckVerdict {
    let terms = scene.expiring_late(CrashPolicy::Hold)?;
    let claim = scene.fresh_on(terms)?;
    let lease = scene.won(&claim).await?;
    scene.pass(terms.retention() * 2 / 3).await;
    scene.settled(&lease, &complete("the answer")).await?;
    scene.pass(terms.retention() * 2 / 3).await;
    scene.replayed(&again(&claim)).await.map(drop)
}

/// Asking for an answer doesn't keep it longer.
pub(super) async fn p20_replaying_does_not_prolong(scene: Scene) -> CheckVerdict {
    let terms = scene.expiring_late(CrashPolicy::Hold)?;
    let claim = scene.fresh_on(terms)?;
    let lease = scene.won(&claim).await?;
    scene.settled(&lease, &complete("the answer")).await?;
    scene.pass(terms.retention() / 2).await;
    let replay = scene.replayed(&again(&claim)).await?;
    // Prolonged, it would be all of it; half of it is told to a few milliseconds, where the store's
    // clock is guessed.
    ensure!(
        replay.expires_in < terms.retention() * 3 / 4,
        "expires in {:?}",
        replay.expires_in
    );
    scene
        .pass(terms.retention() / 2 + scene.spans().grace)
        .await;
    scene.won(&again(&claim)).await.map(drop)
}

/// A sweep removes what has expired, and the keys stay usable.
pub(super) async fn p21_sweep_removes_the_expired(scene: Scene) -> CheckVerdict {
    let all = one_of_each(&scene, scene.expiring(CrashPolicy::Hold)?).await?;
    scene.expire().await;
    let before = scene.store().stats().await?.records;
    let removed = sweep_all(&scene).await?;
    if !scene.store().capabilities().shared {
        // Nobody else is here: the numbers are this suite's alone.
        let (least, after) = (all.len(), scene.store().stats().await?.records);
        ensure!(removed >= least, "{removed} of {least} were removed");
        ensure!(
            before - after == removed as u64,
            "{before} records, then {after}"
        );
    }
    for (claim, lease) in all {
        let next = scene.won(&again(&claim)).await?;
        ensure!(
            next.fence > lease.fence,
            "{} follows {}",
            next.fence,
            lease.fence
        );
    }
    Ok(())
}

/// A sweep leaves alone whatever has not expired: running, lapsed, in doubt, settled or released.
pub(super) async fn p21_sweep_leaves_live_records(scene: Scene) -> CheckVerdict {
    let expired = one_of_each(&scene, scene.expiring(CrashPolicy::Hold)?).await?;
    let mut live = Vec::new();
    for crash in [CrashPolicy::Takeover, CrashPolicy::Hold] {
        let terms = scene.lapsing(crash)?;
        live.push(scene.won(&scene.fresh_on(terms)?).await?);
        for settlement in settlements() {
            let lease = scene.won(&scene.fresh_on(terms)?).await?;
            scene.settled(&lease, &settlement).await?;
            live.push(lease);
        }
    }
    scene.expire().await;
    let mut before = Vec::new();
    for lease in &live {
        before.push(scene.read(&lease.identity).await?);
    }
    ensure!(
        before.iter().all(Option::is_some),
        "a live record was gone before the sweep"
    );
    sweep_all(&scene).await?;
    for (lease, before) in live.iter().zip(&before) {
        scene.unchanged(&lease.identity, before).await?;
    }
    for (claim, _) in expired {
        ensure!(
            scene.read(&claim.identity).await?.is_none(),
            "an expired record is back"
        );
    }
    Ok(())
}

/// Sweeps until nothing is left to sweep.
async fn sweep_all(scene: &Scene) -> anyhow::Result<usize> {
    let mut removed = 0;
    for _ in 0..100 {
        match scene.store().sweep(1000).await? {
            0 => return Ok(removed),
            some => removed += some,
        }
    }
    anyhow::bail!("a sweep never came to its end")
}

/// A deleted key is as new, whatever its state was, and the old lease is worth nothing.
pub(super) async fn p22_a_deleted_key_is_new(scene: Scene) -> CheckVerdict {
    let lasting = scene.lasting(CrashPolicy::Hold)?;
    for (claim, lease) in one_of_each(&scene, lasting).await? {
        ensure!(
            scene.store().delete(&claim.identity).await?,
            "delete found nothing"
        );
        ensure!(
            scene.read(&claim.identity).await?.is_none(),
            "read found a deleted record"
        );
        ensure!(
            !scene.store().delete(&claim.identity).await?,
            "delete found it twice"
        );
        let next = scene.won(&super::make::other_payload(&claim)).await?;
        ensure!(
            next.attempt == 1,
            "the run after a deletion is attempt {}",
            next.attempt
        );
        scene.settle_is_lost(&lease, &complete("too late")).await?;
    }
    Ok(())
}

/// A key that is claimed long after its deletion lives as long as any other.
pub(super) async fn p22_a_deleted_key_lives_its_full_span(scene: Scene) -> CheckVerdict {
    // The retention is short; a lease that is shorter still would lapse on a slow machine.
    let span = scene.late_retention();
    let claim = scene.fresh_on(ClaimTerms::new(span, span, CrashPolicy::Hold, 10)?)?;
    scene.won(&claim).await?;
    scene.store().delete(&claim.identity).await?;
    scene.expire_late().await;
    let next = again(&claim);
    let lease = scene.won(&next).await?;
    let resent = scene.won(&next).await?;
    ensure!(
        resent.fence == lease.fence,
        "sent again, it won {:?} after {:?}",
        resent.fence,
        lease.fence
    );
    scene.busy(&again(&claim)).await?;
    scene.settled(&lease, &complete("the answer")).await?;
    scene.replayed(&again(&claim)).await?;
    Ok(())
}

/// Fences grow across releases.
pub(super) async fn p22_fences_grow_across_release(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    let mut last = Fence(0);
    for _ in 0..5 {
        let lease = grows(&scene, &claim, &mut last).await?;
        scene.settled(&lease, &Settlement::Release).await?;
    }
    Ok(())
}

/// Fences grow across deletions, after releases too.
pub(super) async fn p22_fences_grow_across_delete(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    let mut last = Fence(0);
    for _ in 0..5 {
        for _ in 0..3 {
            let lease = grows(&scene, &claim, &mut last).await?;
            scene.settled(&lease, &Settlement::Release).await?;
        }
        scene.store().delete(&claim.identity).await?;
    }
    Ok(())
}

/// Fences grow across expiry.
pub(super) async fn p22_fences_grow_across_expiry(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh_on(scene.expiring(CrashPolicy::Takeover)?)?;
    let mut last = Fence(0);
    grows(&scene, &claim, &mut last).await?;
    scene.expire().await;
    grows(&scene, &claim, &mut last).await.map(drop)
}

/// Fences grow across expiry when a sweep has removed the record.
pub(super) async fn p22_fences_grow_across_sweep(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh_on(scene.expiring(CrashPolicy::Takeover)?)?;
    let mut last = Fence(0);
    grows(&scene, &claim, &mut last).await?;
    scene.expire().await;
    sweep_all(&scene).await?;
    grows(&scene, &claim, &mut last).await.map(drop)
}

/// Fences grow across takeovers and resolved doubts.
pub(super) async fn p22_fences_grow_across_takeover(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh_on(scene.lapsing_after(CrashPolicy::Takeover, 2)?)?;
    let mut last = Fence(0);
    grows(&scene, &claim, &mut last).await?;
    scene.lapse().await;
    grows(&scene, &claim, &mut last).await?;
    scene.lapse().await;
    scene.in_doubt(&again(&claim)).await?;
    scene
        .resolved(&claim.identity, last, &Resolution::Release)
        .await?;
    grows(&scene, &claim, &mut last).await.map(drop)
}

async fn grows(scene: &Scene, claim: &Claim, last: &mut Fence) -> anyhow::Result<Grant> {
    let lease = scene.won(&again(claim)).await?;
    ensure!(lease.fence > *last, "fence {} follows {last}", lease.fence);
    *last = lease.fence;
    Ok(lease)
}

/// Spans are measured on the store's clock: none is longer than was agreed, and time left shrinks.
pub(super) async fn p23_spans_are_the_stores(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    let lease = scene.won(&claim).await?;
    let first = scene.busy(&again(&claim)).await?;
    let step = scene.spans().lease / 4;
    scene.pass(step).await;
    let second = scene.busy(&again(&claim)).await?;
    ensure!(
        second.since >= first.since + step,
        "{:?}, then {:?}",
        first.since,
        second.since
    );
    let left = (first.retry_after, second.retry_after);
    ensure!(
        left.1 + step <= left.0,
        "{:?} left, then {:?}",
        left.0,
        left.1
    );
    scene.settled(&lease, &complete("the answer")).await?;
    let replay = scene.replayed(&again(&claim)).await?;
    let took = replay.settled_at.since(replay.requested_at);
    ensure!(took >= step, "settled {took:?} after it was requested");
    ensure!(
        replay.expires_in <= claim.terms.retention(),
        "expires in {:?}",
        replay.expires_in
    );
    Ok(())
}
