//! A job as a row, and back.

use bytes::Bytes;
use semel_core::store::StoreResult;
use semel_core::{Fence, Fingerprint, Identity, KeyHint, StoreError, Timestamp, Token};
use semel_stores::postgres::PostgresStore;
use sqlx::postgres::PgRow;
use sqlx::types::Uuid;
use std::time::Duration;

use crate::error::Error;
use crate::job::{Job, JobAnswer, JobId, JobState, RequestId};
use crate::work::LeaseToken;

/// A job as its end needs it.
#[derive(Clone)]
pub(super) struct LeasedRow {
    pub(super) id: JobId,
    pub(super) request_id: RequestId,
    pub(super) state: JobState,
    pub(super) lease: Option<LeaseToken>,
    pub(super) worker: Option<String>,
    pub(super) attempt: u16,
    pub(super) max_attempts: u16,
    pub(super) tenant: String,
    /// `None`: submitted without a key.
    pub(super) record: Option<KeyRecord>,
}

/// What a job knows of the record of its key.
#[derive(Clone)]
pub(super) struct KeyRecord {
    pub(super) identity: Identity,
    pub(super) fence: Fence,
    pub(super) token: Token,
    pub(super) fingerprint: Fingerprint,
    pub(super) secret_id: u16,
    pub(super) retention: Duration,
    pub(super) hint: KeyHint,
    pub(super) scope: String,
}

/// The columns of [`held`].
macro_rules! held_columns {
    () => {
        "id, request_id, state, lease, worker, attempt, max_attempts, tenant, address, seal, fence, token, fingerprint, \
         secret_id, retention_ms, hint, scope"
    };
}
pub(super) use held_columns;

pub(super) const HELD: &str = concat!("SELECT ", held_columns!(), " FROM semel.jobs WHERE id = $1");

pub(super) fn held(row: &PgRow) -> Result<LeasedRow, Error> {
    let id: Uuid = PostgresStore::column(row, 0)?;
    let request: Uuid = PostgresStore::column(row, 1)?;
    let lease: Option<Uuid> = PostgresStore::column(row, 3)?;
    Ok(LeasedRow {
        id: JobId::from_u128(id.as_u128()),
        request_id: RequestId::from_u128(request.as_u128()),
        state: state(PostgresStore::column(row, 2)?)?,
        lease: lease.map(|lease| LeaseToken(lease.as_u128())),
        worker: PostgresStore::column(row, 4)?,
        attempt: PostgresStore::column::<i16>(row, 5)?.unsigned_abs(),
        max_attempts: PostgresStore::column::<i16>(row, 6)?.unsigned_abs(),
        tenant: PostgresStore::column(row, 7)?,
        record: noted(row)?,
    })
}

fn noted(row: &PgRow) -> Result<Option<KeyRecord>, Error> {
    let Some(address) = PostgresStore::column::<Option<Uuid>>(row, 8)? else {
        return Ok(None);
    };
    let seal: Uuid = PostgresStore::column(row, 9)?;
    let token: Uuid = PostgresStore::column(row, 11)?;
    let retention: i64 = PostgresStore::column(row, 14)?;
    Ok(Some(KeyRecord {
        identity: Identity::from_halves(address.as_bytes(), seal.as_bytes()),
        fence: Fence(PostgresStore::column::<i64>(row, 10)?.unsigned_abs()),
        token: Token(token.as_u128()),
        fingerprint: fingerprint(row, 12)?,
        secret_id: PostgresStore::column::<i16>(row, 13)?.cast_unsigned(),
        retention: Duration::from_millis(retention.unsigned_abs()),
        hint: KeyHint::new(&PostgresStore::column::<String>(row, 15)?),
        scope: PostgresStore::column(row, 16)?,
    }))
}

/// Of a job's parameters.
pub(super) fn fingerprint(row: &PgRow, at: usize) -> StoreResult<Fingerprint> {
    let bytes: Vec<u8> = PostgresStore::column(row, at)?;
    let bytes = <[u8; Fingerprint::BYTES]>::try_from(bytes).map_err(|_| unreadable())?;
    Ok(Fingerprint::from_bytes(bytes))
}

/// The columns of [`job`].
macro_rules! columns {
    () => {
        "id, request_id, tenant, kind, client, hint, state, priority, attempt, max_attempts, worker, due_us, created_us, \
         started_us, octet_length(params)::bigint, result, result_bytes, error"
    };
}
pub(super) use columns;

pub(super) fn job(row: &PgRow) -> Result<Job, Error> {
    let id: Uuid = PostgresStore::column(row, 0)?;
    let request: Uuid = PostgresStore::column(row, 1)?;
    let small = |at| PostgresStore::column::<i16>(row, at).map(i16::unsigned_abs);
    let time = |micros: i64| Timestamp::from_micros(micros.unsigned_abs());
    let state = state(PostgresStore::column(row, 6)?)?;
    let result: Option<Vec<u8>> = PostgresStore::column(row, 15)?;
    let bytes: Option<i64> = PostgresStore::column(row, 16)?;
    let answer = match (result, bytes) {
        (Some(result), _) => Some(JobAnswer::Kept(Bytes::from(result))),
        (None, Some(bytes)) => Some(JobAnswer::Omitted {
            bytes: bytes.unsigned_abs(),
        }),
        (None, None) => None,
    };
    Ok(Job {
        id: JobId::from_u128(id.as_u128()),
        request_id: RequestId::from_u128(request.as_u128()),
        tenant: PostgresStore::column(row, 2)?,
        kind: PostgresStore::column(row, 3)?,
        client: PostgresStore::column(row, 4)?,
        hint: PostgresStore::column(row, 5)?,
        state,
        priority: u8::try_from(small(7)?).unwrap_or(u8::MAX),
        attempt: small(8)?,
        max_attempts: small(9)?,
        worker: PostgresStore::column(row, 10)?,
        due_at: time(PostgresStore::column(row, 11)?),
        created_at: time(PostgresStore::column(row, 12)?),
        started_at: PostgresStore::column::<Option<i64>>(row, 13)?.map(time),
        params_bytes: PostgresStore::column::<i64>(row, 14)?.unsigned_abs(),
        answer,
        error: PostgresStore::column(row, 17)?,
    })
}

fn state(number: i16) -> Result<JobState, Error> {
    let found = JobState::ALL
        .into_iter()
        .find(|state| *state as i16 == number);
    found.ok_or_else(|| unreadable().into())
}

fn unreadable() -> StoreError {
    StoreError::new(
        semel_core::StoreErrorKind::Record,
        semel_core::Certainty::Definite,
        "a job that this version can't read",
    )
}
