//! Copies records from one store to another, page by page, and counts the results.

use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use semel::core::store::{Cursor, Query};
use semel::core::{StoreAdmin, StoreResult};
use semel_stores::compose::copy::{CopyMode, CopyOutcome, copy_record};
use semel_stores::encrypted::Keyring;
use serde::{Deserialize, Serialize};

/// The number of records in flight.
const MAX_IN_FLIGHT: usize = 64;

/// The number of records in a page.
const PAGE: usize = 500;

/// The results so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    /// Copied.
    pub(super) copied: u64,
    /// Already present, or newer in the target.
    pub(super) there: u64,
    /// Open in the target but settled in the source: settled in both now.
    pub(super) mended: u64,
    /// Running now; only one store has the lease.
    pub(super) running: u64,
    /// Expired during the copy.
    pub(super) expired: u64,
    /// The two stores disagree.
    pub(super) conflicts: u64,
    /// Unreadable in the source, and therefore missing in the target.
    pub(super) unreadable: u64,
    /// Encrypted in both stores, and not decrypted with the keys that were given.
    #[serde(default)]
    pub(super) encrypted: u64,
}

impl Counts {
    pub(super) const fn all(&self) -> u64 {
        self.copied
            + self.there
            + self.mended
            + self.running
            + self.expired
            + self.conflicts
            + self.encrypted
    }

    fn add(&mut self, became: CopyOutcome) {
        let count = match became {
            CopyOutcome::Copied => &mut self.copied,
            CopyOutcome::Present => &mut self.there,
            CopyOutcome::Repaired => &mut self.mended,
            CopyOutcome::Running => &mut self.running,
            CopyOutcome::Expired => &mut self.expired,
            CopyOutcome::Conflict => &mut self.conflicts,
            CopyOutcome::Unreadable => &mut self.encrypted,
        };
        *count += 1;
    }
}

/// A copy between two stores.
pub(super) struct StoreCopy {
    pub(super) from: Arc<dyn StoreAdmin>,
    pub(super) to: Arc<dyn StoreAdmin>,
    pub(super) keys: Keyring,
}

impl StoreCopy {
    /// Copies one page. Returns the next cursor, and hints to records that differ.
    pub(super) async fn page(
        &self,
        pass: CopyMode,
        after: Option<Cursor>,
        counts: &mut Counts,
    ) -> StoreResult<(Option<Cursor>, Vec<String>)> {
        let query = Query::default().with_after(after).with_limit(PAGE);
        let page = self.from.list(&query).await?;
        let clocks = (self.from.now().await?, self.to.now().await?);
        let each = page.records.iter().map(|(identity, record)| async move {
            let to = &*self.to;
            let became = copy_record(to, pass, identity, record, clocks, &self.keys).await?;
            Ok::<_, semel::core::StoreError>((became, record))
        });
        let all: Vec<_> = stream::iter(each)
            .buffer_unordered(MAX_IN_FLIGHT)
            .try_collect()
            .await?;
        counts.unreadable += page.unreadable as u64;
        let mut disagree = Vec::new();
        for (became, record) in all {
            counts.add(became);
            if became == CopyOutcome::Conflict {
                let place = &record.namespace;
                disagree.push(format!(
                    "{} {} {}",
                    place.tenant(),
                    place.scope(),
                    record.hint.as_str()
                ));
            }
        }
        Ok((page.next, disagree))
    }
}

#[cfg(test)]
mod tests {
    use semel::Semel;
    use semel::core::{MemoryConfig, MemoryStore};
    use semel_testkit::broken::BrokenStore;

    use super::*;

    /// The result is the same on one clock and on two.
    #[tokio::test]
    async fn copied_record_exists_and_is_not_new() {
        let clock = Arc::new(semel_conformance::clock::FakeClock::new());
        let store = || Arc::new(MemoryStore::new(MemoryConfig::default(), clock.clone()));
        let (from, to) = (store(), store());
        let semel = Semel::builder().open_on(from.clone()).await;
        let semel = semel.expect("a store in memory");
        for key in ["a-key", "another"] {
            let call = semel.operation("charge").key(key).payload(&key);
            let answer = call.run(async |_| Ok::<_, std::io::Error>(1)).await;
            answer.expect("an answer");
        }
        let keys = Keyring::empty();
        let copy = StoreCopy { from, to, keys };
        let (mut copied, mut compared) = (Counts::default(), Counts::default());
        copy.page(CopyMode::Copying, None, &mut copied)
            .await
            .expect("a page");
        copy.page(CopyMode::Comparing, None, &mut compared)
            .await
            .expect("a page");
        assert!(
            copied.copied >= 2 && copied.copied == copied.all(),
            "{copied:?}"
        );
        assert_eq!(
            (compared.there, compared.all()),
            (copied.all(), copied.all())
        );
    }

    #[tokio::test]
    async fn unreadable_records_are_counted() {
        let clock = Arc::new(semel_conformance::clock::FakeClock::new());
        let from = BrokenStore::new(None, clock.clone());
        let to = MemoryStore::new(MemoryConfig::default(), clock);
        let semel = Semel::builder().open_on(Arc::new(from.clone())).await;
        let semel = semel.expect("a store");
        for key in ["a-key", "another"] {
            let call = semel.operation("charge").key(key).payload(&key);
            let answer = call.run(async |_| Ok::<_, std::io::Error>(1)).await;
            answer.expect("an answer");
        }
        let page = from.list(&Query::default()).await.expect("a page");
        let (damaged, _) = page.records.first().expect("a record");
        assert!(from.spoil(damaged));
        let copy = StoreCopy {
            from: Arc::new(from),
            to: Arc::new(to),
            keys: Keyring::empty(),
        };
        for pass in [CopyMode::Copying, CopyMode::Comparing] {
            let mut counts = Counts::default();
            copy.page(pass, None, &mut counts).await.expect("a page");
            let sound = page.records.len() as u64 - 1;
            assert_eq!((counts.unreadable, counts.all()), (1, sound), "{counts:?}");
        }
    }
}
