//! P50 and P51: answers in another form than the effect gave them.

use anyhow::ensure;
use bytes::Bytes;
use semel_core::{Answer, AnswerBody, CrashPolicy, Settlement};

use super::make::again;
use super::{CheckVerdict, Scene};

fn complete(head: &[u8], body: AnswerBody) -> Settlement {
    let head = Bytes::copy_from_slice(head);
    Settlement::Complete(Answer { head, body }.into())
}

/// The record of an answer expires by itself. The key's record keeps its mark, and goes on to
/// prevent a second run.
pub(super) async fn p50_an_answer_of_its_own_expires_alone(scene: Scene) -> CheckVerdict {
    let answer = scene.fresh_on(scene.expiring_late(CrashPolicy::Takeover)?)?;
    let lease = scene.won(&answer).await?;
    let text = AnswerBody::Kept(Bytes::from_static(b"the answer"));
    scene.settled(&lease, &complete(b"head", text)).await?;

    let key = scene.fresh()?;
    let lease = scene.won(&key).await?;
    let mut head = b"\xf5apart\x00\x01".to_vec();
    head.extend_from_slice(answer.fingerprint.as_bytes());
    let mark = complete(&head, AnswerBody::Omitted { bytes: 10 });
    scene.settled(&lease, &mark).await?;
    scene.replayed(&again(&answer)).await?;

    scene.expire_late().await;
    ensure!(
        scene.read(&answer.identity).await?.is_none(),
        "the answer outlived its retention"
    );
    let replay = scene.replayed(&again(&key)).await?;
    ensure!(replay.answer.head == head, "the mark was changed");
    ensure!(
        replay.answer.body == AnswerBody::Omitted { bytes: 10 },
        "the mark's body was changed"
    );
    // The owner may send its settlement again.
    scene.settled(&lease, &mark).await
}

/// Compressed bodies are no text, and neither are their heads: every byte comes back. The mark has
/// a version that no store knows, because a store that compresses reads its own.
pub(super) async fn p51_a_compressed_body_comes_back_byte_for_byte(scene: Scene) -> CheckVerdict {
    let every_byte: Vec<u8> = (0..=u8::MAX).collect();
    let head = [b"\xf5packed\xff\x00\x10\x00\x00", &every_byte[..]].concat();
    let body = AnswerBody::Kept([b"\xf5", &every_byte[..]].concat().into());
    let claim = scene.fresh()?;
    let lease = scene.won(&claim).await?;
    let settlement = complete(&head, body.clone());
    scene.settled(&lease, &settlement).await?;
    let replay = scene.replayed(&again(&claim)).await?;
    ensure!(replay.answer.head == head, "the head was changed");
    ensure!(replay.answer.body == body, "the body was changed");
    scene.settled(&lease, &settlement).await
}
