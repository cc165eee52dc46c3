//! Removing what expired, a stretch at a time: the header of each object is read, and exactly the version that was read
//! is deleted. A rule of the bucket does the same without a request of ours; see `lifecycle`.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use object_store::ObjectMeta;
use object_store::path::Path;
use parking_lot::Mutex;
use semel_core::Timestamp;
use semel_core::record::{FORMAT_VERSION, HEADER_BYTES, offset};
use semel_core::store::StoreResult;

use super::{Inner, time};

/// How many objects are read at the same time.
pub(super) const AT_ONCE: usize = 16;

/// Where the sweeper of this process stands.
pub(super) struct Sweeper {
    on: bool,
    place: Mutex<Option<Path>>,
}

impl Sweeper {
    pub(super) const fn new(on: bool) -> Self {
        Self {
            on,
            place: Mutex::new(None),
        }
    }
}

impl Inner {
    /// Whether this process may remove anything: it was not told to leave that to a rule, and the server can delete
    /// exactly what was read. Otherwise a key that is claimed anew at that moment would be forgotten.
    pub(super) const fn can_sweep(&self) -> bool {
        self.sweeper.on && self.fitness.deletes
    }

    /// Goes on from where the last one ended, looks at `most` objects, and removes those that expired.
    pub(super) async fn sweep(&self, most: usize) -> StoreResult<usize> {
        if !self.can_sweep() {
            return Ok(0);
        }
        let place = self.sweeper.place.lock().clone();
        let mut listing = self.link.list(&self.root, place.as_ref());
        let (mut looked_at, mut removed) = (0, 0);
        while looked_at < most {
            let lot = self
                .lot(&mut listing, AT_ONCE.min(most - looked_at))
                .await?;
            *self.sweeper.place.lock() = lot.last().map(|meta| meta.location.clone());
            if lot.is_empty() {
                break;
            }
            looked_at += lot.len();
            let found = futures_util::stream::iter(lot)
                .map(|meta| self.remove_if_expired(meta))
                .buffer_unordered(AT_ONCE)
                .collect::<Vec<_>>();
            for found in found.await {
                removed += usize::from(found?);
            }
        }
        Ok(removed)
    }

    /// How many there are, up to `most`.
    pub(super) async fn count_expired(&self, most: usize) -> StoreResult<usize> {
        let mut listing = self.link.list(&self.root, None);
        let mut count = 0;
        while count < most {
            let lot = self.lot(&mut listing, AT_ONCE).await?;
            if lot.is_empty() {
                break;
            }
            let found = futures_util::stream::iter(lot)
                .map(|meta| async move { self.expired_tag(&meta).await })
                .buffer_unordered(AT_ONCE)
                .collect::<Vec<_>>();
            for found in found.await {
                count += usize::from(found?.is_some());
            }
        }
        Ok(count.min(most))
    }

    /// The next few of a listing.
    pub(super) async fn lot(
        &self,
        listing: &mut super::link::Listing,
        most: usize,
    ) -> StoreResult<Vec<ObjectMeta>> {
        let mut lot = Vec::with_capacity(most);
        while lot.len() < most {
            match self.link.next(listing).await? {
                Some(meta) => lot.push(meta),
                None => break,
            }
        }
        Ok(lot)
    }

    async fn remove_if_expired(&self, meta: ObjectMeta) -> StoreResult<bool> {
        match self.expired_tag(&meta).await? {
            Some(tag) => self.link.delete(&meta.location, Some(tag)).await,
            None => Ok(false),
        }
    }

    /// The tag of an expired record; `None` where it is live, or is no record that we can read.
    async fn expired_tag(&self, meta: &ObjectMeta) -> StoreResult<Option<String>> {
        if self.address(&meta.location).is_none() || meta.size < HEADER_BYTES as u64 {
            return Ok(None);
        }
        let header = Some(HEADER_BYTES as u64);
        let Some(found) = self.link.get(&meta.location, header).await? else {
            return Ok(None);
        };
        let Some((believed, retention)) = spans(&found.bytes) else {
            return Ok(None);
        };
        let end = time::written(believed, found.noted).plus(retention);
        let is_past = self.link.time.now() >= end.plus(self.margin);
        Ok(found.version.e_tag.filter(|_| is_past))
    }
}

/// When it was written, as the writer believed, and for how long.
fn spans(header: &Bytes) -> Option<(Timestamp, Duration)> {
    let number = |at: usize| {
        let bytes = header.get(at..at + 8)?.try_into().ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    let is_known = header.get(offset::VERSION) == Some(&FORMAT_VERSION);
    let written = Timestamp::from_micros(number(offset::WRITTEN)?);
    let retention = Duration::from_millis(number(offset::RETENTION)?);
    is_known.then_some((written, retention))
}
