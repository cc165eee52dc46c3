//! P5, P6, P8: which claim wins, and which has to wait.

use anyhow::ensure;
use bytes::Bytes;
use semel_core::{Claim, CrashPolicy, Record, Settlement, State};

use super::make::{again, answer, complete, other_payload, settlements, under};
use super::{CheckVerdict, Scene};

/// The first claim of a key wins, and the record says on which terms.
pub(super) async fn p05_absent_is_won(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    ensure!(
        scene.read(&claim.identity).await?.is_none(),
        "a record was there before the claim"
    );
    let grant = scene.won(&claim).await?;
    ensure!(
        grant.identity == claim.identity,
        "the grant names another key"
    );
    ensure!(
        grant.token == claim.token,
        "the grant has another token than the claim"
    );
    ensure!(
        grant.attempt == 1,
        "the first run is attempt {}",
        grant.attempt
    );
    ensure!(grant.checkpoint.is_empty(), "a new key has a checkpoint");
    ensure!(
        grant.lease == claim.terms.lease(),
        "granted {:?}",
        grant.lease
    );
    ensure!(
        grant.crash == claim.terms.crash(),
        "granted under {:?}",
        grant.crash
    );
    let record = scene.record(&claim.identity).await?;
    let expected = Record {
        seal: claim.identity.seal(),
        state: State::Running,
        crash: claim.terms.crash(),
        fence: grant.fence,
        token: claim.token,
        attempt: 1,
        max_attempts: claim.terms.max_attempts(),
        fingerprint: claim.fingerprint,
        secret_id: claim.secret_id,
        lease: claim.terms.lease(),
        retention: claim.terms.retention(),
        created_at: record.written_at,
        written_at: record.written_at,
        namespace: claim.namespace,
        hint: claim.hint,
        checkpoint: Bytes::new(),
        answer: None,
    };
    ensure!(
        record == expected,
        "expected {expected:?}, found {record:?}"
    );
    Ok(())
}

/// A released key is free, and its next run is a first attempt.
pub(super) async fn p05_released_is_won(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    let first = scene.won(&claim).await?;
    scene.held(&first, Some(b"progress")).await?;
    scene.settled(&first, &Settlement::Release).await?;
    let second = scene.won(&again(&claim)).await?;
    ensure!(
        second.attempt == 1,
        "the run after a release is attempt {}",
        second.attempt
    );
    ensure!(
        second.checkpoint.is_empty(),
        "the checkpoint of a released run came along"
    );
    scene.busy(&again(&claim)).await.map(drop)
}

/// A released key forgets its payload too: nothing happened under it.
pub(super) async fn p05_released_is_won_with_another_payload(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    let first = scene.won(&claim).await?;
    scene.settled(&first, &Settlement::Release).await?;
    let other = other_payload(&claim);
    scene.won(&other).await?;
    let record = scene.record(&claim.identity).await?;
    ensure!(
        record.fingerprint == other.fingerprint,
        "the record kept the old payload"
    );
    scene.mismatch(&claim).await
}

/// Whoever released a key may claim it anew, even with the same token, and gets a new lease.
pub(super) async fn p05_released_is_won_by_the_same_token(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    let first = scene.won(&claim).await?;
    scene.settled(&first, &Settlement::Release).await?;
    let second = scene.won(&claim).await?;
    ensure!(
        second.fence > first.fence,
        "{} follows {}",
        second.fence,
        first.fence
    );
    scene
        .settle_is_lost(&first, &complete("by the first lease"))
        .await
}

/// An expired record counts as absent for a claim, whatever its state was and whatever its payload.
pub(super) async fn p05_expired_is_won(scene: Scene) -> CheckVerdict {
    let terms = scene.expiring(CrashPolicy::Hold)?;
    let running = scene.fresh_on(terms)?;
    let lease = scene.won(&running).await?;
    scene.held(&lease, Some(b"progress")).await?;
    let mut expired = vec![running];
    for settlement in settlements() {
        let claim = scene.fresh_on(terms)?;
        let lease = scene.won(&claim).await?;
        scene.settled(&lease, &settlement).await?;
        expired.push(claim);
    }
    scene.expire().await;
    for claim in expired {
        let grant = scene.won(&other_payload(&claim)).await?;
        ensure!(
            grant.attempt == 1,
            "the run after expiry is attempt {}",
            grant.attempt
        );
        ensure!(
            grant.checkpoint.is_empty(),
            "the checkpoint of an expired run came along"
        );
        let record = scene.record(&claim.identity).await?;
        ensure!(
            record.answer.is_none(),
            "the answer of an expired run came along"
        );
        ensure!(
            record.created_at == record.written_at,
            "the new record is older than its claim"
        );
    }
    Ok(())
}

