//! `spec/vectors/encrypted.json` holds when it is read back: every field decrypts to its text in
//! its own place and nowhere else, and every record has its length and its key in its header.

use std::path::Path;

use bytes::Bytes;
use semel_core::record::{DataKeyId, ENCRYPTED_VERSION, HEADER_BYTES, SealedHeader};
use semel_core::{Fence, Identity, Record, RecordError, State, Token};
use semel_stores::encrypted::{
    BoundField, DecryptionKeys, EncryptionKey, Keyring, WriteKey, wrap_data_key,
};
use serde_json::Value;

fn file() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors/encrypted.json");
    let text = std::fs::read_to_string(path).expect("a vector file");
    serde_json::from_str(&text).expect("JSON")
}

fn unhex(text: &Value) -> Vec<u8> {
    let text = text.as_str().expect("a text");
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    (0..text.len()).step_by(2).map(byte).collect()
}

fn keys(file: &Value) -> Keyring {
    let id = u32::try_from(file["key_id"].as_u64().expect("an id")).expect("an id");
    let material: [u8; 32] = unhex(&file["key"]).try_into().expect("32 bytes");
    let key = EncryptionKey::new(id, &material).expect("a key");
    Keyring::new(vec![key], WriteKey::Newest).expect("a ring")
}

fn identity(case: &Value) -> Identity {
    Identity::from_bytes(unhex(&case["identity"]).try_into().expect("32 bytes"))
}

fn state(case: &Value) -> State {
    match case["state"].as_u64() {
        Some(1) => State::Running,
        Some(2) => State::Completed,
        Some(3) => State::Failed,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_field_belongs_to_its_place() {
    let file = file();
    let keys = keys(&file);
    for case in file["cases"].as_array().expect("cases") {
        let identity = identity(case);
        let state = state(case);
        let token: [u8; 16] = unhex(&case["token"]).try_into().expect("16 bytes");
        let fence = Fence(
            case["fence"]
                .as_str()
                .expect("a text")
                .parse()
                .expect("a number"),
        );
        let place = BoundField {
            identity: &identity,
            field: u8::try_from(case["field"].as_u64().expect("a field")).expect("a byte"),
            state,
            token: Token(u128::from_le_bytes(token)),
        };
        let (text, encrypted) = (unhex(&case["text"]), unhex(&case["encrypted"]));
        let key = keys.write_key().expect("a key");
        let sealed = place.seal(key, fence, &text).expect("small enough");
        assert_eq!(sealed, encrypted);
        let opened = place.open(&keys, fence, &encrypted);
        assert_eq!(opened, Ok(Some(Bytes::from(text))));
        let other = Identity::from_bytes([0xee; 32]);
        let elsewhere = [
            BoundField {
                identity: &other,
                ..place
            },
            BoundField { field: 9, ..place },
            BoundField {
                state: State::Released,
                ..place
            },
            BoundField {
                token: Token(12),
                ..place
            },
        ];
        for elsewhere in elsewhere {
            assert!(
                elsewhere.open(&keys, fence, &encrypted).is_err(),
                "{elsewhere:?}"
            );
        }
        let earlier = place.open(&keys, Fence(fence.0 - 1), &encrypted);
        assert!(earlier.is_err(), "a later lease's field");
        for at in 0..encrypted.len() {
            let mut changed = encrypted.clone();
            changed[at] ^= 1;
            let opened = place.open(&keys, Fence(u64::MAX), &changed);
            assert!(!matches!(opened, Ok(Some(_))), "byte {at}");
        }
    }
}

/// A data key alone, as a reader has it.
struct One(EncryptionKey);

impl DecryptionKeys for One {
    fn find(&self, header: &SealedHeader, field: &[u8]) -> Result<&EncryptionKey, RecordError> {
        let name = DataKeyId::read(field)?;
        match name == self.0.data_key() {
            true => Ok(&self.0),
            false => Err(RecordError::NoKey(header.key_id)),
        }
    }
}

#[test]
fn a_data_key_is_wrapped_for_its_record_and_named_by_its_fields() {
    let file = file();
    let (keys, case) = (keys(&file), &file["data_key"]);
    let name: [u8; 16] = unhex(&case["name"]).try_into().expect("16 bytes");
    let name = DataKeyId::from_bytes(name);
    let material: [u8; 32] = unhex(&case["material"]).try_into().expect("32 bytes");
    let wrapped = unhex(&case["wrapped"]);
    let write_key = keys.write_key().expect("a key");
    let made = wrap_data_key(write_key, &identity(case), &material);
    assert_eq!(made, Ok(Bytes::from(wrapped.clone())));
    let other = wrap_data_key(write_key, &Identity::from_bytes([0xee; 32]), &material);
    assert_ne!(other, Ok(Bytes::from(wrapped)));
    let data_key = One(EncryptionKey::for_data(name, &material).expect("a key"));
    for case in case["cases"].as_array().expect("cases") {
        let (encrypted, text) = (unhex(&case["encrypted"]), unhex(&case["text"]));
        assert_eq!(DataKeyId::read(&encrypted), Ok(Some(name)));
        let header = SealedHeader::read(&encrypted).expect("a header");
        assert_eq!(header.map(|header| header.key_id), Some(name.key_id()));
        let identity = identity(case);
        let token: [u8; 16] = unhex(&case["token"]).try_into().expect("16 bytes");
        let place = BoundField {
            identity: &identity,
            field: u8::try_from(case["field"].as_u64().expect("a field")).expect("a byte"),
            state: state(case),
            token: Token(u128::from_le_bytes(token)),
        };
        let fence = Fence(u64::MAX);
        assert_eq!(
            place.open(&data_key, fence, &encrypted),
            Ok(Some(Bytes::from(text)))
        );
        assert!(matches!(
            place.open(&keys, fence, &encrypted),
            Err(RecordError::NoKey(_))
        ));
        for at in 0..encrypted.len() {
            let mut changed = encrypted.clone();
            changed[at] ^= 1;
            let opened = place.open(&data_key, fence, &changed);
            assert!(!matches!(opened, Ok(Some(_))), "byte {at}");
        }
    }
}

#[test]
fn every_record_has_its_length_and_key_in_its_header() {
    let file = file();
    for case in file["records"].as_array().expect("records") {
        let packed = unhex(&case["packed"]);
        assert_eq!(packed[0], ENCRYPTED_VERSION);
        let number = |at: usize| u32::from_le_bytes(packed[at..at + 4].try_into().expect("4"));
        assert_eq!(usize::try_from(number(HEADER_BYTES)), Ok(packed.len()));
        assert_eq!(u64::from(number(HEADER_BYTES + 4)), file["key_id"]);
        let record = Record::decode_for(&identity(case), &Bytes::from(packed.clone()));
        let record = record.expect("a record");
        assert_eq!(record.encode(), packed);
        for field in ["checkpoint", "head", "body"] {
            let text = &case[field];
            let text = if text.is_null() {
                Vec::new()
            } else {
                unhex(text)
            };
            let is_there = !text.is_empty() && packed.windows(text.len()).any(|part| part == text);
            assert!(!is_there, "{field} is in plain text");
        }
        // Cut short, or with another length or key in its header, it is refused.
        for length in 0..packed.len() {
            assert!(Record::decode(&Bytes::copy_from_slice(&packed[..length])).is_err());
        }
        for at in HEADER_BYTES..HEADER_BYTES + 8 {
            let mut changed = packed.clone();
            changed[at] ^= 1;
            assert!(Record::decode(&Bytes::from(changed)).is_err(), "byte {at}");
        }
    }
}
