//! Maps errors of PostgreSQL to store errors: what is known, and whether to retry.

use std::time::Duration;

use semel_core::{Certainty, StoreError, StoreErrorKind};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Error, PgConnection, Postgres};

use super::row::Bound;
use crate::ServerError;
pub(super) use crate::sql::dialect::unexpected;
use crate::sql::dialect::{self, Dialect, Reply};
use crate::sql::link::{PAUSE, RESENDS};

/// The errors of PostgreSQL, by SQLSTATE. A code that only the last row matches is a mistake in the
/// statement, which changed nothing.
pub const ERRORS: &[ServerError] = {
    use Certainty::{Definite, Unknown};
    use StoreErrorKind::{Full, Rejected, Unavailable};
    const fn row(
        code: &'static str,
        kind: StoreErrorKind,
        certainty: Certainty,
        meaning: &'static str,
    ) -> ServerError {
        ServerError::new(code, kind, certainty, meaning)
    }
    &[
        row("53100", Full, Definite, "the disk is full"),
        row(
            "53*",
            Unavailable,
            Definite,
            "too many connections, or out of memory",
        ),
        // In the middle of a commit, too.
        row(
            "57P01",
            Unavailable,
            Unknown,
            "an administrator ended the session, or the server shuts down",
        ),
        row("57P02", Unavailable, Unknown, "another session crashed"),
        row(
            "57P03",
            Unavailable,
            Definite,
            "the server is starting up or shutting down",
        ),
        row("57P04", Unavailable, Unknown, "the database was dropped"),
        row(
            "57P05",
            Unavailable,
            Unknown,
            "the session was idle for too long",
        ),
        row(
            "57014",
            Unavailable,
            Definite,
            "the statement was cancelled, or took too long",
        ),
        row(
            "40003",
            Unavailable,
            Unknown,
            "whether the statement was done is not known",
        ),
        row(
            "40*",
            Unavailable,
            Definite,
            "a conflict with another transaction, or a deadlock",
        ),
        row(
            "55P03",
            Unavailable,
            Definite,
            "a lock could not be had in time",
        ),
        row(
            "25006",
            Unavailable,
            Definite,
            "a replica, or a session that may only read",
        ),
        row(
            "25P02",
            Unavailable,
            Definite,
            "an earlier statement of the transaction failed",
        ),
        row(
            "25P03",
            Unavailable,
            Definite,
            "the transaction was idle for too long, and the session ended",
        ),
        row(
            "25P04",
            Unavailable,
            Unknown,
            "the transaction took too long, and the session ended",
        ),
        row(
            "58*",
            Unavailable,
            Definite,
            "the server's system failed: no file can be opened, read or written",
        ),
        row("08*", Unavailable, Unknown, "the connection failed"),
        row(
            "42P07",
            Unavailable,
            Definite,
            "another session has just made the partition for a body",
        ),
        row("42P01", Rejected, Definite, "the tables are not there"),
        row("3F000", Rejected, Definite, "the schema is not there"),
        row(
            "42883",
            Rejected,
            Definite,
            "a function of the schema is not there",
        ),
        row(
            "42501",
            Rejected,
            Definite,
            "the role may not use the schema",
        ),
        row(
            "26000",
            Rejected,
            Definite,
            "a prepared statement got lost behind a pooler",
        ),
        row(
            "42P05",
            Rejected,
            Definite,
            "a prepared statement is another's, behind a pooler",
        ),
        row(
            "23514",
            Rejected,
            Definite,
            "the partition for a body is not there",
        ),
        row("*", Rejected, Definite, "anything else"),
    ]
};

pub(super) fn store_error(error: Error) -> StoreError {
    dialect::store_error::<Pg>(error)
}

pub(super) fn not_sent(error: Error) -> StoreError {
    dialect::not_sent::<Pg>(error)
}

/// The error for a record whose body is missing in the table of bodies: the record is damaged, and
/// the key isn't free (P25).
pub(super) fn without_body() -> StoreError {
    let said = "a record without its body";
    StoreError::new(StoreErrorKind::Record, Certainty::Definite, said)
}

/// The server's code, such as `40001`.
pub(super) fn code(error: &Error) -> Option<String> {
    error
        .as_database_error()
        .and_then(|error| error.code().map(std::borrow::Cow::into_owned))
}

/// Another session came first: a conflict, a deadlock, a partition that has just been made.
const RACES: &[&str] = &["40001", "40P01", "42P07"];

/// Session settings. Every statement finds its rows by the primary key. A plan that was made while
/// the table was small must not read all of it later, so reading a table in sequence counts as
/// dear. Compiling a plan takes longer than any of ours.
const SESSION: &str = "SET seq_page_cost = 100; SET random_page_cost = 1; SET jit = off";

/// The dialect of PostgreSQL.
pub struct Pg;

impl Dialect for Pg {
    type Db = Postgres;
    type Bound = Bound;

    async fn send(
        connection: &mut PgConnection,
        statement: Bound,
        _wants_rows: bool,
    ) -> Result<Reply<Self>, Error> {
        Ok(Reply::rows(statement.fetch_all(connection).await?))
    }

    async fn script(connection: &mut PgConnection, text: &str) -> Result<Vec<PgRow>, Error> {
        let script = sqlx::raw_sql(AssertSqlSafe(text));
        script.fetch_all(connection).await
    }

    async fn set_up(connection: &mut PgConnection) -> Result<(), Error> {
        sqlx::raw_sql(SESSION).execute(connection).await.map(drop)
    }

    fn is_broken(error: &Error) -> bool {
        is_broken(error)
    }

    fn resends(error: &Error) -> (usize, Duration) {
        let code = code(error);
        let has_lost_a_race = code.is_some_and(|code| RACES.contains(&code.as_str()));
        match is_broken(error) || has_lost_a_race {
            true => (RESENDS, PAUSE),
            false => (0, PAUSE),
        }
    }

    fn classify(error: &Error) -> Option<(StoreErrorKind, Certainty)> {
        let row = ServerError::find(ERRORS, &code(error)?);
        Some(
            row.map_or((StoreErrorKind::Rejected, Certainty::Definite), |row| {
                (row.kind, row.certainty)
            }),
        )
    }

    fn hint(error: &Error) -> Option<&'static str> {
        hint(error)
    }
}

/// Advice for common mistakes.
fn hint(error: &Error) -> Option<&'static str> {
    match code(error)?.as_str() {
        "42P01" | "3F000" | "42883" => Some(
            "the tables are not there; leave out migrate=off, or apply the files in migrations/postgres",
        ),
        "26000" | "42P05" => Some(
            "prepared statements got lost: behind a pooler in transaction mode, add pooler=transaction to the URL",
        ),
        "42501" => Some(
            "the role may not use the schema semel; grant it usage on the schema, and select, insert, update and \
             delete on its tables",
        ),
        _ => None,
    }
}

/// Whether the connection is broken: the last statement may have been executed.
pub fn is_broken(error: &Error) -> bool {
    match code(error) {
        Some(code) => ["57P", "08", "25P03", "25P04"]
            .iter()
            .any(|beginning| code.starts_with(beginning)),
        None => !matches!(error, Error::RowNotFound | Error::ColumnDecode { .. }),
    }
}

/// Whether a row was refused because the partition for it is not there.
pub(super) fn is_without_partition(error: &Error) -> bool {
    code(error).is_some_and(|code| code == "23514")
}
