//! A record as a row, and back.

use semel_core::{Answer, Record, Token};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::types::Uuid;
use sqlx::{Error, Postgres, Row as _};

use crate::sql::row::{Columns, answer_columns, is_known_format, unknown_format};
pub(super) use crate::sql::row::{ParsedRow, RowRecord, check, signed, whole_millis};

/// A statement with its arguments so far.
pub(super) type Bound = Query<'static, Postgres, PgArguments>;

/// Reads a row with the columns of [`super::sql::COLUMNS`].
pub(super) fn parse(row: &PgRow) -> Result<ParsedRow, Error> {
    let format: i16 = row.try_get(8)?;
    if !is_known_format(format.into()) {
        return Ok(Err(unknown_format(format.into())));
    }
    let [seal, token, address] = [
        row.try_get::<Uuid, _>(11)?,
        row.try_get::<Uuid, _>(12)?,
        row.try_get::<Uuid, _>(24)?,
    ];
    let text = |index| row.try_get::<&str, _>(index).map(str::as_bytes);
    let small = |index| row.try_get::<i16, _>(index).map(i16::cast_unsigned);
    let columns = Columns {
        address: address.as_bytes(),
        seal: seal.as_bytes(),
        token: token.as_bytes(),
        fence: row.try_get(0)?,
        created_us: row.try_get(1)?,
        written_us: row.try_get(2)?,
        retention_ms: row.try_get(3)?,
        lease_ms: row.try_get::<i32, _>(4)?.into(),
        attempt: small(5)?,
        max_attempts: small(6)?,
        secret_id: small(7)?,
        state: row.try_get::<i16, _>(9)?.into(),
        crash: row.try_get::<i16, _>(10)?.into(),
        fingerprint: row.try_get(13)?,
        names: [text(14)?, text(15)?, text(16)?, text(17)?],
        checkpoint: row.try_get(18)?,
        head: row.try_get(19)?,
        body: row.try_get(20)?,
        body_bytes: row.try_get(21)?,
        body_day: row.try_get(22)?,
        now_us: row.try_get(23)?,
    };
    Ok(columns.parse())
}

/// Adds a record's changing columns, in the order of the swap statement.
pub(super) fn bind(query: Bound, record: &Record, body_day: Option<i32>) -> Bound {
    let query = query
        .bind(signed(record.fence.0))
        .bind(signed(record.created_at.as_micros()))
        .bind(signed(record.written_at.as_micros()))
        .bind(whole_millis(record.retention))
        .bind(i32::try_from(record.lease.as_millis()).unwrap_or(i32::MAX))
        .bind(record.attempt.cast_signed())
        .bind(record.max_attempts.cast_signed())
        .bind(record.secret_id.cast_signed())
        .bind(record.state as i16)
        .bind(record.crash as i16)
        .bind(uuid(record.token))
        .bind(record.fingerprint.as_bytes().to_vec())
        .bind(record.namespace.environment().to_owned())
        .bind(record.namespace.tenant().to_owned())
        .bind(record.namespace.scope().to_owned())
        .bind(record.hint.as_str().to_owned())
        .bind((!record.checkpoint.is_empty()).then(|| record.checkpoint.to_vec()));
    bind_answer(query, record.answer.as_deref(), body_day)
}

/// Adds head, body, length of a body that isn't kept, and the day of a body that is kept apart.
pub(super) fn bind_answer(query: Bound, answer: Option<&Answer>, body_day: Option<i32>) -> Bound {
    let (head, body, bytes) = answer_columns(answer, body_day.is_some());
    query.bind(head).bind(body).bind(bytes).bind(body_day)
}

pub(super) fn uuid(token: Token) -> Uuid {
    Uuid::from_u128(token.0)
}
