//! Races between calls of different kinds on one record.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use anyhow::{bail, ensure};
use parking_lot::Mutex;
use semel_core::{
    ClaimTerms, Claimed, CrashPolicy, Fence, Renewed, Resolution, Resolved, Settled, Settlement,
};

use super::make::{again, answer, complete, under};
use super::races::{LAPSED_ROUNDS, RACERS, ROUNDS, race};
use super::{CheckVerdict, Scene};

/// A late renewal and a takeover: the lease is prolonged or passed on, never both, never neither.
pub(super) async fn p14_renewal_and_takeover_exclude_each_other(scene: Scene) -> CheckVerdict {
    // Longer than a rival is on its way on a slow machine: one that comes after the renewed lease
    // would win, and rightly.
    let span = scene.spans().lease * 4;
    let retention = scene.lasting(CrashPolicy::Takeover)?.retention();
    let terms = ClaimTerms::new(span, retention, CrashPolicy::Takeover, 10)?;
    let mut leases = Vec::new();
    for _ in 0..LAPSED_ROUNDS {
        let claim = scene.fresh_on(terms)?;
        leases.push((scene.won(&claim).await?, claim));
    }
    scene.pass(span + scene.spans().grace).await;
    let elsewhere = scene.from_another_process();
    for (lease, claim) in leases {
        let (owner, rival) = (scene.clone(), elsewhere.clone());
        let ask = under(&claim, scene.lasting(CrashPolicy::Takeover)?);
        let stale = lease.clone();
        let renewal = tokio::spawn(async move { owner.renew(&stale, None).await });
        let takeover = tokio::spawn(async move { rival.claim(&ask).await });
        match (renewal.await??, takeover.await??) {
            (Renewed::Held, Claimed::Busy(_)) => scene.held(&lease, None).await?,
            (Renewed::Lost, Claimed::Won(_)) => scene.renew_is_lost(&lease).await?,
            both => bail!("renewal and takeover were told {both:?}"),
        }
    }
    Ok(())
}

/// A late settlement and a takeover: either the answer stands and is replayed, or a new run has
/// begun and the settlement is lost.
pub(super) async fn p16_settlement_and_takeover_exclude_each_other(scene: Scene) -> CheckVerdict {
    let mut leases = Vec::new();
    for _ in 0..LAPSED_ROUNDS {
        let claim = scene.fresh_on(scene.lapsing(CrashPolicy::Takeover)?)?;
        leases.push((scene.won(&claim).await?, claim));
    }
    scene.lapse().await;
    let elsewhere = scene.from_another_process();
    for (lease, claim) in leases {
        let (owner, rival) = (scene.clone(), elsewhere.clone());
        let ask = under(&claim, scene.lasting(CrashPolicy::Takeover)?);
        let late = tokio::spawn(async move { owner.settle(&lease, &complete("late")).await });
        let takeover = tokio::spawn(async move { rival.claim(&ask).await });
        match (late.await??, takeover.await??) {
            (Settled::Done, Claimed::Replay(replay)) => {
                ensure!(
                    replay.answer == answer("late"),
                    "replayed {:?}",
                    replay.answer
                );
            }
            (Settled::Lost, Claimed::Won(lease)) => {
                scene.settled(&lease, &complete("by the new owner")).await?;
                let replay = scene.replayed(&again(&claim)).await?;
                let wins = replay.answer == answer("by the new owner");
                ensure!(wins, "the late answer replaced the new owner's");
            }
            both => bail!("settlement and takeover were told {both:?}"),
        }
    }
    Ok(())
}

/// Many different settlements of one lease at once: one is done, and the record says that one.
pub(super) async fn p18_one_of_many_settlements_is_done(scene: Scene) -> CheckVerdict {
    for _ in 0..ROUNDS {
        let claim = scene.fresh()?;
        let lease = scene.won(&claim).await?;
        let settled = race(&scene, |scene, index| {
            let lease = lease.clone();
            async move {
                let settlement = complete(&format!("answer {index}"));
                Ok((scene.settle(&lease, &settlement).await?, settlement))
            }
        })
        .await?;
        let mut done = settled
            .iter()
            .filter(|(settled, _)| *settled == Settled::Done);
        let (Some((_, first)), None) = (done.next(), done.next()) else {
            bail!("not exactly one of {RACERS} settlements was done");
        };
        let replay = scene.replayed(&again(&claim)).await?;
        ensure!(
            Some(&replay.answer) == first.answer(),
            "a lost settlement was written"
        );
    }
    Ok(())
}

/// One settlement sent many times at once is one settlement: all its copies are done.
pub(super) async fn p18_copies_of_a_settlement_are_done(scene: Scene) -> CheckVerdict {
    for round in 0..ROUNDS {
        let lease = scene.won(&scene.fresh()?).await?;
        let settlement = &super::make::settlements()[round % 4];
        race(&scene, |scene, _| {
            let (lease, settlement) = (lease.clone(), settlement.clone());
            async move { scene.settled(&lease, &settlement).await }
        })
        .await?;
    }
    Ok(())
}

