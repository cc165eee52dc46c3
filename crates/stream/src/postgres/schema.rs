//! The tables, made from the files in `migrations/postgres`.
//!
//! They stand in the schema and in the books of the records' tables (`semel.migrations`), and need
//! none of these.

use sqlx::{Acquire as _, PgPool, Row as _};

use super::InboxError;

/// The files, in order: name and text. Whoever doesn't let Semel make tables applies them by hand,
/// in a schema `semel`, and notes their names in `semel.migrations (name text, applied_at
/// timestamptz)`.
pub const MIGRATIONS: &[(&str, &str)] = &[(
    "stream_0001",
    include_str!("../../migrations/postgres/0001_stream.sql"),
)];

const BOOKS: &str = "SELECT pg_advisory_xact_lock(7306636); CREATE SCHEMA IF NOT EXISTS semel; \
     CREATE TABLE IF NOT EXISTS semel.migrations \
     (name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())";

/// Makes the tables that are not there yet, all or nothing. Of several processes that start at
/// once, one does it.
///
/// # Errors
/// [`InboxError::Database`].
pub async fn migrate(pool: &PgPool) -> Result<(), InboxError> {
    let mut connection = pool.acquire().await?;
    let mut transaction = connection.begin().await?;
    sqlx::raw_sql(BOOKS).execute(&mut *transaction).await?;
    for (name, text) in MIGRATIONS {
        let note =
            "INSERT INTO semel.migrations (name) VALUES ($1) ON CONFLICT DO NOTHING RETURNING name";
        let note = sqlx::query(note).persistent(false).bind(*name);
        let noted = note.fetch_optional(&mut *transaction).await?;
        if noted.is_some_and(|row| !row.is_empty()) {
            sqlx::raw_sql(*text).execute(&mut *transaction).await?;
        }
    }
    transaction.commit().await?;
    Ok(())
}
