//! What a line shows of a key, and of which keys there are lines.

use std::fmt;
use std::time::Duration;

use semel_core::event::Event;
use semel_core::{Identity, KeyHint};

/// Chosen by the key's hash: all lines of a key are kept or none, on every node alike.
pub(super) fn is_chosen(identity: &Identity, percent: u8) -> bool {
    let [low, high, ..] = *identity.as_bytes();
    u32::from(u16::from_le_bytes([low, high])) * 100 < u32::from(percent) << 16
}

pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn named(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// A key as a log may show it.
pub(super) struct Shown(KeyHint, Identity);

pub(super) fn shown(event: &Event<'_>) -> Option<Shown> {
    let is_known = *event.identity.as_bytes() != [0; 32];
    is_known.then_some(Shown(event.hint, event.identity))
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.1.as_bytes();
        write!(f, "{}...{a:02x}{b:02x}{c:02x}{d:02x}", self.0.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_of_keys_is_chosen() {
        let count = |percent| {
            let chosen = |n: &u32| {
                let hash = blake3::hash(&n.to_le_bytes());
                is_chosen(&Identity::from_bytes(*hash.as_bytes()), percent)
            };
            (0..10_000_u32).filter(chosen).count()
        };
        assert_eq!(count(0), 0);
        assert_eq!(count(100), 10_000);
        assert!((50..150).contains(&count(1)), "{}", count(1));
    }
}
