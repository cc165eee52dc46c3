//! Requests to the server, with a time limit and a bound on concurrency.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, ObjectMeta, ObjectStore, PutMode, PutOptions, UpdateVersion,
};
use semel_core::env::SystemEntropy;
use semel_core::store::{Connections, StoreResult};
use semel_core::{Answer, Entropy as _, Record, RecordError, Timestamp};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::error::{store_error, too_late};
use super::http::{STAMP, Stamp};
use super::time::ServerTime;

/// How long one request may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The largest object that can be a record: header, label, checkpoint and answer, and room to grow.
const MOST_BYTES: usize =
    Answer::MAX_HEAD_BYTES + Answer::MAX_BODY_BYTES + Record::MAX_CHECKPOINT_BYTES + 64 * 1024;

/// How many times a read without an answer is retried.
const READS: u32 = 2;

/// The first pause between two tries, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Objects one after the other.
pub(super) type Listing = BoxStream<'static, Result<ObjectMeta, Error>>;

pub(super) struct Link {
    pub(super) objects: Arc<dyn ObjectStore>,
    pub(super) time: Arc<ServerTime>,
    room: Semaphore,
    most: usize,
    exhausted: AtomicU64,
}

/// An object as it was found.
pub(super) struct FoundObject {
    pub(super) version: UpdateVersion,
    /// When the server says that it was written, to the second.
    pub(super) noted: Timestamp,
    pub(super) bytes: Bytes,
}

impl Link {
    pub(super) fn new(
        objects: Arc<dyn ObjectStore>,
        time: Arc<ServerTime>,
        requests: usize,
    ) -> Self {
        Self {
            objects,
            time,
            room: Semaphore::new(requests),
            most: requests,
            exhausted: AtomicU64::new(0),
        }
    }

    /// Writes on the condition that there is no object, or exactly `instead_of`. `None` if the
    /// condition failed, or if the server could not check it because of a concurrent write (409):
    /// read, and decide again.
    pub(super) async fn put(
        &self,
        path: &Path,
        bytes: Bytes,
        instead_of: Option<&UpdateVersion>,
    ) -> StoreResult<Option<UpdateVersion>> {
        let mode = match instead_of {
            Some(version) => PutMode::Update(version.clone()),
            None => PutMode::Create,
        };
        let stamp = Stamp::new(name_of(path), None);
        let options = PutOptions::from(mode);
        let put = self.objects.put_opts(path, bytes.into(), options);
        match self.send(&stamp, put).await? {
            Ok(put) => Ok(Some(UpdateVersion {
                e_tag: put.e_tag,
                version: put.version,
            })),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(None),
            Err(Error::NotModified { .. }) => Ok(None),
            Err(error) => Err(store_error(&stamp, &error)),
        }
    }

    /// Writes unconditionally.
    pub(super) async fn write(&self, path: &Path, bytes: Bytes) -> StoreResult<()> {
        let stamp = Stamp::new(name_of(path), None);
        let put = self
            .objects
            .put_opts(path, bytes.into(), PutOptions::default());
        match self.send(&stamp, put).await? {
            Ok(_) => Ok(()),
            Err(error) => Err(store_error(&stamp, &error)),
        }
    }

    /// Reads an object, or only its first bytes. Harmless, so it is sent again if no answer came: a
    /// connection that the server has just closed because it was idle looks like that.
    pub(super) async fn get(
        &self,
        path: &Path,
        first: Option<u64>,
    ) -> StoreResult<Option<FoundObject>> {
        for tried in 0..READS {
            match self.get_once(path, first).await {
                Err(error) if error.is_transient() => self.pause(tried).await,
                answer => return answer,
            }
        }
        self.get_once(path, first).await
    }

    async fn get_once(&self, path: &Path, first: Option<u64>) -> StoreResult<Option<FoundObject>> {
        let stamp = Stamp::new(name_of(path), None);
        let options = GetOptions {
            range: first.map(|first| GetRange::Bounded(0..first)),
            ..GetOptions::default()
        };
        let get = async {
            let found = self.objects.get_opts(path, options).await?;
            let meta = found.meta.clone();
            // Somebody else's object may be of any size.
            if found.range.end - found.range.start > MOST_BYTES as u64 {
                return Ok((meta, None));
            }
            Ok((meta, Some(found.bytes().await?)))
        };
        let (meta, bytes) = match self.send(&stamp, get).await? {
            Ok(found) => found,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(store_error(&stamp, &error)),
        };
        let noted = u64::try_from(meta.last_modified.timestamp()).unwrap_or(0);
        Ok(Some(FoundObject {
            bytes: bytes.ok_or(RecordError::Malformed("larger than any record"))?,
            noted: Timestamp::from_micros(noted.saturating_mul(1_000_000)),
            version: UpdateVersion {
                e_tag: meta.e_tag,
                version: meta.version,
            },
        }))
    }

