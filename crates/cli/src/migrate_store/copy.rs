//! Brings records from one store to another, page by page, and counts what became of each.

use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use semel::core::store::{Cursor, Query};
use semel::core::{StoreAdmin, StoreResult};
use semel_stores::compose::copy::{CopyMode, CopyOutcome, copy_record};
use serde::{Deserialize, Serialize};

/// How many records are under way at once.
const AT_ONCE: usize = 64;

/// How many records a page has.
const PAGE: usize = 500;

/// What became of the records so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    /// Brought over.
    pub(super) copied: u64,
    /// Were there already, or the other store knows more.
    pub(super) there: u64,
    /// Were open there, though they had been settled here: are as here now.
    pub(super) mended: u64,
    /// Somebody runs them now; only one store has the lease.
    pub(super) running: u64,
    /// Expired on the way.
    pub(super) expired: u64,
    /// The two stores say different things.
    pub(super) conflicts: u64,
    /// Can't be read in the old store, and so are not in the new one.
    pub(super) unreadable: u64,
}

impl Counts {
    pub(super) const fn all(&self) -> u64 {
        self.copied + self.there + self.mended + self.running + self.expired + self.conflicts
    }

    fn add(&mut self, became: CopyOutcome) {
        let count = match became {
            CopyOutcome::Copied => &mut self.copied,
            CopyOutcome::There => &mut self.there,
            CopyOutcome::Mended => &mut self.mended,
            CopyOutcome::Running => &mut self.running,
            CopyOutcome::Expired => &mut self.expired,
            CopyOutcome::Conflict => &mut self.conflicts,
        };
        *count += 1;
    }
}

/// From where to where.
pub(super) struct Copy {
    pub(super) from: Arc<dyn StoreAdmin>,
    pub(super) to: Arc<dyn StoreAdmin>,
}

impl Copy {
    /// Brings one page over; gives where to go on, and the hints of records that the stores disagree about.
    pub(super) async fn page(
        &self,
        pass: CopyMode,
        after: Option<Cursor>,
        counts: &mut Counts,
    ) -> StoreResult<(Option<Cursor>, Vec<String>)> {
        let query = Query {
            after,
            limit: PAGE,
            ..Query::default()
        };
        let page = self.from.list(&query).await?;
        let clocks = (self.from.now().await?, self.to.now().await?);
        let each = page.records.iter().map(|(identity, record)| async move {
            let became = copy_record(&*self.to, pass, identity, record, clocks).await?;
            Ok::<_, semel::core::StoreError>((became, record))
        });
        let all: Vec<_> = stream::iter(each)
            .buffer_unordered(AT_ONCE)
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

    /// Whatever the clocks say: of two clocks that are one, a record is written again without a change.
    #[tokio::test]
    async fn what_was_brought_over_is_there_and_not_new() {
        let clock = Arc::new(semel_testkit::clock::FakeClock::new());
        let store = || Arc::new(MemoryStore::new(MemoryConfig::default(), clock.clone()));
        let (from, to) = (store(), store());
        let semel = Semel::builder().open_on(from.clone()).await;
        let semel = semel.expect("a store in memory");
        for key in ["a-key", "another"] {
            let call = semel.operation("charge").key(key).payload(&key);
            let answer = call.run(async |_| Ok::<_, std::io::Error>(1)).await;
            answer.expect("an answer");
        }
        let copy = Copy { from, to };
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
    async fn records_that_cannot_be_read_are_counted() {
        let clock = Arc::new(semel_testkit::clock::FakeClock::new());
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
        let copy = Copy {
            from: Arc::new(from),
            to: Arc::new(to),
        };
        for pass in [CopyMode::Copying, CopyMode::Comparing] {
            let mut counts = Counts::default();
            copy.page(pass, None, &mut counts).await.expect("a page");
            let sound = page.records.len() as u64 - 1;
            assert_eq!((counts.unreadable, counts.all()), (1, sound), "{counts:?}");
        }
    }
}
