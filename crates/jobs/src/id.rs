//! [`JobId`] and [`RequestId`]: the ids of a job and of its first submission.

use std::fmt;
use std::str::FromStr;

use semel_core::{Entropy, Timestamp};

use crate::error::Error;

/// The id of a job. The same however often it is submitted and run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u128);

/// The id of a job's first submission.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(u128);

impl JobId {
    /// A new id. It begins with the time, so that newer ids sort later, and the rest is random
    /// (UUID version 7).
    #[must_use]
    pub fn new(now: Timestamp, entropy: &dyn Entropy) -> Self {
        let millis = u128::from(now.as_micros() / 1000) & 0xffff_ffff_ffff;
        let random = entropy.next_u128();
        // As a UUID of version 7.
        let version = 0x7_u128 << 76;
        let variant = 0b10_u128 << 62;
        let rest = random & !(0xffff_ffff_ffff << 80 | 0xf << 76 | 0b11 << 62);
        Self(millis << 80 | version | variant | rest)
    }

    /// As a number.
    #[must_use]
    pub const fn as_u128(self) -> u128 {
        self.0
    }

    /// The same from a number.
    #[must_use]
    pub const fn from_u128(number: u128) -> Self {
        Self(number)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job_{:032x}", self.0)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for JobId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = Error::Invalid("a job id is job_ and 32 lower-case hexadecimal digits");
        let digits = text.strip_prefix("job_").unwrap_or_default();
        let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if digits.len() != 32 || !digits.bytes().all(is_hex) {
            return Err(bad);
        }
        u128::from_str_radix(digits, 16).map(Self).map_err(|_| bad)
    }
}

impl RequestId {
    /// A new random id (UUID version 4).
    #[must_use]
    pub fn new(entropy: &dyn Entropy) -> Self {
        let random = entropy.next_u128() & !(0xf << 76 | 0b11 << 62);
        Self(random | 0x4 << 76 | 0b10 << 62)
    }

    /// As a number.
    #[must_use]
    pub const fn as_u128(self) -> u128 {
        self.0
    }

    /// The same from a number.
    #[must_use]
    pub const fn from_u128(number: u128) -> Self {
        Self(number)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", as_uuid(self.0))
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// In the groups of a UUID.
pub(crate) fn as_uuid(number: u128) -> String {
    let digits = format!("{number:032x}");
    let parts = [
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..],
    ];
    parts.join("-")
}

/// The number of a UUID in its groups.
#[cfg(feature = "object")]
pub(crate) fn of_uuid(text: &str) -> Option<u128> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    // Each number has exactly one text form, in lower case and with the groups of a UUID.
    (as_uuid(number) == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel_core::env::SystemEntropy;

    #[test]
    fn ids_are_in_the_order_of_time_and_can_be_read_back() {
        let mut last = JobId::from_u128(0);
        for millis in 1..50 {
            let now = Timestamp::from_micros(1_700_000_000_000_000 + millis * 1000);
            let id = JobId::new(now, &SystemEntropy);
            assert!(id > last);
            assert_eq!(id.to_string().parse::<JobId>().unwrap(), id);
            last = id;
        }
        for bad in ["", "job_", "job_12", "job_0190B0000000000000000000000000xx"] {
            assert!(bad.parse::<JobId>().is_err(), "{bad}");
        }
        let request = RequestId::new(&SystemEntropy).to_string();
        assert_eq!((request.len(), &request[14..15]), (36, "4"));
    }
}
