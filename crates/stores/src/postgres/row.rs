//! A record as a row, and back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use semel_core::identity::Address;
use semel_core::store::StoreResult;
use semel_core::{
    Answer, Body, CrashPolicy, Fence, Fingerprint, Identity, KeyHint, Namespace, Record,
    RecordError, State, Timestamp, Token,
};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::types::Uuid;
use sqlx::{Error, Postgres, Row as _};

/// A statement with its arguments so far.
pub(super) type Bound = Query<'static, Postgres, PgArguments>;

/// A record as it was found.
pub(super) struct Seen {
    pub(super) address: Address,
    pub(super) record: Record,
    /// The server's time when it was.
    pub(super) now: Timestamp,
    /// Where its body is, if that is kept apart; the record's own is empty until it is fetched.
    pub(super) body_day: Option<i32>,
}

/// What a row holds: a record, or something that this version can't read.
pub(super) type Found = Result<Seen, RecordError>;

/// Reads a row with the columns of [`super::sql::COLUMNS`].
pub(super) fn parse(row: &PgRow) -> Result<Found, Error> {
    let format: i16 = row.try_get(8)?;
    if format != 1 {
        return Ok(Err(RecordError::UnknownVersion(
            u8::try_from(format).unwrap_or(u8::MAX),
        )));
    }
    let body_day: Option<i32> = row.try_get(22)?;
    let (Some(state), Some(crash)) = (state(row.try_get(9)?), crash(row.try_get(10)?)) else {
        return Ok(Err(RecordError::Malformed("no such state")));
    };
    let answer = answer(row, body_day)?;
    if answer.is_some() != matches!(state, State::Completed | State::Failed) {
        return Ok(Err(RecordError::Malformed(
            "an answer that doesn't fit the state",
        )));
    }
    let parts: [&str; 3] = [row.try_get(14)?, row.try_get(15)?, row.try_get(16)?];
    let fingerprint = <[u8; Fingerprint::BYTES]>::try_from(row.try_get::<&[u8], _>(13)?);
    let (Ok(namespace), Ok(fingerprint)) =
        (Namespace::new(parts[0], parts[1], parts[2]), fingerprint)
    else {
        return Ok(Err(RecordError::Malformed("namespace or fingerprint")));
    };
    let millis = |value: i64| Duration::from_millis(value.unsigned_abs());
    let record = Record {
        seal: row.try_get::<Uuid, _>(11)?.into_bytes(),
        state,
        crash,
        fence: Fence(unsigned(row.try_get(0)?)),
        token: Token(row.try_get::<Uuid, _>(12)?.as_u128()),
        attempt: row.try_get::<i16, _>(5)?.cast_unsigned(),
        max_attempts: row.try_get::<i16, _>(6)?.cast_unsigned(),
        fingerprint: Fingerprint::from_bytes(fingerprint),
        secret_id: row.try_get::<i16, _>(7)?.cast_unsigned(),
        lease: millis(row.try_get::<i32, _>(4)?.into()),
        retention: millis(row.try_get(3)?),
        created_at: Timestamp::from_micros(unsigned(row.try_get(1)?)),
        written_at: Timestamp::from_micros(unsigned(row.try_get(2)?)),
        namespace,
        hint: KeyHint::new(row.try_get(17)?),
        checkpoint: Bytes::copy_from_slice(
            row.try_get::<Option<&[u8]>, _>(18)?.unwrap_or_default(),
        ),
        answer,
    };
    Ok(Ok(Seen {
        address: row.try_get::<Uuid, _>(24)?.into_bytes(),
        record,
        now: Timestamp::from_micros(unsigned(row.try_get(23)?)),
        body_day,
    }))
}

fn answer(row: &PgRow, body_day: Option<i32>) -> Result<Option<Arc<Answer>>, Error> {
    let Some(head) = row.try_get::<Option<&[u8]>, _>(19)? else {
        return Ok(None);
    };
    let body = match (
        row.try_get::<Option<&[u8]>, _>(20)?,
        row.try_get::<Option<i64>, _>(21)?,
    ) {
        (Some(digest), Some(bytes)) => {
            let elsewhere = Body::elsewhere(bytes.cast_unsigned(), digest);
            elsewhere.map_err(|error| Error::Decode(error.into()))?
        }
        (Some(body), None) => Body::Kept(Bytes::copy_from_slice(body)),
        // Any length that a caller names is kept, in the same 64 bits.
        (None, Some(bytes)) if body_day.is_none() => Body::Omitted {
            bytes: bytes.cast_unsigned(),
        },
        (None, _) => Body::Kept(Bytes::new()),
    };
    let head = Bytes::copy_from_slice(head);
    Ok(Some(Arc::new(Answer { head, body })))
}

/// The record is used only if it is the one asked for (P24).
pub(super) fn check(found: Found, identity: &Identity) -> StoreResult<Seen> {
    let seen = found?;
    if seen.record.is_of(identity) && seen.address == identity.address() {
        Ok(seen)
    } else {
        Err(RecordError::Foreign.into())
    }
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
        .bind(some(&record.checkpoint));
    bind_answer(query, record.answer.as_deref(), body_day)
}

/// Adds head, body, length of a body that isn't kept, and the day of a body that is kept apart.
pub(super) fn bind_answer(query: Bound, answer: Option<&Answer>, body_day: Option<i32>) -> Bound {
    let head = answer.map(|answer| answer.head.to_vec());
    let (body, bytes) = match answer.map(|answer| &answer.body) {
        Some(Body::Kept(body)) if body_day.is_none() => (Some(body.to_vec()), None),
        Some(Body::Omitted { bytes }) => (None, Some(bytes.cast_signed())),
        Some(Body::Elsewhere { bytes, digest }) => {
            (Some(digest.to_vec()), Some(bytes.cast_signed()))
        }
        _ => (None, None),
    };
    query.bind(head).bind(body).bind(bytes).bind(body_day)
}

fn some(bytes: &Bytes) -> Option<Vec<u8>> {
    (!bytes.is_empty()).then(|| bytes.to_vec())
}

pub(super) fn uuid(token: Token) -> Uuid {
    Uuid::from_u128(token.0)
}

/// Fences and times stay far below the limit; what does not can't be in the table.
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

pub(super) fn whole_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn state(number: i16) -> Option<State> {
    let all = [
        State::Running,
        State::Completed,
        State::Failed,
        State::InDoubt,
        State::Released,
    ];
    all.into_iter().find(|state| *state as i16 == number)
}

fn crash(number: i16) -> Option<CrashPolicy> {
    let all = [CrashPolicy::Takeover, CrashPolicy::Hold];
    all.into_iter().find(|crash| *crash as i16 == number)
}
