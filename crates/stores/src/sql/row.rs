//! A record as columns of a row.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use semel_core::identity::Address;
use semel_core::store::StoreResult;
use semel_core::{
    Answer, AnswerBody, CrashPolicy, Fence, Fingerprint, Identity, KeyHint, Namespace, Record,
    RecordError, State, Timestamp, Token,
};

/// A record as it was read.
pub(crate) struct RowRecord {
    pub(crate) address: Address,
    pub(crate) record: Record,
    /// The server's time of the read.
    pub(crate) now: Timestamp,
    /// The day under which the body is kept, if it is in a table of its own. The record's body is
    /// empty until it is loaded.
    pub(crate) body_day: Option<i32>,
}

/// A parsed row: a record, or why this version can't read it.
pub(crate) type ParsedRow = Result<RowRecord, RecordError>;

/// The columns, as a dialect read them. Numbers are as wide as the widest column.
pub(crate) struct Columns<'r> {
    pub(crate) address: &'r [u8],
    pub(crate) seal: &'r [u8],
    pub(crate) token: &'r [u8],
    pub(crate) fence: i64,
    pub(crate) created_us: i64,
    pub(crate) written_us: i64,
    pub(crate) retention_ms: i64,
    pub(crate) lease_ms: i64,
    pub(crate) attempt: u16,
    pub(crate) max_attempts: u16,
    pub(crate) secret_id: u16,
    pub(crate) state: i64,
    pub(crate) crash: i64,
    pub(crate) fingerprint: &'r [u8],
    /// Environment, tenant, scope and key hint.
    pub(crate) names: [&'r [u8]; 4],
    pub(crate) checkpoint: Option<&'r [u8]>,
    pub(crate) head: Option<&'r [u8]>,
    pub(crate) body: Option<&'r [u8]>,
    /// The length of a body that is not in the row.
    pub(crate) body_bytes: Option<i64>,
    pub(crate) body_day: Option<i32>,
    pub(crate) now_us: i64,
}

impl Columns<'_> {
    pub(crate) fn parse(&self) -> ParsedRow {
        let malformed = RecordError::Malformed;
        let fixed = |bytes: &[u8]| <[u8; 16]>::try_from(bytes).ok();
        let (Some(address), Some(seal), Some(token)) =
            (fixed(self.address), fixed(self.seal), fixed(self.token))
        else {
            return Err(malformed("address, seal or token"));
        };
        let fingerprint = <[u8; Fingerprint::BYTES]>::try_from(self.fingerprint);
        let (Some((namespace, hint)), Ok(fingerprint)) = (self.label(), fingerprint) else {
            return Err(malformed("namespace or fingerprint"));
        };
        let (Some(state), Some(crash)) = (state(self.state), crash(self.crash)) else {
            return Err(malformed("no such state"));
        };
        let answer = self.answer()?;
        if answer.is_some() != matches!(state, State::Completed | State::Failed) {
            return Err(malformed("an answer that doesn't fit the state"));
        }
        let record = Record {
            seal,
            state,
            crash,
            fence: Fence(unsigned(self.fence)),
            token: Token(u128::from_be_bytes(token)),
            attempt: self.attempt,
            max_attempts: self.max_attempts,
            fingerprint: Fingerprint::from_bytes(fingerprint),
            secret_id: self.secret_id,
            lease: Duration::from_millis(unsigned(self.lease_ms)),
            retention: Duration::from_millis(unsigned(self.retention_ms)),
            created_at: Timestamp::from_micros(unsigned(self.created_us)),
            written_at: Timestamp::from_micros(unsigned(self.written_us)),
            namespace,
            hint,
            checkpoint: Bytes::copy_from_slice(self.checkpoint.unwrap_or_default()),
            answer,
        };
        Ok(RowRecord {
            address,
            record,
            now: Timestamp::from_micros(unsigned(self.now_us)),
            body_day: self.body_day,
        })
    }

    fn label(&self) -> Option<(Namespace, KeyHint)> {
        let [environment, tenant, scope, hint] = self.names;
        let text = |bytes| std::str::from_utf8(bytes).ok();
        let namespace = Namespace::new(text(environment)?, text(tenant)?, text(scope)?).ok()?;
        Some((namespace, KeyHint::new(text(hint)?)))
    }

    fn answer(&self) -> Result<Option<Arc<Answer>>, RecordError> {
        let Some(head) = self.head else {
            return Ok(None);
        };
        let body = match (self.body, self.body_bytes) {
            (Some(digest), Some(bytes)) => AnswerBody::external(bytes.cast_unsigned(), digest)?,
            (Some(body), None) => AnswerBody::Kept(Bytes::copy_from_slice(body)),
            // Any length that a caller names is kept, in the same 64 bits.
            (None, Some(bytes)) if self.body_day.is_none() => AnswerBody::Omitted {
                bytes: bytes.cast_unsigned(),
            },
            (None, _) => AnswerBody::Kept(Bytes::new()),
        };
        let head = Bytes::copy_from_slice(head);
        Ok(Some(Arc::new(Answer { head, body })))
    }
}

/// The format of a record without encrypted fields, and of one with some.
pub(crate) const FORMATS: [i16; 2] = [
    semel_core::record::FORMAT_VERSION as i16,
    semel_core::record::ENCRYPTED_VERSION as i16,
];

/// Whether this version reads rows of that format.
pub(crate) fn is_known_format(format: i64) -> bool {
    FORMATS.iter().any(|known| i64::from(*known) == format)
}

/// The format of a row with these fields.
pub(crate) fn format_of(checkpoint: Option<&[u8]>, head: Option<&[u8]>) -> i16 {
    let is_sealed = |field: &[u8]| field.starts_with(&semel_core::record::SEALED_MAGIC);
    let mut fields = [checkpoint, head].into_iter().flatten();
    FORMATS[usize::from(fields.any(is_sealed))]
}

/// A row of a format that this version doesn't know.
pub(crate) fn unknown_format(format: i64) -> RecordError {
    RecordError::UnknownVersion(u8::try_from(format).unwrap_or(u8::MAX))
}

/// The record is used only if it is the one asked for (P24).
pub(crate) fn check(found: ParsedRow, identity: &Identity) -> StoreResult<RowRecord> {
    let seen = found?;
    if seen.record.belongs_to(identity) && seen.address == identity.address() {
        Ok(seen)
    } else {
        Err(RecordError::Foreign.into())
    }
}

/// The columns of an answer: head, body, and the length of a body that is not in the row.
pub(crate) type AnswerColumns = (Option<Vec<u8>>, Option<Vec<u8>>, Option<i64>);

/// Splits an answer into its columns. `is_body_apart` leaves the body to a table of its own.
pub(crate) fn answer_columns(answer: Option<&Answer>, is_body_apart: bool) -> AnswerColumns {
    let head = answer.map(|answer| answer.head.to_vec());
    let (body, bytes) = match answer.map(|answer| &answer.body) {
        Some(AnswerBody::Kept(body)) if !is_body_apart => (Some(body.to_vec()), None),
        Some(AnswerBody::Omitted { bytes }) => (None, Some(bytes.cast_signed())),
        Some(AnswerBody::External { bytes, digest }) => {
            (Some(digest.to_vec()), Some(bytes.cast_signed()))
        }
        _ => (None, None),
    };
    (head, body, bytes)
}

/// Converts to a signed column. Fences and times stay far below the limit.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

pub(crate) fn whole_millis(duration: Duration) -> i64 {
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
