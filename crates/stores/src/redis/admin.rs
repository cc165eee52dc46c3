//! The operator's side of the Redis store.

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

/// How many steps one page takes at most; a page may be short and still have a next one.
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

    /// Nothing to do: the server removes what has expired.
    fn sweep(&self, _: usize) -> BoxFuture<'_, StoreResult<usize>> {
        Box::pin(std::future::ready(Ok(0)))
    }

    /// None: what has expired is gone.
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
            Ok(Stats {
                records,
                capacity: None,
            })
        })
    }

    /// One for each master, which all calls share.
    fn connections(&self) -> Option<Connections> {
        let (_, masters) = self.inner.link.masters();
        Some(Connections {
            active: u32::try_from(masters.len()).unwrap_or(u32::MAX),
            most: None,
            exhausted: 0,
        })
    }

    fn diagnose(&self) -> BoxFuture<'_, StoreResult<Vec<Finding>>> {
        Box::pin(self.inner.diagnose())
    }
}

/// Where a listing stands: the servers one after the other, each by `SCAN`, which finds what is there
/// throughout at least once, and gives keys in lots of its own size. What of a lot doesn't fit on the page goes
/// into the cursor, so that nothing depends on finding the same lot again.
struct Place {
    /// Stands for who has which slot. When that changes, records have moved past a listing.
    order: u64,
    /// Which server.
    server: usize,
    /// The server's own cursor: 0 at its end, none before its beginning.
    scan: Option<u64>,
    /// Keys that were found and not yet looked at.
    keys: Vec<Vec<u8>>,
}

impl Place {
    const fn start(order: u64) -> Self {
        Self {
            order,
            server: 0,
            scan: None,
            keys: Vec::new(),
        }
    }

    /// Goes on to the next server when this one has no more to give.
    fn leave_what_is_done(&mut self) {
        if self.keys.is_empty() && self.scan == Some(0) {
            self.server += 1;
            self.scan = None;
        }
    }
}

/// What a listing finds under a key.
enum Shown {
    Record(Identity, Box<Record>),
    /// A record's name, and no record that this version can read (P25).
    Unreadable,
    /// Gone by now, or a record that doesn't fit.
    Nothing,
}

impl Inner {
    async fn page(&self, query: &Query) -> StoreResult<Page> {
        let (order, masters) = self.link.masters();
        let mut place = match &query.after {
            Some(cursor) => self.parse(cursor).filter(|place| place.order == order),
            None => Some(Place::start(order)),
        }
        .ok_or_else(stale)?;
        let now = self.time.now();
        let mut page = Page::default();
        for step in 0.. {
            place.leave_what_is_done();
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

    /// Reads some of the keys at hand, and puts what fits on the page. Others stay at hand.
    async fn show(
        &self,
        place: &mut Place,
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
                Shown::Record(identity, record) => {
                    if !page.records.iter().any(|(shown, _)| *shown == identity) {
                        page.records.push((identity, *record));
                    }
                }
                Shown::Unreadable => page.unreadable += 1,
                Shown::Nothing => {}
            }
        }
        place.keys.drain(..looked_at);
        Ok(())
    }

    /// Fetches one lot.
    async fn scan(
        &self,
        place: &mut Place,
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

    fn cursor(&self, place: &Place) -> Cursor {
        let scan = place.scan.map_or_else(String::new, |scan| scan.to_string());
        let mut text = format!("{:x}.{}.{scan}.", place.order, place.server);
        for key in &place.keys {
            text.push_str(&String::from_utf8_lossy(&key[self.prefix.len()..]));
        }
        Cursor(text)
    }

    fn parse(&self, cursor: &Cursor) -> Option<Place> {
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
        is_hex.then(|| Place {
            order,
            server,
            scan,
            keys: addresses.as_bytes().chunks(32).map(key).collect(),
        })
    }

    /// What stands under each of the keys, if it fits.
    async fn records(
        &self,
        keys: &[Vec<u8>],
        query: &Query,
        now: Timestamp,
    ) -> StoreResult<Vec<Shown>> {
        let get = |key: Vec<u8>| async move {
            let cmd = super::script::get(&key);
            self.link.peek(&key, &cmd).await
        };
        let replies = try_join_all(keys.iter().cloned().map(get)).await?;
        let found = keys.iter().zip(replies).map(|(key, reply)| {
            let (Value::BulkString(packed), Some(address)) = (reply, self.address(key)) else {
                return Shown::Nothing;
            };
            // What can't be read is not listed as something that it may not be (P29).
            let Ok(record) = Record::decode(&Bytes::from(packed)) else {
                return Shown::Unreadable;
            };
            if !query.fits(&record, now) || is_deleted(&record) {
                return Shown::Nothing;
            }
            let identity = Identity::from_halves(&address, &record.seal);
            Shown::Record(identity, Box::new(record))
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

/// The cursor isn't one of ours, or one from before records moved between servers.
fn stale() -> StoreError {
    let said =
        "the cursor isn't one of this store's, or its servers have changed; start the listing anew";
    StoreError::new(StoreErrorKind::Rejected, Certainty::Definite, said)
}
