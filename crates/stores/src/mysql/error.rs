//! Maps errors of MariaDB and MySQL to store errors: what is known, and whether to retry.

use std::time::Duration;

use semel_core::{Certainty, StoreError, StoreErrorKind};
use sqlx::mysql::{MySqlDatabaseError, MySqlRow};
use sqlx::{AssertSqlSafe, Error, MySql, MySqlConnection};

use super::row::Bound;
use crate::ServerError;
use crate::sql::dialect::{self, Dialect, Reply};
pub(super) use crate::sql::dialect::{unexpected, unfit};
use crate::sql::link::{Failure, PAUSE, RESENDS};

/// The key already has a row (duplicate key).
pub(super) const DUPLICATE: u16 = 1062;
/// Deadlock: this session was chosen as the victim.
pub(super) const DEADLOCK: u16 = 1213;
/// Lock wait timeout; also MariaDB's answer to `NOWAIT`.
pub(super) const LOCK_WAIT: u16 = 1205;
/// MySQL's answer to `NOWAIT`.
pub(super) const LOCK_NOWAIT: u16 = 3572;

/// A write in a transaction that may only read.
pub(super) const READ_ONLY: u16 = 1792;

/// The errors of MariaDB and MySQL, by number. For all others, nothing was changed, and only a
/// change of configuration helps.
pub const ERRORS: &[ServerError] = &{
    use Certainty::{Definite, Unknown};
    use StoreErrorKind::{Full, Rejected, Unavailable};
    [
        ServerError::new("1021", Full, Definite, "the disk is full"),
        ServerError::new("1030", Full, Definite, "the storage engine failed"),
        ServerError::new("1114", Full, Definite, "the table has reached its limit"),
        // Killed by an administrator or a shutdown, possibly in the middle of a commit.
        ServerError::new("1053", Unavailable, Unknown, "the server shuts down"),
        ServerError::new("1077", Unavailable, Unknown, "the server shuts down"),
        ServerError::new("1079", Unavailable, Unknown, "the server has shut down"),
        ServerError::new("1180", Unavailable, Unknown, "the commit failed"),
        ServerError::new("1184", Unavailable, Unknown, "the connection was aborted"),
        ServerError::new("1927", Unavailable, Unknown, "the session was killed"),
        ServerError::new("3169", Unavailable, Unknown, "the session was killed"),
        ServerError::new(
            "4031",
            Unavailable,
            Unknown,
            "the session was idle for too long",
        ),
        ServerError::new(
            "1213",
            Unavailable,
            Definite,
            "a deadlock: this session gave way",
        ),
        ServerError::new(
            "1205",
            Unavailable,
            Definite,
            "a row stayed locked for too long",
        ),
        ServerError::new("3572", Unavailable, Definite, "a row is locked"),
        ServerError::new("1037", Unavailable, Definite, "out of memory"),
        ServerError::new("1040", Unavailable, Definite, "too many connections"),
        ServerError::new("1041", Unavailable, Definite, "out of memory"),
        ServerError::new(
            "1135",
            Unavailable,
            Definite,
            "no thread for another connection",
        ),
        ServerError::new(
            "1203",
            Unavailable,
            Definite,
            "too many connections of this user",
        ),
        ServerError::new(
            "1226",
            Unavailable,
            Definite,
            "the user's limit of resources is reached",
        ),
        ServerError::new("1317", Unavailable, Definite, "the statement was cancelled"),
        ServerError::new(
            "1969",
            Unavailable,
            Definite,
            "the statement took too long (MariaDB)",
        ),
        ServerError::new(
            "3024",
            Unavailable,
            Definite,
            "the statement took too long (MySQL)",
        ),
        ServerError::new(
            "1047",
            Unavailable,
            Definite,
            "a Galera node that is not synchronised",
        ),
        ServerError::new(
            "3101",
            Unavailable,
            Definite,
            "group replication rolled the statement back",
        ),
        ServerError::new(
            "1290",
            Unavailable,
            Definite,
            "the server may only be read now",
        ),
        ServerError::new(
            "1792",
            Unavailable,
            Definite,
            "the transaction may only read",
        ),
        ServerError::new(
            "1836",
            Unavailable,
            Definite,
            "the server may only be read now",
        ),
        ServerError::new("1142", Rejected, Definite, "the user may not use the table"),
        ServerError::new(
            "1143",
            Rejected,
            Definite,
            "the user may not use the column",
        ),
        ServerError::new("1146", Rejected, Definite, "the tables are not there"),
        ServerError::new("1153", Rejected, Definite, "larger than max_allowed_packet"),
        ServerError::new(
            "1370",
            Rejected,
            Definite,
            "the user may not call the routine",
        ),
        ServerError::new("1665", Rejected, Definite, "binlog_format is STATEMENT"),
    ]
};

