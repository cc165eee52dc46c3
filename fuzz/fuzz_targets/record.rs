//! Packed records and answers' heads: any bytes are refused, or are the one form of what they say.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use semel_core::Record;
use semel_http::Head;

fuzz_target!(|data: &[u8]| {
    if let Ok(record) = Record::decode(&Bytes::copy_from_slice(data)) {
        assert_eq!(record.encode(), data);
    }
    if let Ok(head) = Head::decode(data) {
        let again = Head::decode(&head.encode());
        assert_eq!(again.as_ref(), Ok(&head));
    }
});
