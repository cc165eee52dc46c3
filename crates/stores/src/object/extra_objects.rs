//! Extra objects in the records' bucket, for other crates (used by `semel-jobs`).
//!
//! The same rules apply as for records: conditional writes (compare-and-swap), no retries that
//! could meet their own write, and the server's time.

use bytes::Bytes;
use object_store::UpdateVersion;
use object_store::path::Path;
use semel_core::Timestamp;
use semel_core::store::StoreResult;

use super::{DEFAULT_PREFIX, ObjectStore};

/// The version of an object that was read or written.
pub type Version = UpdateVersion;

impl ObjectStore {
    /// The folder that the URL names; empty if it names none.
    #[must_use]
    pub fn folder(&self) -> Path {
        extra_folder(&self.inner.root)
    }

    /// Creates an object (`instead_of` is `None`), or replaces exactly that version. `None` if
    /// another write came first.
    ///
    /// # Errors
    /// If the server gives no answer. If the error is uncertain, read the object to see whether it
    /// was written.
    pub async fn put(
        &self,
        path: &Path,
        bytes: Bytes,
        instead_of: Option<&Version>,
    ) -> StoreResult<Option<Version>> {
        self.inner.link.put(path, bytes, instead_of).await
    }

    /// Reads an object.
    ///
    /// # Errors
    /// If the server gives no answer.
    pub async fn get(&self, path: &Path) -> StoreResult<Option<(Bytes, Version)>> {
        let found = self.inner.link.get(path, None).await?;
        Ok(found.map(|found| (found.bytes, found.version)))
    }

    /// Removes exactly this version, if the server supports that. `false` if the object has another
    /// version by now.
    ///
    /// # Errors
    /// If the server gives no answer.
    pub async fn remove(&self, path: &Path, version: &Version) -> StoreResult<bool> {
        self.inner.link.delete(path, version.e_tag.clone()).await
    }

    /// Lists up to `most` objects under `folder`, in order, after `after`.
    ///
    /// # Errors
    /// If the server gives no answer.
    pub async fn names(
        &self,
        folder: &Path,
        after: Option<&Path>,
        most: usize,
    ) -> StoreResult<Vec<Path>> {
        let mut listing = self.inner.link.list(folder, after);
        let mut names = Vec::new();
        while names.len() < most {
            match self.inner.link.next(&mut listing).await? {
                Some(meta) => names.push(meta.location),
                None => break,
            }
        }
        Ok(names)
    }

    /// Lists the folders in `folder`. Servers differ in the order in which they list objects across
    /// folders.
    ///
    /// # Errors
    /// If the server gives no answer.
    pub async fn folders(&self, folder: &Path) -> StoreResult<Vec<Path>> {
        self.inner.link.folders(folder).await
    }

    /// The earliest possible time on the server's clock.
    #[must_use]
    pub fn server_time(&self) -> Timestamp {
        self.inner.link.time.now()
    }

    /// How long after its end a lease or record counts as ended, to allow for the uncertainty of
    /// the clock.
    #[must_use]
    pub fn clock_margin(&self) -> std::time::Duration {
        self.inner.margin
    }

    /// Backs off after a lost write: longer each time, with random jitter.
    pub async fn pause(&self, tried: u32) {
        self.inner.link.pause(tried).await;
    }
}

/// Where other objects lie in a bucket whose records lie in `root`.
pub(super) fn extra_folder(root: &Path) -> Path {
    if root.as_ref() == DEFAULT_PREFIX {
        return Path::default();
    }
    root.clone()
}
