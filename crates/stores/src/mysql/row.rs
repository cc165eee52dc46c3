//! A record as a row, and back.

use semel_core::{Answer, Record, Token};
use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::query::Query;
use sqlx::{Error, MySql, Row as _};

use crate::sql::row::{Columns, answer_columns, format_of, is_known_format, unknown_format};
pub(super) use crate::sql::row::{ParsedRow, RowRecord, check, signed, whole_millis};

/// A statement with its arguments so far.
pub(super) type Bound = Query<'static, MySql, MySqlArguments>;

/// Reads a row with the columns of [`super::sql`].
pub(super) fn parse(row: &MySqlRow) -> Result<ParsedRow, Error> {
    let number = |index| row.try_get::<i64, _>(index);
    let small = |index| number(index).map(|value| u16::try_from(value).unwrap_or(u16::MAX));
    let format = number(11)?;
    if !is_known_format(format) {
        return Ok(Err(unknown_format(format)));
    }
    let columns = Columns {
        address: row.try_get(0)?,
        seal: row.try_get(1)?,
        token: row.try_get(2)?,
        fence: number(3)?,
        created_us: number(4)?,
        written_us: number(5)?,
        retention_ms: number(6)?,
        lease_ms: number(7)?,
        attempt: small(8)?,
        max_attempts: small(9)?,
        secret_id: small(10)?,
        state: number(12)?,
        crash: number(13)?,
        fingerprint: row.try_get(14)?,
        names: [
            row.try_get(15)?,
            row.try_get(16)?,
            row.try_get(17)?,
            row.try_get(18)?,
        ],
        body_bytes: row.try_get(19)?,
        checkpoint: row.try_get(20)?,
        head: row.try_get(21)?,
        body: row.try_get(22)?,
        body_day: None,
        now_us: number(23)?,
    };
    Ok(columns.parse())
}

/// Adds a record's changing columns, in the order of the swap statement.
pub(super) fn bind(query: Bound, record: &Record) -> Bound {
    let query = query
        .bind(signed(record.fence.0))
        .bind(signed(record.created_at.as_micros()))
        .bind(signed(record.written_at.as_micros()))
        .bind(whole_millis(record.retention))
        .bind(whole_millis(record.lease))
        .bind(record.attempt)
        .bind(record.max_attempts)
        .bind(record.secret_id)
        .bind(record.state as i8)
        .bind(record.crash as i8)
        .bind(bytes(record.token))
        .bind(record.fingerprint.as_bytes().to_vec())
        .bind(record.namespace.environment().as_bytes().to_vec())
        .bind(record.namespace.tenant().as_bytes().to_vec())
        .bind(record.namespace.scope().as_bytes().to_vec())
        .bind(record.hint.as_str().as_bytes().to_vec())
        .bind((!record.checkpoint.is_empty()).then(|| record.checkpoint.to_vec()));
    let head = record.answer.as_ref().map(|answer| &answer.head[..]);
    let format = format_of(Some(&record.checkpoint), head);
    bind_answer(query, record.answer.as_deref()).bind(format)
}

/// Adds head, body, and the length of a body that isn't kept.
pub(super) fn bind_answer(query: Bound, answer: Option<&Answer>) -> Bound {
    let (head, body, omitted) = answer_columns(answer, false);
    query.bind(head).bind(body).bind(omitted)
}

pub(super) fn bytes(token: Token) -> Vec<u8> {
    token.0.to_be_bytes().to_vec()
}
