//! P46: records that are encrypted with a key which the claimant doesn't have.

use anyhow::{bail, ensure};
use bytes::Bytes;
use semel_core::record::{FIRST_DATA_KEY, SEALED_HEADER_BYTES, SEALED_TAG_BYTES, SealedHeader};
use semel_core::{
    Answer, AnswerBody, Certainty, Claim, CrashPolicy, Grant, Settlement, StoreErrorKind,
};

use super::make::{again, complete};
use super::{CheckVerdict, Scene};

/// A field that looks encrypted. Nobody has this key.
fn sealed(lease: &Grant) -> Bytes {
    let header = SealedHeader {
        total_bytes: u32::try_from(SEALED_HEADER_BYTES + SEALED_TAG_BYTES).unwrap_or(0),
        key_id: FIRST_DATA_KEY - 1,
        fence: lease.fence,
    };
    let mut field = header.to_bytes().to_vec();
    field.extend([0xa5; SEALED_TAG_BYTES]);
    field.into()
}

async fn is_refused(scene: &Scene, claim: &Claim) -> CheckVerdict {
    let before = scene.read(&claim.identity).await?;
    ensure!(before.is_some(), "the record is gone");
    for ask in [again(claim), again(claim)] {
        match scene.store().claim(&ask).await {
            Ok(answer) => bail!("without the key the claim was answered {answer:?}"),
            Err(error) => {
                ensure!(error.kind == StoreErrorKind::Record, "{error:?}");
                ensure!(error.certainty == Certainty::Definite, "{error:?}");
            }
        }
    }
    scene.unchanged(&claim.identity, &before).await
}

/// Whatever state an encrypted record is in, a claimant without its key neither takes it over nor
/// is answered from it.
pub(super) async fn p46_a_claim_without_the_key_changes_nothing(scene: Scene) -> CheckVerdict {
    if scene.subject().encrypts() {
        // What is written through such a store has its own key.
        return Ok(());
    }
    for crash in [CrashPolicy::Takeover, CrashPolicy::Hold] {
        let claim = scene.fresh_on(scene.lapsing(crash)?)?;
        let lease = scene.won(&claim).await?;
        scene.held(&lease, Some(&sealed(&lease))).await?;
        scene.lapse().await;
        is_refused(&scene, &claim).await?;
        scene.settled(&lease, &Settlement::Doubt).await?;
        is_refused(&scene, &claim).await?;
    }
    let claim = scene.fresh()?;
    let lease = scene.won(&claim).await?;
    let answer = Answer {
        head: sealed(&lease),
        body: AnswerBody::Kept(Bytes::from_static(&[0x5a; SEALED_TAG_BYTES])),
    };
    let settlement = Settlement::Complete(answer.into());
    scene.settled(&lease, &settlement).await?;
    is_refused(&scene, &claim).await?;
    // The owner may send its settlement again, and nobody settles otherwise.
    scene.settled(&lease, &settlement).await?;
    scene.settle_is_lost(&lease, &complete("another")).await?;
    // What is gone is free for everybody.
    ensure!(scene.store().delete(&claim.identity).await?, "not deleted");
    let next = scene.won(&again(&claim)).await?;
    ensure!(next.fence > lease.fence, "the fence went back");
    Ok(())
}
