//! P28: a call with an unknown outcome may be sent again, and does no harm.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use anyhow::{bail, ensure};
use bytes::Bytes;
use semel_core::{Claimed, CrashPolicy, Renewed, Resolution, Settled, Settlement};

use super::make::{again, answer, complete};
use super::races::decided;
use super::{CheckVerdict, Scene};

/// How often a call is polled before it is dropped: not at all, once, and so often that some of it
/// is likely under way.
const POLLS: [usize; 4] = [0, 1, 2, 5];

/// Polls `call` at most `times` times, then drops it.
async fn give_up<T>(call: impl Future<Output = T>, times: usize) {
    let mut call = pin!(call);
    for _ in 0..times {
        let ready = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready())).await;
        if ready {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// A claim that was given up is sent again and wins, once the first copy is decided (P4); to
/// anybody else the key is then busy.
pub(super) async fn p28_a_dropped_claim_is_sent_again(scene: Scene) -> CheckVerdict {
    for times in POLLS {
        let claim = scene.fresh()?;
        give_up(scene.store().claim(&claim), times).await;
        let Claimed::Won(lease) = decided(&scene, &claim).await? else {
            bail!("not won after {times} polls");
        };
        ensure!(
            lease.attempt == 1,
            "attempt {} after {times} polls",
            lease.attempt
        );
        scene.busy(&again(&claim)).await?;
        scene.settled(&lease, &complete("the answer")).await?;
        scene.replayed(&claim).await?;
    }
    Ok(())
}

/// A claim that was given up leaves the key either free or busy, and a lapse later free to take.
pub(super) async fn p28_a_dropped_claim_blocks_nobody(scene: Scene) -> CheckVerdict {
    let mut keys = Vec::new();
    for times in POLLS {
        let claim = scene.fresh_on(scene.lapsing(CrashPolicy::Takeover)?)?;
        give_up(scene.store().claim(&claim), times).await;
        let answer = scene.claim(&again(&claim)).await?;
        let fair = matches!(answer, Claimed::Won(_) | Claimed::Busy(_));
        ensure!(fair, "after {times} polls: {answer:?}");
        keys.push(claim);
    }
    scene.lapse().await;
    for claim in keys {
        scene.won(&again(&claim)).await?;
    }
    Ok(())
}

/// A settlement that was given up is sent again and is done, with one answer.
pub(super) async fn p28_a_dropped_settlement_is_sent_again(scene: Scene) -> CheckVerdict {
    for times in POLLS {
        let claim = scene.fresh()?;
        let lease = scene.won(&claim).await?;
        let settlement = complete("the answer");
        give_up(scene.store().settle(&lease, &settlement), times).await;
        let settled = scene.settle(&lease, &settlement).await?;
        ensure!(settled == Settled::Done, "after {times} polls: {settled:?}");
        let replay = scene.replayed(&again(&claim)).await?;
        ensure!(
            replay.answer == answer("the answer"),
            "replayed {:?}",
            replay.answer
        );
    }
    Ok(())
}

/// So is a renewal, and a resolution.
pub(super) async fn p28_a_dropped_renewal_is_sent_again(scene: Scene) -> CheckVerdict {
    for times in POLLS {
        let lease = scene.won(&scene.fresh()?).await?;
        let checkpoint = Bytes::from_static(b"progress");
        give_up(scene.store().renew(&lease, Some(&checkpoint)), times).await;
        let renewed = scene.renew(&lease, Some(&checkpoint)).await?;
        ensure!(renewed == Renewed::Held, "after {times} polls: {renewed:?}");
        scene.settled(&lease, &Settlement::Doubt).await?;
        let (identity, fence) = (&lease.identity, lease.fence);
        give_up(
            scene.store().resolve(identity, fence, &Resolution::Release),
            times,
        )
        .await;
        scene
            .resolved(identity, fence, &Resolution::Release)
            .await?;
    }
    Ok(())
}

/// A reply that nobody waits for any more is never given to the next call.
pub(super) async fn p28_a_dropped_call_answers_no_other(scene: Scene) -> CheckVerdict {
    let mut keys = Vec::new();
    for index in 0..4 {
        let claim = scene.fresh()?;
        let lease = scene.won(&claim).await?;
        let body = format!("answer {index}");
        scene.settled(&lease, &complete(&body)).await?;
        keys.push((claim, body));
    }
    for round in 0..40 {
        let (given_up, _) = &keys[round % keys.len()];
        let (asked, body) = &keys[(round + 1) % keys.len()];
        let (first, second) = (again(given_up), again(asked));
        give_up(scene.store().claim(&first), POLLS[round % POLLS.len()]).await;
        give_up(
            scene.store().read(&given_up.identity),
            POLLS[round / 4 % POLLS.len()],
        )
        .await;
        let replay = scene.replayed(&second).await?;
        ensure!(
            replay.answer == answer(body),
            "round {round}: another call's answer"
        );
        let record = scene.record(&asked.identity).await?;
        ensure!(
            record.belongs_to(&asked.identity),
            "round {round}: another call's record"
        );
    }
    Ok(())
}
