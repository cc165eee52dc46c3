//! The operator interface of the memory store.

use super::MemoryStore;
use crate::claim::Restored;
use crate::clock::Timestamp;
use crate::diagnosis::{Finding, Severity};
use crate::env::BoxFuture;
use crate::error::{Certainty, StoreError, StoreErrorKind};
use crate::hex::hex;
use crate::identity::Identity;
use crate::protocol;
use crate::record::Record;
use crate::store::{Connections, Cursor, Page, Query, Stats, StoreAdmin, StoreResult};
use crate::sync::atomic::Ordering;

impl StoreAdmin for MemoryStore {
    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, StoreResult<Page>> {
        Box::pin(async move { self.page(query) })
    }

    fn delete<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<bool>> {
        Box::pin(async move {
            let hash = self.inner.hash(identity);
            let mut shard = self.inner.shard(hash).lock();
            let now = self.inner.now();
            let Some(was_live) = shard.remove(hash, identity, now) else {
                return Ok(false);
            };
            self.inner.present.fetch_sub(1, Ordering::SeqCst);
            drop(shard);
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
            let restored = self
                .inner
                .step(identity, |found, now| protocol::restore(found, record, now))?;
            self.inner.hub.wake(&identity.address());
            Ok(restored)
        })
    }

    fn sweep(&self, most: usize) -> BoxFuture<'_, StoreResult<usize>> {
        Box::pin(async move { Ok(self.inner.sweep(most)) })
    }

    fn expired(&self, most: usize) -> BoxFuture<'_, StoreResult<usize>> {
        Box::pin(async move {
            let now = self.inner.now();
            let mut found = 0;
            for shard in &self.inner.shards {
                let shard = shard.lock();
                found += shard
                    .iter()
                    .filter(|(_, record)| record.is_expired(now))
                    .count();
                if found >= most {
                    break;
                }
            }
            Ok(found.min(most))
        })
    }

    fn now(&self) -> BoxFuture<'_, StoreResult<Timestamp>> {
        Box::pin(async move { Ok(self.inner.now()) })
    }

    fn stats(&self) -> BoxFuture<'_, StoreResult<Stats>> {
        Box::pin(async move {
            let capacity = Some(self.inner.capacity as u64);
            Ok(Stats {
                records: self.len() as u64,
                capacity,
            })
        })
    }

    fn connections(&self) -> Option<Connections> {
        None
    }

    fn diagnose(&self) -> BoxFuture<'_, StoreResult<Vec<Finding>>> {
        let most = self.inner.capacity;
        let forgets = Finding::bad(
            "durability",
            Severity::Note,
            "records are in this process's memory: they end with it, and no other process sees them",
            "fine for development, and for a single process that may lose its records; otherwise use a durable store: \
             redis://, postgres://, mysql:// or sqlite://",
        );
        let here = self.len();
        let found = format!("{here} of at most {most} records");
        // New keys are refused when it is full; there is time to act before.
        let room = if here < most / 10 * 9 {
            Finding::good("room", found)
        } else {
            let fix =
                "raise the bound (memory://?capacity=NUMBER) or keep records for a shorter time";
            Finding::bad("room", Severity::Warning, found, fix)
        };
        Box::pin(std::future::ready(Ok(vec![forgets, room])))
    }
}

/// A listing goes shard by shard and, within one, by identity: an order that inserts and deletions
/// don't disturb.
impl MemoryStore {
    fn page(&self, query: &Query) -> StoreResult<Page> {
        let (first, after) = match &query.after {
            Some(cursor) => parse(cursor)?,
            None => (0, None),
        };
        let now = self.inner.now();
        let mut page = Page::default();
        for (index, shard) in self.inner.shards.iter().enumerate().skip(first) {
            let after = after.filter(|_| index == first);
            let room = query.page_size() - page.records.len();
            let shard = shard.lock();
            let mut fit: Vec<_> = shard
                .iter()
                .filter(|(identity, record)| {
                    after.is_none_or(|after| *identity > after) && query.fits(record, now)
                })
                .collect();
            fit.sort_unstable_by_key(|(identity, _)| *identity);
            if fit.len() > room {
                page.next = Some(cursor(
                    index,
                    if room == 0 {
                        None
                    } else {
                        Some(&fit[room - 1].0)
                    },
                ));
            }
            fit.truncate(room);
            page.records.extend(
                fit.into_iter()
                    .map(|(identity, record)| (identity, record.clone())),
            );
            if page.next.is_some() {
                break;
            }
        }
        Ok(page)
    }
}

/// `3.` is "from the start of shard 3", `3.<hex>` "in shard 3, after this identity".
fn cursor(shard: usize, last: Option<&Identity>) -> Cursor {
    let bytes = last.map_or(&[][..], |identity| identity.as_bytes());
    Cursor(format!("{shard}.{}", hex(bytes)))
}

fn parse(cursor: &Cursor) -> StoreResult<(usize, Option<Identity>)> {
    let refuse = || {
        StoreError::new(
            StoreErrorKind::Rejected,
            Certainty::Definite,
            "the cursor isn't one of this store's; start the listing anew",
        )
    };
    let (shard, hex) = cursor.0.split_once('.').ok_or_else(refuse)?;
    let shard = shard.parse().map_err(|_| refuse())?;
    if hex.is_empty() {
        return Ok((shard, None));
    }
    let mut bytes = [0; 32];
    if hex.len() != 64 || !hex.is_ascii() {
        return Err(refuse());
    }
    for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| refuse())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| refuse())?;
    }
    Ok((shard, Some(Identity::from_bytes(bytes))))
}
