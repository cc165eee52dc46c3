//! P12 and P27: answers are replayed byte for byte, up to the limits.

use std::sync::Arc;

use anyhow::ensure;
use bytes::Bytes;
use semel_core::{Answer, AnswerBody, Claim, Record, Settlement, State};

use super::make::{again, answer, complete};
use super::{CheckVerdict, Scene};

async fn answered(scene: &Scene, answer: &Answer) -> anyhow::Result<Claim> {
    let claim = scene.fresh()?;
    let lease = scene.won(&claim).await?;
    scene
        .settled(&lease, &Settlement::Complete(Arc::new(answer.clone())))
        .await?;
    Ok(claim)
}

async fn comes_back(scene: &Scene, answer: &Answer) -> CheckVerdict {
    let claim = answered(scene, answer).await?;
    let replay = scene.replayed(&again(&claim)).await?;
    ensure!(
        *replay.answer == *answer,
        "kept {answer:?}, replayed {:?}",
        replay.answer
    );
    let record = scene.record(&claim.identity).await?;
    ensure!(
        record.answer.as_deref() == Some(answer),
        "kept {answer:?}, read {:?}",
        record.answer
    );
    Ok(())
}

/// Bytes that look random, in blocks that carry their number, so that a shift or a cut shows.
fn bytes(length: usize) -> Bytes {
    let word = |index: u64| index.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let block: Vec<u8> = (1..=512).flat_map(word).collect();
    let mut all = Vec::with_capacity(length + block.len());
    for number in 0_u64.. {
        if all.len() >= length {
            break;
        }
        all.extend_from_slice(&number.to_be_bytes());
        all.extend_from_slice(&block);
    }
    all.truncate(length);
    all.into()
}

/// A completed key is answered from its record, as often as asked, without changing it.
pub(super) async fn p12_completed_is_replayed(scene: Scene) -> CheckVerdict {
    let claim = answered(&scene, &answer("the answer")).await?;
    let record = scene.record(&claim.identity).await?;
    for _ in 0..3 {
        let replay = scene.replayed(&again(&claim)).await?;
        ensure!(
            replay.state == State::Completed,
            "replayed as {:?}",
            replay.state
        );
        ensure!(
            replay.answer == answer("the answer"),
            "replayed {:?}",
            replay.answer
        );
        ensure!(
            replay.requested_at == record.created_at,
            "requested {:?}",
            replay.requested_at
        );
        ensure!(
            replay.settled_at == record.written_at,
            "settled {:?}",
            replay.settled_at
        );
        ensure!(
            replay.expires_in <= record.retention,
            "expires in {:?}",
            replay.expires_in
        );
        ensure!(
            !replay.expires_in.is_zero(),
            "a live record expires at once"
        );
    }
    scene.unchanged(&claim.identity, &Some(record)).await
}

/// A final failure is kept and replayed like an answer.
pub(super) async fn p12_failed_is_replayed(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    let lease = scene.won(&claim).await?;
    scene
        .settled(&lease, &Settlement::Fail(answer("card declined")))
        .await?;
    for _ in 0..2 {
        let replay = scene.replayed(&again(&claim)).await?;
        ensure!(
            replay.state == State::Failed,
            "replayed as {:?}",
            replay.state
        );
        ensure!(
            replay.answer == answer("card declined"),
            "replayed {:?}",
            replay.answer
        );
    }
    Ok(())
}

/// The owner's own claim, sent again, is answered from the record too.
pub(super) async fn p12_the_owner_is_replayed_too(scene: Scene) -> CheckVerdict {
    let claim = answered(&scene, &answer("the answer")).await?;
    let replay = scene.replayed(&claim).await?;
    ensure!(
        replay.answer == answer("the answer"),
        "replayed {:?}",
        replay.answer
    );
    Ok(())
}