/// A claim sent again after a lost reply wins the lease that it won before.
pub(super) async fn p06_resent_claim_wins_the_same_lease(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    let first = scene.won(&claim).await?;
    let before = scene.read(&claim.identity).await?;
    for _ in 0..3 {
        let resent = scene.won(&claim).await?;
        ensure!(resent == first, "first {first:?}, then {resent:?}");
    }
    scene.unchanged(&claim.identity, &before).await
}

/// The same holds after the lease has lapsed, under either policy: it is still that owner's.
pub(super) async fn p06_resent_claim_after_lapse_wins_the_same_lease(scene: Scene) -> CheckVerdict {
    let mut leases = Vec::new();
    for crash in [CrashPolicy::Takeover, CrashPolicy::Hold] {
        let claim = scene.fresh_on(scene.lapsing(crash)?)?;
        leases.push((scene.won(&claim).await?, claim));
    }
    scene.lapse().await;
    for (first, claim) in leases {
        let before = scene.read(&claim.identity).await?;
        let resent = scene.won(&claim).await?;
        ensure!(resent == first, "first {first:?}, then {resent:?}");
        scene.unchanged(&claim.identity, &before).await?;
    }
    Ok(())
}

/// The right token with another payload is a mismatch all the same.
pub(super) async fn p06_resent_claim_with_another_payload_is_a_mismatch(
    scene: Scene,
) -> CheckVerdict {
    let claim = scene.fresh()?;
    scene.won(&claim).await?;
    scene
        .mismatch(&Claim {
            token: claim.token,
            ..other_payload(&claim)
        })
        .await
}

/// Once somebody took over, the old claim sent again is nobody's.
pub(super) async fn p06_resent_claim_after_takeover_is_busy(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh_on(scene.lapsing(CrashPolicy::Takeover)?)?;
    scene.won(&claim).await?;
    scene.lapse().await;
    let lasting = scene.lasting(CrashPolicy::Takeover)?;
    scene.won(&under(&claim, lasting)).await?;
    scene.busy(&claim).await.map(drop)
}

/// Everybody else is told that the key is busy, since when, and for how long at most.
pub(super) async fn p08_busy_while_the_lease_lives(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    scene.won(&claim).await?;
    let before = scene.read(&claim.identity).await?;
    for asker in [again(&claim), again(&claim)] {
        let busy = scene.busy(&asker).await?;
        ensure!(busy.attempt == 1, "busy with attempt {}", busy.attempt);
        ensure!(!busy.retry_after.is_zero(), "a live lease has no time left");
        ensure!(
            busy.retry_after <= claim.terms.lease(),
            "{:?} left",
            busy.retry_after
        );
    }
    scene.unchanged(&claim.identity, &before).await
}

/// A busy answer counts attempts, and the time since the very first.
pub(super) async fn p08_busy_counts_attempts(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh_on(scene.lapsing(CrashPolicy::Takeover)?)?;
    scene.won(&claim).await?;
    scene.lapse().await;
    let lasting = scene.lasting(CrashPolicy::Takeover)?;
    scene.won(&under(&claim, lasting)).await?;
    let busy = scene.busy(&again(&claim)).await?;
    ensure!(busy.attempt == 2, "busy with attempt {}", busy.attempt);
    ensure!(
        busy.since >= scene.spans().lease,
        "busy since {:?}",
        busy.since
    );
    Ok(())
}

/// A claim that says it is a retry is answered as any other, whatever it finds.
pub(super) async fn p04_a_retry_is_answered_alike(scene: Scene) -> CheckVerdict {
    let retry = |claim: &Claim| Claim {
        retry: true,
        ..again(claim)
    };
    let claim = Claim {
        retry: true,
        ..scene.fresh()?
    };
    let lease = scene.won(&claim).await?;
    ensure!(lease.attempt == 1, "attempt {}", lease.attempt);
    scene.busy(&retry(&claim)).await?;
    scene.mismatch(&retry(&other_payload(&claim))).await?;
    scene.settled(&lease, &Settlement::Doubt).await?;
    scene.in_doubt(&retry(&claim)).await?;
    scene.settled(&lease, &Settlement::Release).await?;
    let again = retry(&claim);
    let lease = scene.won(&again).await?;
    scene.settled(&lease, &complete("the answer")).await?;
    let replay = scene.replayed(&retry(&claim)).await?;
    ensure!(replay.answer == answer("the answer"), "another answer");
    Ok(())
}
