//! P43: records that are copied from another store.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use semel_core::{
    Claim, Claimed, CrashPolicy, Fence, Record, Restored, Settlement, State, protocol,
};

use super::make::{again, complete, settlements, token};
use super::races::{ROUNDS, race};
use super::{CheckVerdict, Scene};

/// The record of a claim that was won and settled so, as it would come from another store: here it
/// is gone.
async fn taken_away(scene: &Scene, claim: &Claim, how: &Settlement) -> anyhow::Result<Record> {
    let grant = scene.won(claim).await?;
    scene.settled(&grant, how).await?;
    let record = scene.record(&claim.identity).await?;
    ensure!(
        scene.store().delete(&claim.identity).await?,
        "was not there"
    );
    Ok(record)
}

async fn restore(scene: &Scene, claim: &Claim, record: &Record) -> anyhow::Result<Restored> {
    Ok(scene.store().restore(&claim.identity, record).await?)
}

async fn written(scene: &Scene, claim: &Claim, record: &Record) -> CheckVerdict {
    let restored = restore(scene, claim, record).await?;
    ensure!(restored == Restored::Written, "it was not written");
    Ok(())
}

/// Whatever its state, it is read as it was, and a claim is answered from it.
pub(super) async fn p43_a_restored_record_is_as_it_was(scene: Scene) -> CheckVerdict {
    for settlement in settlements() {
        let claim = scene.fresh()?;
        let record = taken_away(&scene, &claim, &settlement).await?;
        // Time has passed since, which must not show.
        scene.pass(Duration::from_millis(5)).await;
        written(&scene, &claim, &record).await?;
        let found = scene.record(&claim.identity).await?;
        ensure!(found == record, "{found:?} was {record:?}");
        let answer = scene.claim(&again(&claim)).await?;
        let fits = match (&settlement, &answer) {
            (Settlement::Complete(kept) | Settlement::Fail(kept), Claimed::Replay(replay)) => {
                replay.answer == *kept && replay.requested_at == record.created_at
            }
            (Settlement::Doubt, Claimed::InDoubt(doubt)) => doubt.fence == record.fence,
            (Settlement::Release, Claimed::Won(grant)) => grant.fence > record.fence,
            _ => false,
        };
        ensure!(fits, "{settlement:?} is told as {answer:?}");
    }
    Ok(())
}

/// A record that runs, is done or is in doubt is not replaced, and a lease on it goes on.
pub(super) async fn p43_what_is_there_is_kept(scene: Scene) -> CheckVerdict {
    for settlement in settlements() {
        if settlement == Settlement::Release {
            continue;
        }
        let claim = scene.fresh()?;
        let record = taken_away(&scene, &claim, &complete("from elsewhere")).await?;
        let owner = scene.won(&again(&claim)).await?;
        ensure!(restore(&scene, &claim, &record).await? == Restored::Kept);
        scene.held(&owner, None).await?;
        scene.settled(&owner, &settlement).await?;
        let before = scene.record(&claim.identity).await?;
        ensure!(restore(&scene, &claim, &record).await? == Restored::Kept);
        let found = scene.record(&claim.identity).await?;
        ensure!(found == before, "{before:?} has become {found:?}");
    }
    Ok(())
}

/// A released record gives way, and its fence stays if it is the larger one.
pub(super) async fn p43_a_released_record_is_replaced(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    let record = taken_away(&scene, &claim, &complete("from elsewhere")).await?;
    let owner = scene.won(&again(&claim)).await?;
    scene.settled(&owner, &Settlement::Release).await?;
    written(&scene, &claim, &record).await?;
    let found = scene.record(&claim.identity).await?;
    ensure!(found.state == State::Completed, "it is {:?}", found.state);
    ensure!(found.fence == owner.fence, "the fence went back");
    ensure!(found.token == record.token && found.answer == record.answer);
    Ok(())
}

/// What has expired stays absent.
pub(super) async fn p43_the_expired_is_not_restored(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh_on(scene.expiring(CrashPolicy::Takeover)?)?;
    let record = taken_away(&scene, &claim, &complete("long ago")).await?;
    scene.expire().await;
    ensure!(restore(&scene, &claim, &record).await? == Restored::Kept);
    scene.won(&again(&claim)).await?;
    Ok(())
}

/// Its retention goes on; it does not start over.
pub(super) async fn p43_a_restored_record_expires_when_it_would_have(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh_on(scene.expiring_late(CrashPolicy::Takeover)?)?;
    let record = taken_away(&scene, &claim, &complete("a while ago")).await?;
    let half = scene.late_retention() / 2;
    scene.pass(half).await;
    written(&scene, &claim, &record).await?;
    scene.record(&claim.identity).await?;
    scene.pass(half + scene.spans().grace).await;
    let found = scene.store().read(&claim.identity).await?;
    ensure!(found.is_none(), "it lives on");
    scene.won(&again(&claim)).await?;
    Ok(())
}

/// Sent again after a lost reply, it is written; another record is not.
pub(super) async fn p43_a_resent_record_is_written(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    let record = taken_away(&scene, &claim, &complete("from elsewhere")).await?;
    for _ in 0..3 {
        written(&scene, &claim, &record).await?;
    }
    let other = Record {
        token: token(),
        fence: Fence(record.fence.0 + 1),
        ..record
    };
    ensure!(restore(&scene, &claim, &other).await? == Restored::Kept);
    Ok(())
}

/// Either the record was first, and every claim is a replay, or a claim was, and the record stays
/// out.
pub(super) async fn p43_a_record_and_claims_have_one_winner(scene: Scene) -> CheckVerdict {
    for _ in 0..ROUNDS {
        let claim = scene.fresh()?;
        let record = taken_away(&scene, &claim, &complete("from elsewhere")).await?;
        let results = race(&scene, |scene, index| {
            let (ask, record) = (again(&claim), record.clone());
            async move {
                if index % 3 == 0 {
                    let restored = restore(&scene, &ask, &record).await?;
                    return Ok((Some(restored), None));
                }
                Ok((None, Some(scene.claim(&ask).await?)))
            }
        })
        .await?;
        let restored: Vec<_> = results
            .iter()
            .filter_map(|(restored, _)| *restored)
            .collect();
        let first = *restored.first().context("nobody restored")?;
        ensure!(restored.iter().all(|restored| *restored == first));
        let mut winners = 0;
        for answer in results.iter().filter_map(|(_, answer)| answer.as_ref()) {
            match (answer, first) {
                (Claimed::Won(_), _) => winners += 1,
                (Claimed::Busy(_), Restored::Kept) | (Claimed::Replay(_), Restored::Written) => {}
                // The record was being written for as long as the claim was tried (P4).
                (busy, Restored::Written) if *busy == protocol::overtaken() => {
                    let later = scene.claim(&again(&claim)).await?;
                    ensure!(matches!(later, Claimed::Replay(_)), "then told {later:?}");
                }
                (other, _) => bail!("{first:?}, and a claim is told {other:?}"),
            }
        }
        let expected = usize::from(first == Restored::Kept);
        ensure!(winners == expected, "{first:?}, and {winners} won");
    }
    Ok(())
}
