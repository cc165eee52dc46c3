//! The health probe at start: tests that the server checks conditional writes atomically.
//!
//! Two known servers with an S3 API don't: one ignores the conditions, and the other checks before
//! it writes, so that several callers win at once.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use object_store::UpdateVersion;
use object_store::path::Path;
use semel_core::env::SystemEntropy;
use semel_core::store::StoreResult;
use semel_core::{Entropy as _, StoreError};

use super::error::unfit;
use super::link::{FoundObject, Link};
use super::url::Cloud;

/// How many writers race at once, and how many times.
const RACERS: usize = 16;
const ROUNDS: usize = 3;

/// How far the time of an object may differ from the `Date` of a response.
const APART: Duration = Duration::from_secs(2);

/// What a fit server supports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fitness {
    /// Whether a deletion can be conditional. Without that, sweeping isn't safe.
    pub(super) deletes: bool,
}

/// Tries the conditions on objects of its own, and removes them.
pub(super) async fn probe(link: &Link, root: &Path, cloud: Cloud) -> StoreResult<Fitness> {
    let run = format!("{:032x}", SystemEntropy.next_u128());
    let probe = Probe {
        link,
        folder: root.clone().join("probe").join(run),
    };
    let fitness = probe.run(cloud).await;
    let rounds = (0..ROUNDS).map(|round| format!("race{round}"));
    let used = rounds.chain(["one".to_owned(), "absent".to_owned()]);
    // Objects that are left over are removed by the bucket's lifecycle rule.
    join_all(used.map(|name| probe.at(&name)).map(|path| async move {
        let _ = link.delete(&path, None).await;
    }))
    .await;
    fitness
}

struct Probe<'a> {
    link: &'a Link,
    folder: Path,
}

impl Probe<'_> {
    fn at(&self, name: &str) -> Path {
        self.folder.clone().join(name)
    }

    async fn run(&self, cloud: Cloud) -> StoreResult<Fitness> {
        let first = self.create().await?;
        let begun = self.link.time.now();
        let second = self.replace(&first).await?;
        let deletes = cloud == Cloud::S3 && self.delete(&first).await?;
        let found = self.there("one").await?;
        let early = begun.since(found.noted) > APART;
        if early || found.noted.since(self.link.time.now()) > APART {
            return Err(unfit(
                "the times of its replies and of its objects are apart, so that no lease could be judged",
            ));
        }
        self.race("one", Some(&second)).await?;
        for round in 0..ROUNDS {
            self.race(&format!("race{round}"), None).await?;
        }
        Ok(Fitness { deletes })
    }

    /// `If-None-Match: *`.
    async fn create(&self) -> StoreResult<UpdateVersion> {
        let path = self.at("one");
        let Some(_) = self.link.put(&path, chance(), None).await? else {
            return Err(unfit("it refuses to create an object that isn't there"));
        };
        if self.link.put(&path, chance(), None).await?.is_some() {
            return Err(ignores("If-None-Match"));
        }
        if !self.link.time.is_known() {
            return Err(unfit("its replies don't say what time it is (`Date`)"));
        }
        Ok(self.there("one").await?.version)
    }

    /// `If-Match`: right, stale, and of what isn't there.
    async fn replace(&self, first: &UpdateVersion) -> StoreResult<UpdateVersion> {
        let path = self.at("one");
        let bytes = chance();
        let Some(second) = self.link.put(&path, bytes.clone(), Some(first)).await? else {
            return Err(unfit("it refuses to replace an object that is as asked"));
        };
        if self.there("one").await?.bytes != bytes {
            return Err(unfit("it doesn't show what was just written"));
        }
        let absent = self.at("absent");
        for path in [&path, &absent] {
            if self.link.put(path, chance(), Some(first)).await?.is_some() {
                return Err(ignores("If-Match"));
            }
        }
        Ok(second)
    }

    /// Whether a deletion under a stale tag is refused.
    async fn delete(&self, stale: &UpdateVersion) -> StoreResult<bool> {
        let path = self.at("one");
        // Some servers answer with an error because they don't support it.
        let deleted = self.link.delete(&path, stale.e_tag.clone()).await;
        if self.link.get(&path, None).await?.is_some() {
            return Ok(matches!(deleted, Ok(false)));
        }
        self.link.put(&path, chance(), None).await?;
        Ok(false)
    }

    async fn there(&self, name: &str) -> StoreResult<FoundObject> {
        let found = self.link.get(&self.at(name), None).await?;
        found.ok_or_else(|| unfit("it doesn't show what was just written"))
    }

    /// Many writers race: at most one wins, and the object has its bytes.
    async fn race(&self, name: &str, instead_of: Option<&UpdateVersion>) -> StoreResult<()> {
        let path = self.at(name);
        let racers = (0..RACERS).map(|_| async {
            let bytes = chance();
            let won = self.link.put(&path, bytes.clone(), instead_of).await;
            // One that got no answer is neither.
            won.ok().flatten().map(|_| bytes)
        });
        let won: Vec<Bytes> = join_all(racers).await.into_iter().flatten().collect();
        let there = self.there(name).await?;
        if won.len() > 1 || won.iter().any(|bytes| *bytes != there.bytes) {
            return Err(unfit(format!(
                "{} of {RACERS} who asked for the same object at once were told that they have it: its conditions \
                 are not atomic, and an effect would run as often",
                won.len()
            )));
        }
        Ok(())
    }
}

fn ignores(header: &str) -> StoreError {
    unfit(format!(
        "it ignores {header}, so that every caller would win; use a server that keeps to conditional writes"
    ))
}

fn chance() -> Bytes {
    Bytes::copy_from_slice(&SystemEntropy.next_u128().to_be_bytes())
}
