//! What the records cost, for `semel bench`. Never on the hot path.

use semel_core::store::StoreResult;

use super::SqliteStore;

/// The size of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqliteUsage {
    /// Of the pages in use, on disk; the write-ahead log aside.
    pub bytes: u64,
}

impl SqliteStore {
    /// The current size of the file.
    ///
    /// # Errors
    /// If it can't be read.
    pub async fn usage(&self) -> StoreResult<SqliteUsage> {
        let question = "SELECT (page_count - freelist_count) * page_size * ? \
                        FROM pragma_page_count, pragma_freelist_count, pragma_page_size";
        let bytes = self.inner.reader.number(question, 1).await?;
        Ok(SqliteUsage {
            bytes: bytes.unsigned_abs(),
        })
    }
}
