//! P4: racing claims. One of them wins, and its effect runs once.

#![expect(
    clippy::disallowed_methods,
    reason = "a suite that hangs must end, whatever clock the store has"
)]

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{bail, ensure};
use semel_core::{Answer, Claim, Claimed, CrashPolicy, Grant, Settlement, protocol};
use tokio::sync::Barrier;

use super::make::{again, answer, complete};
use super::{CheckVerdict, Scene};

/// How many race.
pub(super) const RACERS: usize = 12;
/// How often.
pub(super) const ROUNDS: usize = 20;
/// How often where each round waits out a lease. Keys are claimed ahead, so the wait is one for
/// all.
pub(super) const LAPSED_ROUNDS: usize = 12;

/// How often a caller asks for an answer before it gives up.
const PATIENCE: usize = 400;

/// Runs `racer` [`RACERS`] times at once, half of them as another process; gives what each gave.
pub(super) async fn race<T, F, R>(scene: &Scene, racer: F) -> anyhow::Result<Vec<T>>
where
    F: Fn(Scene, usize) -> R,
    R: Future<Output = anyhow::Result<T>> + Send + 'static,
    T: Send + 'static,
{
    let elsewhere = scene.from_another_process();
    let start = Arc::new(Barrier::new(RACERS));
    let mut racers = Vec::new();
    for index in 0..RACERS {
        let scene = if index % 2 == 0 {
            scene.clone()
        } else {
            elsewhere.clone()
        };
        let (start, run) = (Arc::clone(&start), racer(scene, index));
        racers.push(tokio::spawn(async move {
            start.wait().await;
            run.await
        }));
    }
    let mut results = Vec::new();
    for racer in racers {
        results.push(racer.await??);
    }
    Ok(results)
}

/// Lets [`RACERS`] callers claim the same request at once; gives the winner's lease.
async fn one_wins(scene: &Scene, claim: &Claim) -> anyhow::Result<Grant> {
    let answers = race(scene, |scene, _| {
        let ask = again(claim);
        async move { Ok((ask.token, scene.claim(&ask).await?)) }
    })
    .await?;
    let mut winners = Vec::new();
    for (token, answer) in answers {
        match answer {
            Claimed::Won(grant) => {
                ensure!(grant.token == token, "the winner has another's token");
                winners.push(grant);
            }
            Claimed::Busy(_) => {}
            other => bail!("a loser was told {other:?}"),
        }
    }
    ensure!(winners.len() == 1, "{} of {RACERS} won", winners.len());
    Ok(winners.remove(0))
}

/// Of many who claim a new key at once, one wins and the others find it busy.
pub(super) async fn p04_a_new_key_has_one_winner(scene: Scene) -> CheckVerdict {
    for _ in 0..ROUNDS {
        let claim = scene.fresh()?;
        let winner = one_wins(&scene, &claim).await?;
        let record = scene.record(&claim.identity).await?;
        ensure!(
            record.is_owned_by(winner.fence, winner.token),
            "the record is another's"
        );
    }
    Ok(())
}

/// So with a released key: each round's winner releases it for the next.
pub(super) async fn p04_a_released_key_has_one_winner(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    for _ in 0..ROUNDS {
        let winner = one_wins(&scene, &claim).await?;
        scene.settled(&winner, &Settlement::Release).await?;
    }
    Ok(())
}

/// So with a deleted key.
pub(super) async fn p04_a_deleted_key_has_one_winner(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    for _ in 0..ROUNDS {
        one_wins(&scene, &claim).await?;
        scene.store().delete(&claim.identity).await?;
    }
    Ok(())
}

/// So with a key whose record has expired.
pub(super) async fn p04_an_expired_key_has_one_winner(scene: Scene) -> CheckVerdict {
    let mut claims = Vec::new();
    for _ in 0..LAPSED_ROUNDS {
        let claim = scene.fresh_on(scene.expiring(CrashPolicy::Hold)?)?;
        let lease = scene.won(&claim).await?;
        scene.settled(&lease, &complete("the answer")).await?;
        claims.push(claim);
    }
    scene.expire().await;
    for claim in claims {
        let lasting = scene.lasting(CrashPolicy::Hold)?;
        one_wins(&scene, &super::make::under(&claim, lasting)).await?;
    }
    Ok(())
}

/// So with a lapsed lease: one takes over.
pub(super) async fn p04_a_lapsed_lease_has_one_winner(scene: Scene) -> CheckVerdict {
    let mut claims = Vec::new();
    for _ in 0..LAPSED_ROUNDS {
        let claim = scene.fresh_on(scene.lapsing(CrashPolicy::Takeover)?)?;
        scene.won(&claim).await?;
        claims.push(claim);
    }
    scene.lapse().await;
    for claim in claims {
        let lasting = scene.lasting(CrashPolicy::Takeover)?;
        let winner = one_wins(&scene, &super::make::under(&claim, lasting)).await?;
        ensure!(
            winner.attempt == 2,
            "the takeover is attempt {}",
            winner.attempt
        );
    }
    Ok(())
}

