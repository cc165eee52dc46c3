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
use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::query::Query;
use sqlx::{Error, MySql, Row as _};

/// A statement with its arguments so far.
pub(super) type Bound = Query<'static, MySql, MySqlArguments>;

/// A record as it was found.
pub(super) struct Seen {
    pub(super) address: Address,
    pub(super) record: Record,
    /// The server's time when it was.
    pub(super) now: Timestamp,
}

/// What a row holds: a record, or something that this version can't read.
pub(super) type Found = Result<Seen, RecordError>;

/// Reads a row with the columns of [`super::sql`].
pub(super) fn parse(row: &MySqlRow) -> Result<Found, Error> {
    let row = Columns(row);
    let format = row.number(11)?;
    if format != 1 {
        let version = u8::try_from(format).unwrap_or(u8::MAX);
        return Ok(Err(RecordError::UnknownVersion(version)));
    }
    let Some(parts) = row.parts()? else {
        return Ok(Err(RecordError::Malformed("a column")));
    };
    let answer = answer(row.0)?;
    if answer.is_some() != matches!(parts.state, State::Completed | State::Failed) {
        return Ok(Err(RecordError::Malformed(
            "an answer that doesn't fit the state",
        )));
    }
    Ok(Ok(Seen {
        address: parts.address,
        now: row.micros(23)?,
        record: row.record(parts, answer)?,
    }))
}

/// What not every value of its column is.
struct Parts {
    address: Address,
    seal: [u8; 16],
    token: [u8; 16],
    fingerprint: [u8; Fingerprint::BYTES],
    state: State,
    crash: CrashPolicy,
    namespace: Namespace,
    hint: KeyHint,
}

struct Columns<'r>(&'r MySqlRow);

impl<'r> Columns<'r> {
    fn number(&self, index: usize) -> Result<i64, Error> {
        self.0.try_get(index)
    }

    fn bytes(&self, index: usize) -> Result<&'r [u8], Error> {
        self.0.try_get(index)
    }

    fn micros(&self, index: usize) -> Result<Timestamp, Error> {
        Ok(Timestamp::from_micros(unsigned(self.number(index)?)))
    }

    fn millis(&self, index: usize) -> Result<Duration, Error> {
        Ok(Duration::from_millis(unsigned(self.number(index)?)))
    }

    fn small(&self, index: usize) -> Result<u16, Error> {
        Ok(u16::try_from(self.number(index)?).unwrap_or(u16::MAX))
    }

    /// `None` where one is out of bounds.
    fn parts(&self) -> Result<Option<Parts>, Error> {
        let [address, seal, token, fingerprint] = [
            self.bytes(0)?,
            self.bytes(1)?,
            self.bytes(2)?,
            self.bytes(14)?,
        ];
        let names = [
            self.bytes(15)?,
            self.bytes(16)?,
            self.bytes(17)?,
            self.bytes(18)?,
        ];
        let numbers = [self.number(12)?, self.number(13)?];
        Ok((|| {
            let (namespace, hint) = label(names)?;
            Some(Parts {
                address: address.try_into().ok()?,
                seal: seal.try_into().ok()?,
                token: token.try_into().ok()?,
                fingerprint: fingerprint.try_into().ok()?,
                state: state(numbers[0])?,
                crash: crash(numbers[1])?,
                namespace,
                hint,
            })
        })())
    }

    fn record(&self, parts: Parts, answer: Option<Arc<Answer>>) -> Result<Record, Error> {
        let checkpoint: Option<&[u8]> = self.0.try_get(20)?;
        Ok(Record {
            seal: parts.seal,
            state: parts.state,
            crash: parts.crash,
            fence: Fence(unsigned(self.number(3)?)),
            token: Token(u128::from_be_bytes(parts.token)),
            attempt: self.small(8)?,
            max_attempts: self.small(9)?,
            fingerprint: Fingerprint::from_bytes(parts.fingerprint),
            secret_id: self.small(10)?,
            lease: self.millis(7)?,
            retention: self.millis(6)?,
            created_at: self.micros(4)?,
            written_at: self.micros(5)?,
            namespace: parts.namespace,
            hint: parts.hint,
            checkpoint: Bytes::copy_from_slice(checkpoint.unwrap_or_default()),
            answer,
        })
    }
}

fn label([environment, tenant, scope, hint]: [&[u8]; 4]) -> Option<(Namespace, KeyHint)> {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let namespace = Namespace::new(text(environment)?, text(tenant)?, text(scope)?).ok()?;
    Some((namespace, KeyHint::new(text(hint)?)))
}

fn answer(row: &MySqlRow) -> Result<Option<Arc<Answer>>, Error> {
    let Some(head) = row.try_get::<Option<&[u8]>, _>(21)? else {
        return Ok(None);
    };
    let kept: Option<&[u8]> = row.try_get(22)?;
    let omitted: Option<i64> = row.try_get(19)?;
    let body = match (kept, omitted) {
        (Some(digest), Some(bytes)) => {
            let elsewhere = Body::elsewhere(bytes.cast_unsigned(), digest);
            elsewhere.map_err(|error| Error::Decode(error.into()))?
        }
        // Any length that a caller names is kept, in the same 64 bits.
        (None, Some(bytes)) => Body::Omitted {
            bytes: bytes.cast_unsigned(),
        },
        (kept, _) => Body::Kept(Bytes::copy_from_slice(kept.unwrap_or_default())),
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
    bind_answer(query, record.answer.as_deref())
}

/// Adds head, body, and the length of a body that isn't kept.
pub(super) fn bind_answer(query: Bound, answer: Option<&Answer>) -> Bound {
    let head = answer.map(|answer| answer.head.to_vec());
    let (body, omitted) = match answer.map(|answer| &answer.body) {
        Some(Body::Kept(body)) => (Some(body.to_vec()), None),
        Some(Body::Omitted { bytes }) => (None, Some(bytes.cast_signed())),
        Some(Body::Elsewhere { bytes, digest }) => {
            (Some(digest.to_vec()), Some(bytes.cast_signed()))
        }
        None => (None, None),
    };
    query.bind(head).bind(body).bind(omitted)
}

pub(super) fn bytes(token: Token) -> Vec<u8> {
    token.0.to_be_bytes().to_vec()
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

fn state(number: i64) -> Option<State> {
    let all = [
        State::Running,
        State::Completed,
        State::Failed,
        State::InDoubt,
        State::Released,
    ];
    all.into_iter().find(|state| *state as i64 == number)
}

fn crash(number: i64) -> Option<CrashPolicy> {
    let all = [CrashPolicy::Takeover, CrashPolicy::Hold];
    all.into_iter().find(|crash| *crash as i64 == number)
}
