//! P10 and P11: records in doubt, whose outcome is unknown.

use anyhow::ensure;
use bytes::Bytes;
use semel_core::{CrashPolicy, Record, Settlement, State};

use super::make::{again, complete};
use super::{CheckVerdict, Scene};

/// Under `hold`, the first claim after the lapse finds the doubt and writes it down.
pub(super) async fn p10_hold_is_in_doubt_after_lapse(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh_on(scene.lapsing(CrashPolicy::Hold)?)?;
    let lease = scene.won(&claim).await?;
    scene.held(&lease, Some(b"charge sent")).await?;
    let before = scene.record(&claim.identity).await?;
    scene.lapse().await;
    let doubt = scene.in_doubt(&again(&claim)).await?;
    ensure!(
        doubt.fence == lease.fence,
        "the doubt names fence {}",
        doubt.fence
    );
    ensure!(
        doubt.attempt == 1,
        "the doubt names attempt {}",
        doubt.attempt
    );
    ensure!(
        doubt.checkpoint == "charge sent",
        "the doubt shows {:?}",
        doubt.checkpoint
    );
    let after = scene.record(&claim.identity).await?;
    ensure!(
        after.written_at >= before.lease_end(),
        "in doubt before the lease ended"
    );
    let expected = Record {
        state: State::InDoubt,
        written_at: after.written_at,
        ..before
    };
    ensure!(after == expected, "expected {expected:?}, found {after:?}");
    Ok(())
}

/// Until somebody claims, a lapsed lease stays as it was: reading decides nothing.
pub(super) async fn p10_reading_puts_nothing_in_doubt(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh_on(scene.lapsing(CrashPolicy::Hold)?)?;
    let lease = scene.won(&claim).await?;
    let before = scene.read(&claim.identity).await?;
    scene.lapse().await;
    scene.unchanged(&claim.identity, &before).await?;
    scene.held(&lease, None).await
}

/// Under `takeover`, the attempts are counted, and when they are used up the key is in doubt.
pub(super) async fn p10_attempts_used_up(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh_on(scene.lapsing_after(CrashPolicy::Takeover, 3)?)?;
    for attempt in 1..=3 {
        let lease = scene.won(&again(&claim)).await?;
        ensure!(
            lease.attempt == attempt,
            "run {attempt} is attempt {}",
            lease.attempt
        );
        scene.lapse().await;
    }
    let doubt = scene.in_doubt(&again(&claim)).await?;
    ensure!(
        doubt.attempt == 3,
        "in doubt after attempt {}",
        doubt.attempt
    );
    let record = scene.record(&claim.identity).await?;
    ensure!(
        record.state == State::InDoubt,
        "the record is {:?}",
        record.state
    );
    Ok(())
}

/// A doubt stays one, however often and however late it is asked about.
pub(super) async fn p11_in_doubt_stays_in_doubt(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh_on(scene.lapsing(CrashPolicy::Takeover)?)?;
    let lease = scene.won(&claim).await?;
    scene.held(&lease, Some(b"progress")).await?;
    scene.settled(&lease, &Settlement::Doubt).await?;
    let before = scene.read(&claim.identity).await?;
    for round in 0..3 {
        let doubt = scene.in_doubt(&again(&claim)).await?;
        ensure!(
            doubt.fence == lease.fence,
            "round {round}: the doubt names fence {}",
            doubt.fence
        );
        ensure!(
            doubt.checkpoint == "progress",
            "the doubt shows {:?}",
            doubt.checkpoint
        );
        scene.unchanged(&claim.identity, &before).await?;
        if round == 0 {
            scene.lapse().await;
        }
    }
    Ok(())
}

/// The owner's own claim, sent again, finds the doubt like any other.
pub(super) async fn p11_the_owner_finds_the_doubt_too(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    let lease = scene.won(&claim).await?;
    scene.settled(&lease, &Settlement::Doubt).await?;
    let doubt = scene.in_doubt(&claim).await?;
    ensure!(
        doubt.fence == lease.fence,
        "the doubt names fence {}",
        doubt.fence
    );
    ensure!(
        doubt.checkpoint == Bytes::new(),
        "the doubt shows {:?}",
        doubt.checkpoint
    );
    scene.settled(&lease, &complete("it did happen")).await
}
