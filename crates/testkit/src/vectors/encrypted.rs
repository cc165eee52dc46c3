//! `encrypted.json`: encrypted fields, and a whole record with some.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use semel_conformance::clock::FakeClock;
use semel_core::record::DataKeyId;
use semel_core::{
    Answer, AnswerBody, CrashPolicy, Fence, Fingerprint, Identity, KeyHint, MemoryConfig,
    MemoryStore, Namespace, Record, State, StoreAdmin as _, Timestamp, Token,
};
use semel_core::{Clock as _, Store as _};
use semel_stores::encrypted::{
    BoundField, EncryptedStore, EncryptionKey, Keyring, SharedKeyring, WriteKey, wrap_data_key,
};
use serde::Serialize;

use super::hex;

#[derive(Serialize)]
pub(super) struct Encrypted {
    about: &'static str,
    key_id: u32,
    key: String,
    cases: Vec<FieldCase>,
    data_key: DataKeyCase,
    records: Vec<RecordCase>,
}

#[derive(Serialize)]
struct FieldCase {
    field: u8,
    identity: String,
    state: u8,
    fence: String,
    token: String,
    text: String,
    encrypted: String,
}

/// A data key: its name, its material, how the key above wraps it, and fields that it encrypts.
#[derive(Serialize)]
struct DataKeyCase {
    name: String,
    material: String,
    identity: String,
    wrapped: String,
    cases: Vec<FieldCase>,
}

#[derive(Serialize)]
struct RecordCase {
    name: &'static str,
    identity: String,
    checkpoint: String,
    head: Option<String>,
    body: Option<String>,
    packed: String,
}

const MATERIAL: [u8; 32] = *b"thirty-two bytes for the vectors";

fn key() -> EncryptionKey {
    EncryptionKey::new(7, &MATERIAL).expect("a key")
}

pub(super) fn file() -> Encrypted {
    Encrypted {
        about: "Record version 2. cases: a field, its place and its text, and the field as it is stored. \
                data_key: a data key, wrapped for the record with that identity, and fields under it. \
                records: what is secret in a record, and the packed record. key is the material of the key.",
        key_id: 7,
        key: hex(&MATERIAL),
        cases: fields(&key()),
        data_key: data_key(),
        records: vec![
            record("in doubt, with a checkpoint", State::InDoubt),
            record("completed", State::Completed),
        ],
    }
}

fn data_key() -> DataKeyCase {
    let material = *b"thirty-two bytes for a data key.";
    let name = DataKeyId::from_bytes(*b"\x01\x02\x03\x04-name-of-key");
    let identity = Identity::from_bytes([0xda; 32]);
    let wrapped = wrap_data_key(&key(), &identity, &material).expect("small enough");
    let data_key = EncryptionKey::for_data(name, &material).expect("a key");
    DataKeyCase {
        name: hex(name.as_bytes()),
        material: hex(&material),
        identity: hex(identity.as_bytes()),
        wrapped: hex(&wrapped),
        cases: fields(&data_key),
    }
}

fn fields(key: &EncryptionKey) -> Vec<FieldCase> {
    let identity = Identity::from_bytes(std::array::from_fn(|at| u8::try_from(at).unwrap_or(0)));
    let texts: [&[u8]; 3] = [b"", b"half-way", &[0xff; 33]];
    let places = [
        (1, State::Running, Token(0)),
        (2, State::Completed, Token(0x0123_4567_89ab_cdef)),
        (2, State::Failed, Token(u128::MAX)),
    ];
    let mut cases = Vec::new();
    for (field, state, token) in places {
        for text in texts {
            let fence = Fence(1_790_000_000_000_000);
            let place = BoundField {
                identity: &identity,
                field,
                state,
                token,
            };
            let encrypted = place.seal(key, fence, text).expect("small enough");
            cases.push(FieldCase {
                field,
                identity: hex(identity.as_bytes()),
                state: state as u8,
                fence: fence.0.to_string(),
                token: hex(&token.0.to_le_bytes()),
                text: hex(text),
                encrypted: hex(&encrypted),
            });
        }
    }
    cases
}

/// A record as an encrypted store writes it.
fn record(name: &'static str, state: State) -> RecordCase {
    let identity = Identity::from_bytes([0x1d; 32]);
    let (head, body) = (b"201 created", b"the answer");
    let is_done = state == State::Completed;
    let answer = is_done.then(|| {
        Arc::new(Answer {
            head: Bytes::from_static(head),
            body: AnswerBody::Kept(Bytes::from_static(body)),
        })
    });
    let checkpoint: &[u8] = if is_done { b"" } else { b"half-way" };
    let clock = Arc::new(FakeClock::new());
    let record = Record {
        seal: identity.seal(),
        state,
        crash: CrashPolicy::Takeover,
        fence: Fence(5),
        token: Token(6),
        attempt: 1,
        max_attempts: 3,
        fingerprint: Fingerprint::from_bytes([1; 17]),
        secret_id: 0,
        lease: Duration::from_secs(30),
        retention: Duration::from_secs(60 * 60),
        created_at: clock.wall(),
        written_at: clock.wall(),
        namespace: Namespace::new("", "acme", "charge").expect("a namespace"),
        hint: KeyHint::new("ord-1"),
        checkpoint: Bytes::from_static(checkpoint),
        answer,
    };
    let bare = Arc::new(MemoryStore::new(MemoryConfig::default(), clock));
    let keys = Keyring::new(vec![key()], WriteKey::Newest).expect("a ring");
    let store = EncryptedStore::new(bare.clone(), SharedKeyring::new(keys), true);
    let restored = store.restore(&identity, &record).now_or_never();
    assert!(matches!(restored, Some(Ok(_))), "memory answers at once");
    let stored = bare.read(&identity).now_or_never();
    let stored = stored.expect("at once").expect("an answer");
    let mut stored = stored.expect("a record");
    // The times of a vector don't follow a clock.
    stored.created_at = Timestamp::from_micros(5);
    stored.written_at = Timestamp::from_micros(6);
    RecordCase {
        name,
        identity: hex(identity.as_bytes()),
        checkpoint: hex(checkpoint),
        head: is_done.then(|| hex(head)),
        body: is_done.then(|| hex(body)),
        packed: hex(&stored.encode()),
    }
}
