//! Objects of another crate's beside the records, in the same bucket, by the same rules: conditional writes, no retries that
//! could meet their own write, the server's time.

use bytes::Bytes;
use object_store::UpdateVersion;
use object_store::path::Path;
use semel_core::Timestamp;
use semel_core::store::StoreResult;

use super::{DEFAULT_PREFIX, ObjectStore};

/// Which state of an object was read or written.
pub type Version = UpdateVersion;

impl ObjectStore {
    /// The folder that the URL names; empty where it names none.
    #[must_use]
    pub fn folder(&self) -> Path {
        let root = &self.inner.root;
        if root.as_ref() == DEFAULT_PREFIX {
            return Path::default();
        }
        root.clone()
    }

    /// Writes an object where there is none (`instead_of` is `None`), or in the place of exactly that one. `None` where it lost.
    ///
    /// # Errors
    /// Where the server gives no answer: whether it was written is told by the error, or by a look.
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
    /// Where the server gives no answer.
    pub async fn get(&self, path: &Path) -> StoreResult<Option<(Bytes, Version)>> {
        let found = self.inner.link.get(path, None).await?;
        Ok(found.map(|found| (found.bytes, found.version)))
    }

    /// Removes exactly this object, where the server keeps to that; `false` where another is there by now.
    ///
    /// # Errors
    /// Where the server gives no answer.
    pub async fn remove(&self, path: &Path, version: &Version) -> StoreResult<bool> {
        self.inner.link.delete(path, version.e_tag.clone()).await
    }

    /// Up to `most` objects under `folder`, in order, after `after`.
    ///
    /// # Errors
    /// Where the server gives no answer.
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

    /// The folders that lie in `folder`. Servers differ in the order in which they list what lies in several, so who wants to
    /// know of them asks for them.
    ///
    /// # Errors
    /// Where the server gives no answer.
    pub async fn folders(&self, folder: &Path) -> StoreResult<Vec<Path>> {
        self.inner.link.folders(folder).await
    }

    /// The earliest that it can be on the server's clock now.
    #[must_use]
    pub fn server_time(&self) -> Timestamp {
        self.inner.link.time.now()
    }

    /// By how much an end has to be past before it counts.
    #[must_use]
    pub fn clock_margin(&self) -> std::time::Duration {
        self.inner.margin
    }

    /// Lets others finish: longer each time, and never two equally long.
    pub async fn pause(&self, tried: u32) {
        self.inner.link.pause(tried).await;
    }
}
