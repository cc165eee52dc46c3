//! `record.json`: the packed form of a record, and malformed bytes.

mod inputs;

use bytes::Bytes;
use semel_core::{AnswerBody, CrashPolicy, Identity, Record, RecordError};
use serde::Serialize;

use super::hex;

#[derive(Serialize)]
pub(super) struct Packed {
    about: &'static str,
    cases: Vec<Case>,
    skipped: Vec<Skipped>,
    refused: Vec<Refused>,
}

#[derive(Serialize)]
struct Case {
    name: &'static str,
    record: Fields,
    packed: String,
}

/// Bytes that unpack to the record of a case, and are not its packed form.
#[derive(Serialize)]
struct Skipped {
    name: &'static str,
    same_as: &'static str,
    packed: String,
}

#[derive(Serialize)]
struct Refused {
    name: &'static str,
    packed: String,
    /// The seal of the record asked for.
    seal: String,
    error: &'static str,
}

/// Numbers that may pass 2^53 are text; bytes are hex, in the order in which they are packed.
#[derive(Serialize)]
struct Fields {
    state: &'static str,
    crash: &'static str,
    fingerprint: String,
    seal: String,
    fence: String,
    token: String,
    lease_ms: u32,
    retention_ms: String,
    created_us: String,
    written_us: String,
    attempt: u16,
    max_attempts: u16,
    secret_id: u16,
    environment: String,
    tenant: String,
    scope: String,
    hint: String,
    checkpoint: String,
    answer: Option<AnswerFields>,
}

#[derive(Serialize)]
struct AnswerFields {
    head: String,
    body: Option<String>,
    omitted_bytes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

pub(super) fn file() -> Packed {
    let cases = inputs::records();
    let (same_as, running) = (cases[0].0, &cases[0].1);
    Packed {
        about: "The packed record, version 1. cases: fields and their only packed form. skipped: bytes \
                with sections that a reader passes over. refused: unknown_version, unknown_section, \
                malformed, or foreign (another seal than the one asked for).",
        skipped: inputs::skipped(running)
            .into_iter()
            .map(|(name, bytes)| Skipped {
                name,
                same_as,
                packed: hex(&bytes),
            })
            .collect(),
        refused: inputs::refused(running)
            .into_iter()
            .map(|(name, bytes)| refused(name, bytes, inputs::SEAL))
            .chain([refused("another key's record", running.encode(), [0; 16])])
            .collect(),
        cases: cases
            .into_iter()
            .map(|(name, record)| case(name, &record))
            .collect(),
    }
}

fn case(name: &'static str, record: &Record) -> Case {
    let fields = Fields {
        state: record.state.as_str(),
        crash: match record.crash {
            CrashPolicy::Takeover => "takeover",
            CrashPolicy::Hold => "hold",
        },
        fingerprint: hex(record.fingerprint.as_bytes()),
        seal: hex(&record.seal),
        fence: record.fence.to_string(),
        token: hex(&record.token.0.to_le_bytes()),
        lease_ms: u32::try_from(record.lease.as_millis()).expect("at most a day"),
        retention_ms: record.retention.as_millis().to_string(),
        created_us: record.created_at.as_micros().to_string(),
        written_us: record.written_at.as_micros().to_string(),
        attempt: record.attempt,
        max_attempts: record.max_attempts,
        secret_id: record.secret_id,
        environment: record.namespace.environment().to_owned(),
        tenant: record.namespace.tenant().to_owned(),
        scope: record.namespace.scope().to_owned(),
        hint: record.hint.as_str().to_owned(),
        checkpoint: hex(&record.checkpoint),
        answer: record.answer.as_deref().map(|answer| {
            let (body, omitted_bytes, digest) = match &answer.body {
                AnswerBody::Kept(body) => (Some(hex(body)), None, None),
                AnswerBody::Omitted { bytes } => (None, Some(bytes.to_string()), None),
                AnswerBody::External { bytes, digest } => {
                    (None, Some(bytes.to_string()), Some(hex(digest)))
                }
            };
            AnswerFields {
                head: hex(&answer.head),
                body,
                omitted_bytes,
                digest,
            }
        }),
    };
    Case {
        name,
        record: fields,
        packed: hex(&record.encode()),
    }
}

fn refused(name: &'static str, bytes: Vec<u8>, seal: [u8; 16]) -> Refused {
    let packed = hex(&bytes);
    let identity = Identity::from_halves(&[0; 16], &seal);
    let error = match Record::decode_for(&identity, &Bytes::from(bytes)) {
        Ok(_) => "none",
        Err(RecordError::UnknownVersion(_)) => "unknown_version",
        Err(RecordError::UnknownSection(_)) => "unknown_section",
        Err(RecordError::Malformed(_)) => "malformed",
        Err(RecordError::Foreign) => "foreign",
        Err(_) => "unknown",
    };
    Refused {
        name,
        packed,
        seal: hex(&seal),
        error,
    }
}
