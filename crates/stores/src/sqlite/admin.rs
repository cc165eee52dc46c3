//! The operator interface of the SQLite store.

use semel_core::diagnosis::Finding;
use semel_core::identity::Address;
use semel_core::store::{Connections, Cursor, Page, Query, Stats, StoreAdmin, StoreResult};
use semel_core::{BoxFuture, Identity, Record, Restored, Timestamp};

use super::change::{Change, signed};
use super::error::unfit;
use super::{Inner, SqliteStore};

/// How many records, and how many bytes of them, one page looks at, at most.
const LOOK_AT_MOST: usize = 5_000;
const READ_AT_MOST: usize = 32 * 1024 * 1024;

/// How many records are removed at once: others wait for the write lock meanwhile.
const SWEEP_AT_ONCE: usize = 500;

/// Up to here records are counted, from here on estimated.
const COUNT_AT_MOST: i64 = 1_000_000;

impl StoreAdmin for SqliteStore {
    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, StoreResult<Page>> {
        Box::pin(self.inner.page(query))
    }

    fn delete<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<bool>> {
        Box::pin(async move {
            let change = |reply| Change::Delete(*identity, reply);
            let was_live = self.inner.writer.make(change).await?;
            self.inner.hub.wake(&identity.address());
            Ok(was_live)
        })
    }

    fn restore<'a>(
        &'a self,
        identity: &'a Identity,
        record: &'a Record,
    ) -> BoxFuture<'a, StoreResult<Restored>> {
        Box::pin(async move {
            let record = Box::new(record.clone());
            let change = |reply| Change::Restore(*identity, record, reply);
            let restored = self.inner.writer.make(change).await?;
            self.inner.hub.wake(&identity.address());
            Ok(restored)
        })
    }

    fn sweep(&self, most: usize) -> BoxFuture<'_, StoreResult<usize>> {
        Box::pin(async move {
            let mut removed = 0;
            while removed < most {
                let at_once = SWEEP_AT_ONCE.min(most - removed);
                // Nothing is locked if there is nothing to remove.
                if self.inner.expired(1).await? == 0 {
                    break;
                }
                let change = |reply| Change::Sweep(at_once, reply);
                removed += self.inner.writer.make(change).await?;
            }
            Ok(removed)
        })
    }

    fn expired(&self, most: usize) -> BoxFuture<'_, StoreResult<usize>> {
        Box::pin(self.inner.expired(most))
    }

    fn now(&self) -> BoxFuture<'_, StoreResult<Timestamp>> {
        Box::pin(std::future::ready(Ok(self.inner.clock.wall())))
    }

    fn stats(&self) -> BoxFuture<'_, StoreResult<Stats>> {
        Box::pin(async move {
            let count = "SELECT count(*) FROM (SELECT 1 FROM records LIMIT ?)";
            let mut records = self.inner.reader.number(count, COUNT_AT_MOST).await?;
            if records >= COUNT_AT_MOST {
                // Rows are numbered as they come.
                let span = "SELECT max(?, coalesce(max(rowid) - min(rowid) + 1, 0)) FROM records";
                records = self.inner.reader.number(span, records).await?;
            }
            Ok(Stats::new(records.unsigned_abs()))
        })
    }

    fn connections(&self) -> Option<Connections> {
        Some(self.inner.reader.connections())
    }

    fn diagnose(&self) -> BoxFuture<'_, StoreResult<Vec<Finding>>> {
        Box::pin(self.inner.diagnose())
    }
}

impl Inner {
    pub(super) async fn expired(&self, most: usize) -> StoreResult<usize> {
        let now = signed(self.clock.wall().as_micros());
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let text = format!(
            "SELECT count(*) FROM (SELECT 1 FROM records WHERE expires_us <= {now} LIMIT ?)"
        );
        let count = self.reader.number(&text, most).await?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// By address, which never changes: a record that is there throughout is listed once (P29).
    async fn page(&self, query: &Query) -> StoreResult<Page> {
        let after = query.after.as_ref().map(parse).transpose()?;
        let (now, mut page) = (self.clock.wall(), Page::default());
        let (mut last, mut looked_at, mut read) = (after, 0, 0);
        let take = |(address, found): super::reader::ListedRow, bytes: usize| {
            (last, looked_at, read) = (Some(address), looked_at + 1, read + bytes);
            match found {
                Ok(record) if query.fits(&record, now) => {
                    let identity = Identity::from_halves(&address, &record.seal);
                    page.records.push((identity, record));
                }
                Ok(_) => {}
                // An unreadable record is counted but not listed (P29).
                Err(_) => page.unreadable += 1,
            }
            page.records.len() < query.page_size()
                && looked_at < LOOK_AT_MOST
                && read < READ_AT_MOST
        };
        let ended = self.reader.walk(after, take).await?;
        page.next = last.filter(|_| !ended).map(|last| Cursor(written(&last)));
        Ok(page)
    }
}

fn parse(cursor: &Cursor) -> StoreResult<Address> {
    let number = u128::from_str_radix(&cursor.0, 16).ok();
    // Only what a page gave: no shorter form, no sign, no capitals.
    let address = number.map(u128::to_be_bytes);
    let address = address.filter(|address| written(address) == cursor.0);
    address.ok_or_else(|| unfit("the cursor isn't one of this store's; start the listing anew"))
}

fn written(address: &Address) -> String {
    format!("{:032x}", u128::from_be_bytes(*address))
}