pub(super) fn store_error(error: Error) -> StoreError {
    dialect::store_error::<My>(error)
}

pub(super) fn not_sent(error: Error) -> StoreError {
    dialect::not_sent::<My>(error)
}

/// The server's number, such as 1213.
pub(super) fn number(error: &Error) -> Option<u16> {
    let error = error.as_database_error()?;
    Some(error.try_downcast_ref::<MySqlDatabaseError>()?.number())
}

/// The dialect of MariaDB and MySQL.
pub struct My;

/// Session settings: no gap locks, every statement sees committed data, and a lock wait is short.
const SESSION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                       SET SESSION innodb_lock_wait_timeout = 2, autocommit = 1";

/// How many times a statement is retried after a deadlock, and after a lock wait timeout.
const DEADLOCKS: usize = 16;
const LOCK_WAITS: usize = 1;
const SHORT_PAUSE: Duration = Duration::from_millis(2);

impl Dialect for My {
    type Db = MySql;
    type Bound = Bound;

    /// What the number of rows says, and what it doesn't: see [`super::sql`].
    async fn send(
        connection: &mut MySqlConnection,
        statement: Bound,
        wants_rows: bool,
    ) -> Result<Reply<Self>, Error> {
        if wants_rows {
            return Ok(Reply::rows(statement.fetch_all(connection).await?));
        }
        let done = statement.execute(connection).await?;
        Ok(Reply {
            rows: Vec::new(),
            affected: done.rows_affected(),
            last_id: done.last_insert_id(),
        })
    }

    async fn script(connection: &mut MySqlConnection, text: &str) -> Result<Vec<MySqlRow>, Error> {
        let script = sqlx::raw_sql(AssertSqlSafe(text));
        script.fetch_all(connection).await
    }

    async fn set_up(connection: &mut MySqlConnection) -> Result<(), Error> {
        sqlx::raw_sql(SESSION).execute(connection).await.map(drop)
    }

    fn is_broken(error: &Error) -> bool {
        is_broken(error)
    }

    fn resends(error: &Error) -> (usize, Duration) {
        match number(error) {
            Some(DEADLOCK) => (DEADLOCKS, SHORT_PAUSE),
            Some(LOCK_WAIT) => (LOCK_WAITS, SHORT_PAUSE),
            _ if is_broken(error) => (RESENDS, PAUSE),
            _ => (0, PAUSE),
        }
    }

    fn classify(error: &Error) -> Option<(StoreErrorKind, Certainty)> {
        let row = ServerError::find(ERRORS, &number(error)?.to_string());
        Some(
            row.map_or((StoreErrorKind::Rejected, Certainty::Definite), |row| {
                (row.kind, row.certainty)
            }),
        )
    }

    fn hint(error: &Error) -> Option<&'static str> {
        number(error).and_then(hint)
    }
}

/// Whether the server gave this number.
pub(super) fn has_number(failure: &Failure<My>, wanted: u16) -> bool {
    number(&failure.error) == Some(wanted)
}

/// Advice for common mistakes.
fn hint(number: u16) -> Option<&'static str> {
    match number {
        1146 => Some(
            "the tables are not there; leave out migrate=off, or apply the files in migrations/mysql",
        ),
        1142 | 1143 | 1370 => Some(
            "the user may not use the tables semel_…; grant it select, insert, update and delete on them",
        ),
        1665 => Some(
            "binlog_format is STATEMENT, which READ COMMITTED doesn't go with; set it to ROW or MIXED",
        ),
        1153 => Some(
            "the answer is larger than the server's max_allowed_packet; raise that, or keep smaller answers",
        ),
        _ => None,
    }
}

/// Whether the connection is broken: the last statement may have been executed.
pub fn is_broken(error: &Error) -> bool {
    match number(error) {
        Some(number) => matches!(
            number,
            1053 | 1077 | 1079 | 1153 | 1184 | 1927 | 3169 | 4031
        ),
        None => !matches!(error, Error::RowNotFound | Error::ColumnDecode { .. }),
    }
}
