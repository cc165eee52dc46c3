//! The operator interface: listing by the names of objects, and deletion that keeps the fence.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use object_store::path::Path;
use parking_lot::Mutex;
use semel_core::diagnosis::Finding;
use semel_core::env::SystemEntropy;
use semel_core::protocol::Decision;
use semel_core::store::{Connections, Cursor, Page, Query, Stats, StoreAdmin, StoreResult};
use semel_core::{
    BoxFuture, Certainty, Entropy as _, Identity, Record, Restored, State, StoreError,
    StoreErrorKind, Tick, Timestamp, Token,
};

use super::sweep::AT_ONCE;
use super::{Inner, ObjectStore, is_deleted, memo, time};
use crate::cas::Start;

/// How long a deleted record's fence is kept: as long as on Redis, in case the clock is set back.
const DELETED_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// How many objects, and how many bytes of records, one page reads. A page may be short and still
/// have a next one.
const LOOKS_PER_PAGE: usize = 4_000;
const BYTES_PER_PAGE: u64 = 32 * 1024 * 1024;

/// How many objects are counted. More are estimated from the range of addresses that these cover.
const COUNT_UP_TO: u64 = 10_000;

/// How long a count is cached: metrics ask every few seconds, and each listing costs money.
const COUNT_EVERY: Duration = Duration::from_secs(60);

/// The last count.
pub(super) type CachedCount = Mutex<Option<(Tick, u64)>>;

impl StoreAdmin for ObjectStore {
    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, StoreResult<Page>> {
        Box::pin(self.inner.page(query))
    }

    fn delete<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<bool>> {
        Box::pin(async move {
            // The random token identifies a deletion whose reply was lost, and invalidates the old
            // owner's token.
            let mark = Token(SystemEntropy.next_u128());
            let decide = |found: Option<&Record>, now| deleted(found, mark, now);
            let start = Start::Read { write_sent: false };
            let changed = self.inner.change(identity, start, decide).await?;
            Ok(changed.answer)
        })
    }

    fn restore<'a>(
        &'a self,
        identity: &'a Identity,
        record: &'a Record,
    ) -> BoxFuture<'a, StoreResult<Restored>> {
        Box::pin(self.inner.restore(identity, record))
    }

    fn sweep(&self, most: usize) -> BoxFuture<'_, StoreResult<usize>> {
        Box::pin(async move {
            self.inner.keep_canaries().await?;
            self.inner.sweep(most).await
        })
    }

    fn expired(&self, most: usize) -> BoxFuture<'_, StoreResult<usize>> {
        Box::pin(self.inner.count_expired(most))
    }

    fn now(&self) -> BoxFuture<'_, StoreResult<Timestamp>> {
        Box::pin(std::future::ready(Ok(self.inner.link.time.now())))
    }

    fn stats(&self) -> BoxFuture<'_, StoreResult<Stats>> {
        Box::pin(async move { Ok(Stats::new(self.inner.count().await?)) })
    }

    fn connections(&self) -> Option<Connections> {
        Some(self.inner.link.connections())
    }

    fn diagnose(&self) -> BoxFuture<'_, StoreResult<Vec<Finding>>> {
        Box::pin(self.inner.diagnose())
    }
}

/// Replaces a live record by a tombstone that keeps its fence.
fn deleted(found: Option<&Record>, mark: Token, now: Timestamp) -> Decision<bool> {
    let live = found.filter(|record| !record.is_expired(now) && !is_deleted(record));
    let is_done = found.is_some_and(|record| is_deleted(record) && record.token == mark);
    Decision {
        answer: live.is_some() || is_done,
        write: live.map(|record| Record {
            state: State::Released,
            attempt: 0,
            token: mark,
            retention: DELETED_FOR.max(record.lease),
            written_at: now,
            checkpoint: Bytes::new(),
            answer: None,
            ..record.clone()
        }),
    }
}

/// One entry of a listing.
enum ListEntry {
    Record(Identity, Box<Record>),
    /// The name of a record, but no record that this version can read (P25).
    Unreadable,
    /// A foreign object, or a record that doesn't match the query.
    Nothing,
}

