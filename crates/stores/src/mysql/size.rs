//! What the records cost the server, for `semel bench`. Never on the hot path.

use semel_core::store::StoreResult;
use sqlx::Row as _;

use super::MySqlStore;
use super::error::unexpected;

/// The resources that the server has used so far. The cost of some work is the difference of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MySqlUsage {
    /// Of the table and its index, on disk, as the server's own statistics say.
    pub bytes: u64,
    /// Written to InnoDB's log, by everything on the server.
    pub log_bytes: u64,
}

impl MySqlStore {
    /// The resources that the server has used so far.
    ///
    /// # Errors
    /// If it doesn't answer.
    pub async fn usage(&self) -> StoreResult<MySqlUsage> {
        let mut session = self.inner.link.session(None).await?;
        session.script("ANALYZE TABLE semel_records").await?;
        let size = "SELECT CAST(data_length + index_length AS CHAR) FROM information_schema.tables \
                    WHERE table_schema = DATABASE() AND table_name = 'semel_records'";
        let size = session.script(size).await?;
        let log = session
            .script("SHOW GLOBAL STATUS LIKE 'Innodb_os_log_written'")
            .await?;
        session.give_back();
        let number = |rows: &[sqlx::mysql::MySqlRow], index: usize| {
            let text = rows
                .first()
                .and_then(|row| row.try_get::<String, _>(index).ok());
            text.and_then(|text| text.parse().ok())
                .ok_or_else(|| unexpected("no size"))
        };
        Ok(MySqlUsage {
            bytes: number(&size, 0)?,
            log_bytes: number(&log, 1)?,
        })
    }
}
