//! Heads of HTTP/1 requests: one that can be read in two ways is found, however its bytes come in.
#![no_main]

use libfuzzer_sys::fuzz_target;
use semel_server::scan_for_ambiguity;

const MAX_HEAD: usize = 1024;

fuzz_target!(|data: &[u8]| {
    let found = scan_for_ambiguity(data, data.len(), MAX_HEAD);
    for piece in [1, 2, 3, 16] {
        assert_eq!(scan_for_ambiguity(data, piece, MAX_HEAD), found, "in pieces of {piece}");
    }
    // What the server's own parser takes for a head, with the headers that it sees.
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let Ok(httparse::Status::Complete(length)) = request.parse(data) else { return };
    let count = |name: &str| {
        let named = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
        named.count()
    };
    let (lengths, encodings) = (count("content-length"), count("transfer-encoding"));
    // One that is too long to be followed counts as such.
    let is_ambiguous = length > MAX_HEAD || lengths > 1 || encodings > 1 || (lengths > 0 && encodings > 0);
    assert_eq!(found.first(), Some(&is_ambiguous), "{lengths} lengths, {encodings} encodings");
});
