//! The label of a key in log lines, and the sampling of keys.

use std::fmt;

use semel_core::event::Event;
use semel_core::{Identity, KeyHint};

/// Whether the lines of a key are logged. It depends on the hash of the key, so every node agrees.
pub(super) fn is_sampled(identity: &Identity, percent: u8) -> bool {
    let [low, high, ..] = *identity.as_bytes();
    u32::from(u16::from_le_bytes([low, high])) * 100 < u32::from(percent) << 16
}

pub(super) fn non_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// A key in log lines: its first characters and the beginning of its hash.
pub(super) struct KeyLabel(KeyHint, Identity);

/// The label of an event's key; `None` if the event has no key.
pub(super) fn key_label(event: &Event<'_>) -> Option<KeyLabel> {
    let is_known = *event.identity.as_bytes() != [0; 32];
    is_known.then_some(KeyLabel(event.hint, event.identity))
}

impl fmt::Display for KeyLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.1.as_bytes();
        write!(f, "{}...{a:02x}{b:02x}{c:02x}{d:02x}", self.0.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentage_of_keys_is_sampled() {
        let count = |percent| {
            let is_in_sample = |n: &u32| {
                let hash = blake3::hash(&n.to_le_bytes());
                is_sampled(&Identity::from_bytes(*hash.as_bytes()), percent)
            };
            (0..10_000_u32).filter(is_in_sample).count()
        };
        assert_eq!(count(0), 0);
        assert_eq!(count(100), 10_000);
        assert!((50..150).contains(&count(1)), "{}", count(1));
    }
}
