//! Removes expired records, a batch at a time: reads the header of each object, and deletes exactly
//! the version that was read. A lifecycle rule of the bucket does the same without requests; see
//! `lifecycle`.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use object_store::ObjectMeta;
use object_store::path::Path;
use parking_lot::Mutex;
use semel_core::Timestamp;
use semel_core::record::{ENCRYPTED_VERSION, FORMAT_VERSION, HEADER_BYTES, offset};
use semel_core::store::StoreResult;

use super::{Inner, time};

/// How many objects are read at the same time.
pub(super) const AT_ONCE: usize = 16;

/// How many records one sweep reads. Each read is a request that costs money.
const LOOKS: usize = 10_000;

/// The position of this process's sweeper.
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
    /// Whether this process may remove records: it isn't configured to leave that to a lifecycle
    /// rule, and the server can delete exactly the version that was read. Otherwise a key that is
    /// claimed at that moment would lose its record.
    pub(super) const fn can_sweep(&self) -> bool {
        self.sweeper.on && self.fitness.deletes
    }

    /// Goes on from where the last one ended, and removes about `most` records that expired: fewer
    /// if the bucket ends before, or after so many looks.
    pub(super) async fn sweep(&self, most: usize) -> StoreResult<usize> {
        if !self.can_sweep() {
            return Ok(0);
        }
        let place = self.sweeper.place.lock().clone();
        let mut listing = self.link.list(&self.root, place.as_ref());
        let (mut looked_at, mut removed) = (0, 0);
        while removed < most && looked_at < LOOKS {
            let lot = self.lot(&mut listing, u64::MAX).await?;
            *self.sweeper.place.lock() = lot.last().map(|meta| meta.location.clone());
            if lot.is_empty() {
                break;
            }
            // Foreign objects are skipped by name.
            looked_at += lot.iter().filter(|meta| self.is_record(meta)).count();
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

    /// Counts expired records, up to `most`.
    pub(super) async fn count_expired(&self, most: usize) -> StoreResult<usize> {
        let mut listing = self.link.list(&self.root, None);
        let mut count = 0;
        while count < most {
            let lot = self.lot(&mut listing, u64::MAX).await?;
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

    /// The next few of a listing: as many as are read at the same time, or fewer if the records
    /// among them take more than `room` bytes.
    pub(super) async fn lot(
        &self,
        listing: &mut super::link::Listing,
        room: u64,
    ) -> StoreResult<Vec<ObjectMeta>> {
        let (mut lot, mut bytes) = (Vec::with_capacity(AT_ONCE), 0);
        while lot.len() < AT_ONCE && bytes < room {
            let Some(meta) = self.link.next(listing).await? else {
                break;
            };
            bytes += self.size(&meta);
            lot.push(meta);
        }
        Ok(lot)
    }

    fn is_record(&self, meta: &ObjectMeta) -> bool {
        self.address(&meta.location).is_some()
    }

    /// How much there is to read of it; nothing if it is no record.
    pub(super) fn size(&self, meta: &ObjectMeta) -> u64 {
        if self.is_record(meta) { meta.size } else { 0 }
    }

    async fn remove_if_expired(&self, meta: ObjectMeta) -> StoreResult<bool> {
        match self.expired_tag(&meta).await? {
            Some(tag) => self.link.delete(&meta.location, Some(tag)).await,
            None => Ok(false),
        }
    }

    /// The tag of an expired record; `None` if it is live, or is no record that we can read.
    async fn expired_tag(&self, meta: &ObjectMeta) -> StoreResult<Option<String>> {
        if !self.is_record(meta) || meta.size < HEADER_BYTES as u64 {
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
    let version = header.get(offset::VERSION);
    let is_known = [FORMAT_VERSION, ENCRYPTED_VERSION]
        .iter()
        .any(|known| version == Some(known));
    let written = Timestamp::from_micros(number(offset::WRITTEN)?);
    let retention = Duration::from_millis(number(offset::RETENTION)?);
    is_known.then_some((written, retention))
}
