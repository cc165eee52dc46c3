//! Time spans and sizes with units, such as `30s` and `1MiB`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A span of time: a number and a unit, `250ms`, `30s`, `5m`, `24h` or `7d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// A number of bytes: `64KiB`, `1MiB`, `2GiB`, or plain bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// The text is not a number with a unit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct UnitError {
    what: &'static str,
}

const SPAN: UnitError = UnitError {
    what: "a span of time is a whole number and a unit: ms, s, m, h or d, for example \"30s\"",
};

const SIZE: UnitError = UnitError {
    what: "a size is a whole number of bytes, or one with KiB, MiB or GiB, for example \"1MiB\"",
};

const SPANS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

const SIZES: [(&str, u64); 5] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
    ("", 1),
];

fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim())?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// Writes the value in the largest unit that divides it.
fn write_with_unit(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let fits = |(_, factor): &&(&str, u64)| value > 0 && value.is_multiple_of(*factor);
    let (unit, factor) = units.iter().find(fits).copied().unwrap_or(match units {
        [.., last] if last.0.is_empty() => ("B", 1),
        _ => ("s", 1),
    });
    write!(f, "{}{unit}", value / factor)
}

impl FromStr for Span {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let millis = parse(text, &SPANS).ok_or(SPAN)?;
        Ok(Self(Duration::from_millis(millis)))
    }
}

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text, &SIZES).map(Self).ok_or(SIZE)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        write_with_unit(f, millis, &SPANS)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_with_unit(f, self.0, &SIZES)
    }
}

impl Size {
    /// The size as a `usize`, at most `usize::MAX`.
    #[must_use]
    pub fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// A span of whole seconds.
pub(super) const fn seconds(seconds: u64) -> Span {
    Span(Duration::from_secs(seconds))
}

macro_rules! as_text {
    ($name:ident, $format:literal, $pattern:literal) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "format": $format, "pattern": $pattern})
            }
        }
    };
}

as_text!(Span, "span", "^[0-9]+ ?(ms|s|m|h|d)$");
as_text!(Size, "size", "^[0-9]+ ?(B|KiB|MiB|GiB)?$");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_sizes_round_trip() {
        for text in ["250ms", "30s", "5m", "24h", "7d", "0s"] {
            if text != "24h" {
                assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
            }
        }
        assert_eq!("24h".parse::<Span>().unwrap().to_string(), "1d");
        for text in ["64KiB", "1MiB", "3GiB", "100B", "0B"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        assert_eq!("16384".parse::<Size>(), Ok(Size(16_384)));
    }

    #[test]
    fn malformed_spans_and_sizes_are_refused() {
        for text in [
            "",
            "30",
            "s",
            "1.5s",
            "-1s",
            "1 minute",
            "99999999999999999999s",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        for text in ["", "MiB", "1MB", "-1", "1.5MiB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
