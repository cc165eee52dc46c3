//! The operator's side of the Redis store.

use bytes::Bytes;
use semel_core::store::{Cursor, Page, Query, Stats, StoreAdmin, StoreResult};
use semel_core::{BoxFuture, Certainty, Identity, Record, StoreError, StoreErrorKind, Timestamp};

use super::error::unexpected;
use super::script::DONE;
use super::{Inner, RedisStore, is_deleted};

/// How many keys one step of a scan looks at.
const SCAN_AT_ONCE: usize = 500;

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

    /// Nothing to do: the server removes what has expired.
    fn sweep(&self, _: usize) -> BoxFuture<'_, StoreResult<usize>> {
        Box::pin(std::future::ready(Ok(0)))
    }

    fn stats(&self) -> BoxFuture<'_, StoreResult<Stats>> {
        Box::pin(async move {
            let reply = self.inner.link.query(&redis::cmd("DBSIZE")).await?;
            let records = redis::from_redis_value(reply).map_err(|_| unexpected("DBSIZE"))?;
            Ok(Stats {
                records,
                capacity: None,
            })
        })
    }
}

/// `SCAN` finds what is there throughout at least once, and gives keys in lots of its own size. What of a lot
/// doesn't fit on the page goes into the cursor, so that nothing depends on finding the same lot again.
impl Inner {
    async fn page(&self, query: &Query) -> StoreResult<Page> {
        let (mut scan, mut keys) = match &query.after {
            Some(cursor) => self.parse(cursor)?,
            None => self.scan(0, query).await?,
        };
        let now = self.time.now(&self.link).await?;
        let mut page = Page::default();
        loop {
            let room = query.page_size() - page.records.len();
            let rest = keys.split_off(room.min(keys.len()));
            for found in self.records(&keys, query, now).await? {
                if !page.records.iter().any(|(shown, _)| *shown == found.0) {
                    page.records.push(found);
                }
            }
            let full = page.records.len() >= query.page_size();
            (scan, keys) = match (rest.is_empty(), scan) {
                (true, 0) => return Ok(page),
                (true, _) if full => (scan, rest),
                (true, _) => self.scan(scan, query).await?,
                (false, _) => (scan, rest),
            };
            if full {
                page.next = Some(self.cursor(scan, &keys));
                return Ok(page);
            }
        }
    }

    /// One lot: where the scan goes on (0 at its end), and keys.
    async fn scan(&self, cursor: u64, query: &Query) -> StoreResult<(u64, Vec<Vec<u8>>)> {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor)
            .arg("MATCH")
            .arg(format!("{}*", self.prefix));
        scan.arg("COUNT")
            .arg(query.page_size().clamp(10, SCAN_AT_ONCE))
            .arg("TYPE")
            .arg("string");
        let reply = self.link.query(&scan).await?;
        redis::from_redis_value(reply).map_err(|_| unexpected("SCAN"))
    }

    /// Where a listing stands: the scan's cursor, then the addresses that were found and not yet shown.
    fn cursor(&self, scan: u64, keys: &[Vec<u8>]) -> Cursor {
        let mut text = format!("{scan}.");
        for key in keys {
            text.push_str(&String::from_utf8_lossy(&key[self.prefix.len()..]));
        }
        Cursor(text)
    }

    fn parse(&self, cursor: &Cursor) -> StoreResult<(u64, Vec<Vec<u8>>)> {
        let parts = cursor.0.split_once('.').and_then(|(scan, addresses)| {
            let is_hex =
                addresses.len() % 32 == 0 && addresses.bytes().all(|b| b.is_ascii_hexdigit());
            is_hex.then_some((scan.parse().ok()?, addresses))
        });
        let Some((scan, addresses)) = parts else {
            let said = "the cursor isn't one of this store's; start the listing anew";
            return Err(StoreError::new(
                StoreErrorKind::Rejected,
                Certainty::Definite,
                said,
            ));
        };
        let key = |address| [self.prefix.as_bytes(), address].concat();
        Ok((scan, addresses.as_bytes().chunks(32).map(key).collect()))
    }

    async fn records(
        &self,
        keys: &[Vec<u8>],
        query: &Query,
        now: Timestamp,
    ) -> StoreResult<Vec<(Identity, Record)>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut get = redis::cmd("MGET");
        for key in keys {
            get.arg(key);
        }
        let reply = self.link.query(&get).await?;
        let found: Vec<Option<Vec<u8>>> =
            redis::from_redis_value(reply).map_err(|_| unexpected("MGET"))?;
        let mut records = Vec::new();
        for (key, packed) in keys.iter().zip(found) {
            let Some(packed) = packed else { continue };
            // What can't be read is not listed as something that it may not be.
            let Ok(record) = Record::decode(&Bytes::from(packed)) else {
                continue;
            };
            let Some(address) = self.address(key) else {
                continue;
            };
            if query.fits(&record, now) && !is_deleted(&record) {
                records.push((Identity::from_halves(&address, &record.seal), record));
            }
        }
        Ok(records)
    }

    pub(super) fn address(&self, key: &[u8]) -> Option<[u8; 16]> {
        let hex = key.strip_prefix(self.prefix.as_bytes())?;
        let text = std::str::from_utf8(hex)
            .ok()
            .filter(|text| text.len() == 32)?;
        Some(u128::from_str_radix(text, 16).ok()?.to_be_bytes())
    }
}
