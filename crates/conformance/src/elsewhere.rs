//! P44: bodies that are stored outside of their records (blobs).

use std::sync::Arc;

use anyhow::ensure;
use bytes::Bytes;
use semel_core::{Answer, AnswerBody, Settlement};

use super::listing::{everything, walk};
use super::make::again;
use super::{CheckVerdict, Scene};

/// A body that is kept beside the record is known by its length and its whole digest. Who looks for
/// it and finds nothing says that it was not kept.
pub(super) async fn p44_a_body_kept_elsewhere_is_named_exactly(scene: Scene) -> CheckVerdict {
    for (bytes, first) in [(1, 0), (u64::MAX, 0xff), (64 << 10, 7)] {
        let mut digest = *b"a digest that no body ever has..";
        digest[0] = first;
        let named = AnswerBody::External { bytes, digest };
        let answer = Answer {
            head: Bytes::from_static(b"200 ok"),
            body: named.clone(),
        };
        let claim = scene.fresh()?;
        let lease = scene.won(&claim).await?;
        let settlement = Settlement::Complete(Arc::new(answer.clone()));
        scene.settled(&lease, &settlement).await?;
        let mut all = walk(&scene, &everything(&scene)).await?;
        let listed = all.remove(&claim.identity).and_then(|record| record.answer);
        ensure!(
            listed.as_deref() == Some(&answer),
            "{answer:?} is listed as {listed:?}"
        );
        let replayed = &scene.replayed(&again(&claim)).await?.answer.body;
        ensure!(
            [&named, &AnswerBody::Omitted { bytes }].contains(&replayed),
            "{named:?} is replayed as {replayed:?}"
        );
    }
    Ok(())
}
