//! What the records cost: asked for by `semel bench`, never on the hot path.

use semel_core::store::StoreResult;

use super::SqliteStore;

/// What the file takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the pages in use, on disk; the write-ahead log aside.
    pub bytes: u64,
}

impl SqliteStore {
    /// What the file takes now.
    ///
    /// # Errors
    /// Where it can't be read.
    pub async fn usage(&self) -> StoreResult<Usage> {
        let question = "SELECT (page_count - freelist_count) * page_size * ? \
                        FROM pragma_page_count, pragma_freelist_count, pragma_page_size";
        let bytes = self.inner.reader.number(question, 1).await?;
        Ok(Usage {
            bytes: bytes.unsigned_abs(),
        })
    }
}
