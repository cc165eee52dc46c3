//! The operator interface of the Redis store.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join_all;
use redis::Value;
use semel_core::diagnosis::Finding;
use semel_core::store::{Connections, Cursor, Page, Query, Stats, StoreAdmin, StoreResult};
use semel_core::{
    BoxFuture, Certainty, Identity, Record, Restored, StoreError, StoreErrorKind, Timestamp,
};

use super::error::unexpected;
use super::node::Node;
use super::script::DONE;
use super::{Inner, RedisStore, is_deleted};

/// How many keys one step of a scan looks at.
const SCAN_AT_ONCE: usize = 500;

/// How many records are read at once.
const READ_AT_ONCE: usize = 100;

/// The most steps of a scan per page. A page may be short and still have a next one.
const STEPS_PER_PAGE: usize = 100;

impl StoreAdmin for RedisStore {
    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, StoreResult<Page>> {
        Box::pin(self.inner.page(query))
    }

    fn delete<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<bool>> {
        Box::pin(async move {
            let (key, seal) = (self.inner.key(identity), identity.seal());
            let reply = self
                .inner
                .link
                .run(&self.inner.scripts.delete, &key, &[&seal])
                .await?;
            self.inner.hub.wake(&identity.address());
            Ok(reply == DONE)
        })
    }

    fn restore<'a>(
        &'a self,
        identity: &'a Identity,
        record: &'a Record,
    ) -> BoxFuture<'a, StoreResult<Restored>> {
        Box::pin(async move {
            let restored = self.inner.restore(identity, record).await?;
            self.inner.hub.wake(&identity.address());
            Ok(restored)
        })
    }

    /// Nothing to do: the server removes expired records itself.
    fn sweep(&self, _: usize) -> BoxFuture<'_, StoreResult<usize>> {
        Box::pin(std::future::ready(Ok(0)))
    }

    /// Always 0: the server has removed expired records.
    fn expired(&self, _: usize) -> BoxFuture<'_, StoreResult<usize>> {
        Box::pin(std::future::ready(Ok(0)))
    }

    fn now(&self) -> BoxFuture<'_, StoreResult<Timestamp>> {
        Box::pin(std::future::ready(Ok(self.inner.time.now())))
    }

    fn stats(&self) -> BoxFuture<'_, StoreResult<Stats>> {
        Box::pin(async move {
            let (_, masters) = self.inner.link.masters();
            let cmd = redis::cmd("DBSIZE");
            let mut records = 0;
            for reply in try_join_all(masters.iter().map(|node| node.ask(&cmd))).await? {
                let size: u64 = redis::from_redis_value(reply).map_err(|_| unexpected("DBSIZE"))?;
                records += size;
            }
            Ok(Stats::new(records))
        })
    }

    /// One for each master, which all calls share.
    fn connections(&self) -> Option<Connections> {
        let (_, masters) = self.inner.link.masters();
        Some(Connections::new(
            u32::try_from(masters.len()).unwrap_or(u32::MAX),
        ))
    }

    fn diagnose(&self) -> BoxFuture<'_, StoreResult<Vec<Finding>>> {
        Box::pin(self.inner.diagnose())
    }
}

/// The position of a listing. It goes through the servers one by one, each by `SCAN`, which finds
/// every lasting key at least once and returns keys in batches of its own size. Keys of a batch
/// that don't fit on the page go into the cursor, so that the same batch isn't needed again.
struct ListPosition {
    /// A number for the assignment of slots. When it changes, records may have moved, and the
    /// listing has to restart.
    order: u64,
    /// The index of the current server.
    server: usize,
    /// The server's own cursor: 0 at its end, none before its beginning.
    scan: Option<u64>,
    /// Keys that were found but not read yet.
    keys: Vec<Vec<u8>>,
}

impl ListPosition {
    const fn start(order: u64) -> Self {
        Self {
            order,
            server: 0,
            scan: None,
            keys: Vec::new(),
        }
    }

    /// Moves to the next server when this one has no more keys.
    fn skip_finished_server(&mut self) {
        if self.keys.is_empty() && self.scan == Some(0) {
            self.server += 1;
            self.scan = None;
        }
    }
}

/// One entry of a listing.
enum ListEntry {
    Record(Identity, Box<Record>),
    /// The name of a record, but no record that this version can read (P25).
    Unreadable,
    /// Gone by now, or a record that doesn't match the query.
    Nothing,
}

impl Inner {
    async fn page(&self, query: &Query) -> StoreResult<Page> {
        let (order, masters) = self.link.masters();
        let mut place = match &query.after {
            Some(cursor) => self.parse(cursor).filter(|place| place.order == order),
            None => Some(ListPosition::start(order)),
        }
        .ok_or_else(stale)?;
        let now = self.time.now();
        let mut page = Page::default();
        for step in 0.. {
            place.skip_finished_server();
            if place.server >= masters.len() {
                break;
            }
            if page.records.len() >= query.page_size() || step == STEPS_PER_PAGE {
                page.next = Some(self.cursor(&place));
                break;
            }
            if place.keys.is_empty() {
                self.scan(&mut place, &masters, query).await?;
            }
            self.show(&mut place, &mut page, query, now).await?;
        }
        Ok(page)
    }