/// Another process sees the answer as soon as the settlement was acknowledged.
pub(super) async fn p12_another_process_is_replayed(scene: Scene) -> CheckVerdict {
    let elsewhere = scene.from_another_process();
    for round in 0..10 {
        let body = format!("answer {round}");
        let claim = answered(&scene, &answer(&body)).await?;
        let replay = elsewhere.replayed(&again(&claim)).await?;
        ensure!(
            replay.answer == answer(&body),
            "replayed {:?}",
            replay.answer
        );
        let (here, there) = (scene.read(&claim.identity), elsewhere.read(&claim.identity));
        let (here, there): (Option<Record>, Option<Record>) = (here.await?, there.await?);
        ensure!(here == there, "here {here:?}, there {there:?}");
    }
    Ok(())
}

/// Head and body are bytes: every value of a byte, zeros at the ends, text that looks like a
/// format.
pub(super) async fn p12_replay_is_byte_equal(scene: Scene) -> CheckVerdict {
    let every: Bytes = (0..=255).collect();
    let reverse: Bytes = (0..=255).rev().collect();
    comes_back(
        &scene,
        &Answer {
            head: every,
            body: AnswerBody::Kept(reverse),
        },
    )
    .await?;
    for text in [
        "\0",
        "'; --",
        "\r\n",
        "{\"a\":null}",
        "\\x00",
        "%s",
        " trailing ",
        "\u{feff}ß漢🧾",
    ] {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        comes_back(
            &scene,
            &Answer {
                head: bytes.clone(),
                body: AnswerBody::Kept(bytes),
            },
        )
        .await?;
    }
    Ok(())
}

/// The largest head, and a body of one mebibyte.
pub(super) async fn p27_a_full_head_and_a_mebibyte(scene: Scene) -> CheckVerdict {
    let head = bytes(Answer::MAX_HEAD_BYTES);
    let most = scene.store().capabilities().max_answer_bytes;
    let body = (1 << 20).min(most.saturating_sub(head.len()));
    comes_back(
        &scene,
        &Answer {
            head,
            body: AnswerBody::Kept(bytes(body)),
        },
    )
    .await
}

/// The largest answer that the store says it takes.
pub(super) async fn p27_the_largest_answer(scene: Scene) -> CheckVerdict {
    let most = scene.store().capabilities().max_answer_bytes;
    let hard = Answer::MAX_HEAD_BYTES + Answer::MAX_BODY_BYTES;
    ensure!(most > 0 && most <= hard, "{most} bytes are out of bounds");
    let head = bytes(Answer::MAX_HEAD_BYTES.min(most));
    let body = bytes(most - head.len());
    comes_back(
        &scene,
        &Answer {
            head,
            body: AnswerBody::Kept(body),
        },
    )
    .await
}

/// A body that was not kept is replayed as such, with its length, and the effect is not run again.
pub(super) async fn p27_an_omitted_body_stays_omitted(scene: Scene) -> CheckVerdict {
    for bytes in [0, 1, 17 << 20, u64::MAX] {
        let head = Bytes::from_static(b"200 ok");
        comes_back(
            &scene,
            &Answer {
                head,
                body: AnswerBody::Omitted { bytes },
            },
        )
        .await?;
    }
    Ok(())
}

/// An empty body is a body, and an empty head a head.
pub(super) async fn p27_an_empty_body_is_kept(scene: Scene) -> CheckVerdict {
    let empty = AnswerBody::Kept(Bytes::new());
    comes_back(
        &scene,
        &Answer {
            head: Bytes::new(),
            body: empty.clone(),
        },
    )
    .await?;
    comes_back(
        &scene,
        &Answer {
            head: bytes(1),
            body: empty,
        },
    )
    .await?;
    comes_back(
        &scene,
        &Answer {
            head: Bytes::new(),
            body: AnswerBody::Kept(bytes(1)),
        },
    )
    .await
}

/// The largest checkpoint survives, beside the largest head.
pub(super) async fn p27_the_largest_checkpoint(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    let lease = scene.won(&claim).await?;
    let checkpoint = bytes(Record::MAX_CHECKPOINT_BYTES);
    scene.held(&lease, Some(&checkpoint)).await?;
    let record = scene.record(&claim.identity).await?;
    ensure!(
        record.checkpoint == checkpoint,
        "{} bytes were kept",
        record.checkpoint.len()
    );
    scene.settled(&lease, &complete("the answer")).await?;
    scene.replayed(&again(&claim)).await.map(drop)
}