/// Under `hold` nobody wins a lapsed lease, and all are told of the same doubt.
pub(super) async fn p04_a_held_lease_has_no_winner(scene: Scene) -> CheckVerdict {
    let mut leases = Vec::new();
    for _ in 0..LAPSED_ROUNDS {
        let claim = scene.fresh_on(scene.lapsing(CrashPolicy::Hold)?)?;
        leases.push((scene.won(&claim).await?, claim));
    }
    scene.lapse().await;
    for (lease, claim) in leases {
        let doubts = race(&scene, |scene, _| {
            let ask = again(&claim);
            async move {
                match decided(&scene, &ask).await? {
                    Claimed::InDoubt(doubt) => Ok(doubt),
                    other => bail!("a caller was told {other:?}"),
                }
            }
        })
        .await?;
        let same = doubts.iter().all(|doubt| doubt.fence == lease.fence);
        ensure!(same, "the doubts name fences other than {}", lease.fence);
    }
    Ok(())
}

/// One claim sent many times at once is one claim: all its copies win the same lease.
pub(super) async fn p06_copies_of_a_claim_win_one_lease(scene: Scene) -> CheckVerdict {
    for _ in 0..ROUNDS {
        let claim = scene.fresh()?;
        let grants = race(&scene, |scene, _| {
            let copy = claim.clone();
            async move {
                match decided(&scene, &copy).await? {
                    Claimed::Won(grant) => Ok(grant),
                    other => bail!("a copy was told {other:?}"),
                }
            }
        })
        .await?;
        let first = &grants[0];
        ensure!(
            grants.iter().all(|grant| grant == first),
            "copies won different leases"
        );
    }
    Ok(())
}

/// Claim, run, settle; whoever loses asks again until the answer is there. The effect runs once,
/// and everybody gets its answer.
pub(super) async fn p12_racing_callers_run_one_effect(scene: Scene) -> CheckVerdict {
    for round in 0..ROUNDS {
        let claim = scene.fresh()?;
        let effects = Arc::new(AtomicUsize::new(0));
        let answers = race(&scene, |scene, index| {
            let (ask, effects) = (again(&claim), Arc::clone(&effects));
            async move { ask_until_answered(&scene, &ask, index, &effects).await }
        })
        .await?;
        let ran = effects.load(Ordering::SeqCst);
        ensure!(ran == 1, "round {round}: the effect ran {ran} times");
        let first = &answers[0];
        ensure!(
            answers.iter().all(|answer| answer == first),
            "round {round}: answers differ"
        );
    }
    Ok(())
}

/// The same where the first runs release the key instead: as many effects as releases, and one
/// more.
pub(super) async fn p12_each_release_runs_one_more_effect(scene: Scene) -> CheckVerdict {
    const RELEASES: usize = 5;
    let claim = scene.fresh()?;
    let effects = Arc::new(AtomicUsize::new(0));
    race(&scene, |scene, index| {
        let (claim, effects) = (claim.clone(), Arc::clone(&effects));
        async move {
            for _ in 0..PATIENCE {
                match scene.claim(&again(&claim)).await? {
                    Claimed::Won(lease) if effects.fetch_add(1, Ordering::SeqCst) < RELEASES => {
                        scene.settled(&lease, &Settlement::Release).await?;
                    }
                    Claimed::Won(lease) => {
                        scene.settled(&lease, &complete(&index.to_string())).await?;
                    }
                    Claimed::Replay(_) => return Ok(()),
                    Claimed::Busy(_) => pause(&scene, &claim).await,
                    other => bail!("a caller was told {other:?}"),
                }
            }
            bail!("a caller asked {PATIENCE} times and got no answer")
        }
    })
    .await?;
    let ran = effects.load(Ordering::SeqCst);
    ensure!(ran == RELEASES + 1, "the effect ran {ran} times");
    Ok(())
}

async fn ask_until_answered(
    scene: &Scene,
    ask: &Claim,
    index: usize,
    effects: &AtomicUsize,
) -> anyhow::Result<Arc<Answer>> {
    for _ in 0..PATIENCE {
        match scene.claim(ask).await? {
            Claimed::Won(lease) => {
                effects.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                let body = format!("ran by {index}");
                scene.settled(&lease, &complete(&body)).await?;
                return Ok(answer(&body));
            }
            Claimed::Replay(replay) => return Ok(replay.answer),
            Claimed::Busy(_) => pause(scene, ask).await,
            other => bail!("a caller was told {other:?}"),
        }
    }
    bail!("a caller asked {PATIENCE} times and got no answer")
}

/// Sends a claim, again where others overtook it (P4): they write the same record at the same time.
pub(super) async fn decided(scene: &Scene, ask: &Claim) -> anyhow::Result<Claimed> {
    for _ in 0..PATIENCE {
        let answer = scene.claim(ask).await?;
        if answer != protocol::overtaken() {
            return Ok(answer);
        }
        pause(scene, ask).await;
    }
    bail!("a caller was overtaken {PATIENCE} times")
}

/// Waits for a wake-up where there is one, a moment where not: no store is asked in a hot loop.
async fn pause(scene: &Scene, claim: &Claim) {
    let wakeup = scene.store().watch(&claim.identity);
    drop(tokio::time::timeout(Duration::from_millis(5), wakeup).await);
}