    /// Reads some of the pending keys, and adds the matching records to the page.
    async fn show(
        &self,
        place: &mut ListPosition,
        page: &mut Page,
        query: &Query,
        now: Timestamp,
    ) -> StoreResult<()> {
        let some = place.keys.len().min(READ_AT_ONCE);
        let found = self.records(&place.keys[..some], query, now).await?;
        let mut looked_at = 0;
        for found in found {
            if page.records.len() >= query.page_size() {
                break;
            }
            looked_at += 1;
            match found {
                ListEntry::Record(identity, record) => {
                    if !page.records.iter().any(|(shown, _)| *shown == identity) {
                        page.records.push((identity, *record));
                    }
                }
                ListEntry::Unreadable => page.unreadable += 1,
                ListEntry::Nothing => {}
            }
        }
        place.keys.drain(..looked_at);
        Ok(())
    }

    /// Fetches one batch of keys.
    async fn scan(
        &self,
        place: &mut ListPosition,
        masters: &[Arc<Node>],
        query: &Query,
    ) -> StoreResult<()> {
        let node = masters.get(place.server).ok_or_else(stale)?;
        let mut scan = redis::cmd("SCAN");
        scan.arg(place.scan.unwrap_or(0))
            .arg("MATCH")
            .arg(format!("{}*", self.prefix));
        scan.arg("COUNT")
            .arg(query.page_size().clamp(10, SCAN_AT_ONCE))
            .arg("TYPE")
            .arg("string");
        let reply = node.ask(&scan).await?;
        let (scan, keys) = redis::from_redis_value(reply).map_err(|_| unexpected("SCAN"))?;
        (place.scan, place.keys) = (Some(scan), keys);
        Ok(())
    }

    fn cursor(&self, place: &ListPosition) -> Cursor {
        let scan = place.scan.map_or_else(String::new, |scan| scan.to_string());
        let mut text = format!("{:x}.{}.{scan}.", place.order, place.server);
        for key in &place.keys {
            text.push_str(&String::from_utf8_lossy(&key[self.prefix.len()..]));
        }
        Cursor(text)
    }

    fn parse(&self, cursor: &Cursor) -> Option<ListPosition> {
        let mut parts = cursor.0.splitn(4, '.');
        let order = u64::from_str_radix(parts.next()?, 16).ok()?;
        let server = parts.next()?.parse().ok()?;
        let scan = match parts.next()? {
            "" => None,
            scan => Some(scan.parse().ok()?),
        };
        let addresses = parts.next()?;
        let is_hex = addresses.len() % 32 == 0 && addresses.bytes().all(|b| b.is_ascii_hexdigit());
        let key = |address| [self.prefix.as_bytes(), address].concat();
        is_hex.then(|| ListPosition {
            order,
            server,
            scan,
            keys: addresses.as_bytes().chunks(32).map(key).collect(),
        })
    }

    /// Reads each of the keys, and applies the query.
    async fn records(
        &self,
        keys: &[Vec<u8>],
        query: &Query,
        now: Timestamp,
    ) -> StoreResult<Vec<ListEntry>> {
        let get = |key: Vec<u8>| async move {
            let cmd = super::script::get(&key);
            self.link.peek(&key, &cmd).await
        };
        let replies = try_join_all(keys.iter().cloned().map(get)).await?;
        let found = keys.iter().zip(replies).map(|(key, reply)| {
            let (Value::BulkString(packed), Some(address)) = (reply, self.address(key)) else {
                return ListEntry::Nothing;
            };
            // An unreadable record is counted but not listed (P29).
            let Ok(record) = Record::decode(&Bytes::from(packed)) else {
                return ListEntry::Unreadable;
            };
            if !query.fits(&record, now) || is_deleted(&record) {
                return ListEntry::Nothing;
            }
            let identity = Identity::from_halves(&address, &record.seal);
            ListEntry::Record(identity, Box::new(record))
        });
        Ok(found.collect())
    }

    pub(super) fn address(&self, key: &[u8]) -> Option<[u8; 16]> {
        let hex = key.strip_prefix(self.prefix.as_bytes())?;
        let text = std::str::from_utf8(hex)
            .ok()
            .filter(|text| text.len() == 32)?;
        Some(u128::from_str_radix(text, 16).ok()?.to_be_bytes())
    }
}

/// The error for a cursor that isn't ours, or from before slots moved between servers.
fn stale() -> StoreError {
    let said =
        "the cursor isn't one of this store's, or its servers have changed; restart the listing";
    StoreError::new(StoreErrorKind::Rejected, Certainty::Definite, said)
}