impl Inner {
    async fn page(&self, query: &Query) -> StoreResult<Page> {
        let after = query.after.as_ref().map(|cursor| self.place(cursor));
        let mut listing = self.link.list(&self.root, after.transpose()?.as_ref());
        let (mut page, mut looked_at, mut read) = (Page::default(), 0, 0);
        loop {
            let room = BYTES_PER_PAGE - read;
            let lot = self.lot(&mut listing, room).await?;
            let Some(last) = lot.last().map(|meta| meta.location.clone()) else {
                return Ok(page);
            };
            looked_at += lot.len();
            read += lot.iter().map(|meta| self.size(meta)).sum::<u64>();
            let found = futures_util::stream::iter(lot)
                .map(|meta| async move { (self.show(&meta.location, query).await, meta.location) })
                .buffered(AT_ONCE)
                .collect::<Vec<_>>();
            for (shown, path) in found.await {
                match shown? {
                    ListEntry::Record(identity, record) => page.records.push((identity, *record)),
                    ListEntry::Unreadable => page.unreadable += 1,
                    ListEntry::Nothing => {}
                }
                if page.records.len() >= query.page_size() {
                    page.next = self.cursor(&path);
                    return Ok(page);
                }
            }
            if looked_at >= LOOKS_PER_PAGE || read >= BYTES_PER_PAGE {
                page.next = self.cursor(&last);
                return Ok(page);
            }
        }
    }

    /// Reads the record at `path`, and applies the query.
    async fn show(&self, path: &Path, query: &Query) -> StoreResult<ListEntry> {
        let Some(address) = self.address(path) else {
            return Ok(ListEntry::Nothing);
        };
        let found = match self.link.get(path, None).await {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(ListEntry::Nothing),
            // Larger than any record.
            Err(error) if error.kind == StoreErrorKind::Record => return Ok(ListEntry::Unreadable),
            Err(error) => return Err(error),
        };
        // An unreadable record is counted but not listed (P29).
        let Ok(record) = Record::decode(&found.bytes) else {
            return Ok(ListEntry::Unreadable);
        };
        let noted = memo::is_dated_by_the_server(&found.bytes).then_some(found.noted);
        let estimate = self.link.time.now();
        let now = time::decide_at(&record, noted, estimate, self.margin);
        let fits = query.fits(&record, now) && !is_deleted(&record);
        let identity = Identity::from_halves(&address, &record.seal);
        Ok(match fits {
            true => ListEntry::Record(identity, Box::new(record)),
            false => ListEntry::Nothing,
        })
    }

    /// A record is named by its address; another's object, after a slash, by its path below the
    /// root.
    fn cursor(&self, path: &Path) -> Option<Cursor> {
        if self.address(path).is_some() {
            return path.filename().map(|name| Cursor(name.to_owned()));
        }
        let relative = self.relative(path)?;
        Some(Cursor(format!("/{relative}")))
    }

    /// The object that a cursor names.
    fn place(&self, cursor: &Cursor) -> StoreResult<Path> {
        let name = &*cursor.0;
        let place = match name.get(..2) {
            Some(_) if name.starts_with('/') => Path::parse(format!("{}{name}", self.root)).ok(),
            Some(first) => {
                let place = self.root.clone().join(first).join(name);
                Some(place).filter(|place| self.address(place).is_some())
            }
            None => None,
        };
        place.ok_or_else(|| {
            let said = "the cursor isn't one of this store's";
            StoreError::new(StoreErrorKind::Rejected, Certainty::Definite, said)
        })
    }

    /// The number of objects: counted, or estimated from the range of addresses that the counted
    /// ones cover. Addresses are spread evenly.
    async fn count(&self) -> StoreResult<u64> {
        let now = self.link.time.clock().now();
        if let Some((at, count)) = *self.counted.lock()
            && now.since(at) < COUNT_EVERY
        {
            return Ok(count);
        }
        let mut listing = self.link.list(&self.root, None);
        let (mut count, mut last) = (0, 0);
        while count < COUNT_UP_TO
            && let Some(meta) = self.link.next(&mut listing).await?
        {
            if let Some(address) = self.address(&meta.location) {
                count += 1;
                last = u128::from_be_bytes(address);
            }
        }
        if count == COUNT_UP_TO {
            let share = last as f64 / u128::MAX as f64;
            let estimate = COUNT_UP_TO as f64 / share.max(1e-9);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "an estimate, positive and far below the bound"
            )]
            let estimate = estimate as u64;
            count = estimate;
        }
        *self.counted.lock() = Some((now, count));
        Ok(count)
    }
}
