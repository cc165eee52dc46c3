//! [`ObjectBodies`]: a blob store in a bucket for large bodies of other stores' records.

use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use semel_core::hex::hex;
use semel_core::store::StoreResult;
use semel_core::{BoxFuture, Clock, Digest, Identity};

use super::link::Link;
use super::time::ServerTime;
use super::url::Target;
use crate::compose::BodyStore;

/// Bodies in a bucket, in a folder for each key. Needs no conditional writes, because a body's name
/// is its digest. Cheap to clone.
///
/// The bucket itself removes old bodies, by the lifecycle rule that `semel lifecycle` prints.
#[derive(Clone)]
pub struct ObjectBodies {
    inner: Arc<Inner>,
}

struct Inner {
    link: Link,
    root: Path,
}

impl ObjectBodies {
    /// Uses the bucket at `url`, as [`ObjectStore::open`](super::ObjectStore::open) has it, after
    /// writing to it once.
    ///
    /// # Errors
    /// If the URL can't be used, or the server doesn't take a body.
    pub async fn open(url: &str, clock: Arc<dyn Clock>) -> StoreResult<Self> {
        let target = Target::parse(url)?;
        let time = Arc::new(ServerTime::new(clock));
        let link = Link::new(target.open(&time)?, time, target.requests);
        let root = target.root().join("bodies");
        // A bucket that can't be written fails at start, not with the first large answer.
        link.write(&root.clone().join("probe"), Bytes::new())
            .await?;
        let inner = Arc::new(Inner { link, root });
        Ok(Self { inner })
    }

    /// The folder of a key's bodies.
    #[must_use]
    pub fn folder_of(&self, identity: &Identity) -> Path {
        let name = hex(identity.as_bytes());
        self.inner.root.clone().join(&name[..2]).join(name)
    }

    fn path_of(&self, identity: &Identity, digest: &Digest) -> Path {
        self.folder_of(identity).join(hex(digest))
    }
}

impl BodyStore for ObjectBodies {
    fn put<'a>(
        &'a self,
        identity: &'a Identity,
        digest: &'a Digest,
        body: Bytes,
    ) -> BoxFuture<'a, StoreResult<()>> {
        let path = self.path_of(identity, digest);
        Box::pin(async move { self.inner.link.write(&path, body).await })
    }

    fn get<'a>(
        &'a self,
        identity: &'a Identity,
        digest: &'a Digest,
    ) -> BoxFuture<'a, StoreResult<Option<Bytes>>> {
        let path = self.path_of(identity, digest);
        Box::pin(async move {
            let found = self.inner.link.get(&path, None).await?;
            Ok(found.map(|found| found.bytes))
        })
    }

    fn forget<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<()>> {
        let folder = self.folder_of(identity);
        Box::pin(async move {
            let link = &self.inner.link;
            let mut listing = link.list(&folder, None);
            while let Some(found) = link.next(&mut listing).await? {
                link.delete(&found.location, None).await?;
            }
            Ok(())
        })
    }
}

impl std::fmt::Debug for ObjectBodies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ObjectBodies({})", self.inner.root)
    }
}
