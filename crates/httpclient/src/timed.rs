//! Keys and headers that carry a time, in milliseconds since 1970.

use std::time::{Duration, UNIX_EPOCH};

/// A UUIDv7 (RFC 9562) of this time; `n` tells keys of one time apart.
#[must_use]
pub fn uuid_v7(millis: u64, n: u16) -> String {
    let time = format!("{millis:012x}");
    let (high, low) = time.split_at(8);
    format!("{high}-{low}-7000-8000-00000000{n:04x}")
}

/// A ULID of this time; `n` tells keys of one time apart.
#[must_use]
pub fn ulid(millis: u64, n: u16) -> String {
    const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let number = u128::from(millis) << 80 | u128::from(n);
    let digit = |at: u32| {
        let value = usize::try_from(number >> (5 * at) & 31).expect("five bits");
        char::from(DIGITS[value])
    };
    (0..26).rev().map(digit).collect()
}

/// An IMF-fixdate (RFC 9110) of this time.
#[must_use]
pub fn imf_fixdate(millis: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(millis))
}