/// Many different resolutions of one doubt at once: one is done, and the record says that one.
pub(super) async fn p19_one_of_many_resolutions_is_done(scene: Scene) -> CheckVerdict {
    for _ in 0..ROUNDS {
        let claim = scene.fresh()?;
        let lease = scene.won(&claim).await?;
        scene.settled(&lease, &Settlement::Doubt).await?;
        let resolved = race(&scene, |scene, index| {
            let (identity, fence) = (lease.identity, lease.fence);
            async move {
                let resolution = Resolution::Complete(answer(&format!("answer {index}")));
                Ok((index, scene.resolve(&identity, fence, &resolution).await?))
            }
        })
        .await?;
        let done = resolved
            .iter()
            .filter(|(_, resolved)| *resolved == Resolved::Done);
        let done: Vec<_> = done.map(|(index, _)| *index).collect();
        ensure!(
            done.len() == 1,
            "{} of {RACERS} resolutions were done",
            done.len()
        );
        let replay = scene.replayed(&again(&claim)).await?;
        let expected = answer(&format!("answer {}", done[0]));
        ensure!(
            replay.answer == expected,
            "a refused resolution was written"
        );
    }
    Ok(())
}

/// A sweep that runs while expired keys are claimed anew removes none of the new records.
pub(super) async fn p21_a_sweep_takes_no_fresh_claim(scene: Scene) -> CheckVerdict {
    let mut claims = Vec::new();
    for _ in 0..RACERS * 5 {
        let claim = scene.fresh_on(scene.expiring(CrashPolicy::Hold)?)?;
        scene.won(&claim).await?;
        claims.push(claim);
    }
    scene.expire().await;
    let (claims, next) = (Arc::new(claims), Arc::new(AtomicUsize::new(0)));
    let sweeping = Arc::new(AtomicBool::new(false));
    let lasting = scene.lasting(CrashPolicy::Hold)?;
    let leases = race(&scene, |scene, index| {
        let (claims, next) = (Arc::clone(&claims), Arc::clone(&next));
        let sweeping = Arc::clone(&sweeping);
        async move {
            while index % 3 == 0 && next.load(Ordering::SeqCst) < claims.len() {
                let mut sweep = scene.store().sweep(1000);
                let begun = poll_fn(|cx| Poll::Ready(sweep.as_mut().poll(cx))).await;
                sweeping.store(true, Ordering::SeqCst);
                match begun {
                    Poll::Ready(swept) => swept?,
                    Poll::Pending => sweep.await?,
                };
                tokio::task::yield_now().await;
            }
            // Nobody claims before a sweep is under way, or there would be nothing left to sweep.
            while !sweeping.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
            let mut won = Vec::new();
            while let Some(claim) = claims.get(next.fetch_add(1, Ordering::SeqCst)) {
                won.push(scene.won(&under(claim, lasting)).await?);
                tokio::task::yield_now().await;
            }
            Ok(won)
        }
    })
    .await?;
    let leases: Vec<_> = leases.into_iter().flatten().collect();
    ensure!(
        leases.len() == claims.len(),
        "{} keys were claimed",
        leases.len()
    );
    for lease in leases {
        let record = scene.record(&lease.identity).await?;
        ensure!(
            record.is_owned_by(lease.fence, lease.token),
            "the new record is another's"
        );
        scene.settled(&lease, &complete("the answer")).await?;
    }
    Ok(())
}

/// In a storm of claims and releases no fence comes twice, and each is larger than all that were
/// known when it was asked for.
pub(super) async fn p22_fences_grow_in_a_storm(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    let given = Arc::new(Mutex::new(Vec::<Fence>::new()));
    race(&scene, |scene, _| {
        let (claim, given) = (claim.clone(), Arc::clone(&given));
        async move {
            for _ in 0..ROUNDS {
                let known = given.lock().iter().max().copied();
                if let Claimed::Won(lease) = scene.claim(&again(&claim)).await? {
                    let grew = known.is_none_or(|known| lease.fence > known);
                    ensure!(grew, "fence {} was given out after {known:?}", lease.fence);
                    given.lock().push(lease.fence);
                    scene.settled(&lease, &Settlement::Release).await?;
                }
                tokio::task::yield_now().await;
            }
            Ok(())
        }
    })
    .await?;
    let mut given = given.lock().clone();
    let count = given.len();
    given.sort();
    given.dedup();
    ensure!(
        given.len() == count,
        "{} fences were given out twice",
        count - given.len()
    );
    ensure!(count > 0, "nobody ever won");
    Ok(())
}
