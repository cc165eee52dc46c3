//! Packed records and answers' heads: any bytes are refused, or are the one form of what they say.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use semel_core::Record;
use semel_http::StoredHead;

/// Sections from this tag on may be skipped by a reader that doesn't know them. They come last.
const OPTIONAL: u8 = 128;

fuzz_target!(|data: &[u8]| {
    if let Ok(record) = Record::decode(&Bytes::copy_from_slice(data)) {
        let packed = record.encode();
        let rest = data.strip_prefix(&packed[..]).expect("one form");
        assert!(rest.first().is_none_or(|tag| *tag >= OPTIONAL));
        assert_eq!(Record::decode(&packed.into()), Ok(record));
    }
    if let Ok(head) = StoredHead::decode(data) {
        let again = StoredHead::decode(&head.encode());
        assert_eq!(again.as_ref(), Ok(&head));
    }
});