    /// Deletes exactly this version, if the server supports that. `false` if the object has another
    /// version by now.
    pub(super) async fn delete(&self, path: &Path, tag: Option<String>) -> StoreResult<bool> {
        let stamp = Stamp::new(name_of(path), tag);
        let one = futures_util::stream::iter([Ok(path.clone())]).boxed();
        let delete = self.objects.delete_stream(one).try_collect::<Vec<_>>();
        match self.send(&stamp, delete).await? {
            Ok(_) => Ok(true),
            Err(Error::Precondition { .. } | Error::NotFound { .. }) => Ok(false),
            Err(Error::AlreadyExists { .. }) => Ok(false), // 409: another was at it.
            Err(error) => Err(store_error(&stamp, &error)),
        }
    }

    /// What lies under `root`, in order, after `after`.
    pub(super) fn list(&self, root: &Path, after: Option<&Path>) -> Listing {
        let listing = match after.cloned() {
            Some(after) => {
                let listing = self.objects.list_with_offset(Some(root), &after);
                // Some servers ignore the start and begin at the beginning.
                listing
                    .try_filter(move |meta| std::future::ready(meta.location > after))
                    .boxed()
            }
            None => self.objects.list(Some(root)),
        };
        // Fused, because the library's stream panics if it is polled after its end.
        listing.fuse().boxed()
    }

    /// The next of a listing.
    pub(super) async fn next(&self, listing: &mut Listing) -> StoreResult<Option<ObjectMeta>> {
        // A listing asks for the bucket.
        let stamp = Stamp::new("", None);
        let next = self.send(&stamp, listing.try_next()).await?;
        next.map_err(|error| store_error(&stamp, &error))
    }

    /// The folders that lie in `folder`.
    pub(super) async fn folders(&self, folder: &Path) -> StoreResult<Vec<Path>> {
        let stamp = Stamp::new("", None);
        let listing = self.objects.list_with_delimiter(Some(folder));
        match self.send(&stamp, listing).await? {
            Ok(found) => Ok(found.common_prefixes),
            Err(error) => Err(store_error(&stamp, &error)),
        }
    }

    /// Sends one request within the bound on concurrency and the time limit.
    async fn send<T>(
        &self,
        stamp: &Arc<Stamp>,
        request: impl Future<Output = T>,
    ) -> StoreResult<T> {
        let _place = self.enter().await?;
        let request = pin!(STAMP.scope(Arc::clone(stamp), request));
        match select(request, self.time.clock().sleep(LIMIT)).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right(_) => Err(too_late()),
        }
    }

    async fn enter(&self) -> StoreResult<SemaphorePermit<'_>> {
        if let Ok(place) = self.room.try_acquire() {
            return Ok(place);
        }
        self.exhausted.fetch_add(1, Ordering::Relaxed);
        // Never closed.
        self.room.acquire().await.map_err(|_| too_late())
    }

    pub(super) fn connections(&self) -> Connections {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Connections::new(count(self.most - self.room.available_permits()))
            .with_most(count(self.most))
            .with_exhausted(self.exhausted.load(Ordering::Relaxed))
    }

    /// Backs off: twice as long each time, with random jitter.
    pub(super) async fn pause(&self, tried: u32) {
        let (first, longest) = PAUSES;
        let most = first.saturating_mul(1 << tried.min(6)).min(longest);
        let chance = (SystemEntropy.next_u128() % 1000) as f64 / 1000.0;
        self.time
            .clock()
            .sleep(most.mul_f64(0.5 + chance / 2.0))
            .await;
    }
}

/// The last part of a path. All of ours are letters and digits, which no client writes in another
/// way.
fn name_of(path: &Path) -> &str {
    path.filename().unwrap_or_default()
}
