//! [`Rewordings`]: in observe mode, which arguments differ between calls that look like retries.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use semel::core::{Fingerprint, Tick};

use crate::identity::Sketch;
use crate::pointer::escape;

/// The most calls remembered, and the most arguments counted.
const MAX_CALLS: usize = 256;
const MAX_COUNTED: usize = 1000;

/// What stands for arguments that the tool doesn't declare, whose names may be anything.
const UNDECLARED: &str = "an argument that the tool doesn't declare";

/// The calls of the last window, without their values.
#[derive(Debug, Default)]
pub(crate) struct Rewordings {
    recent: Mutex<VecDeque<Seen>>,
    counts: Mutex<BTreeMap<(String, String), u64>>,
}

/// A call.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The tool, and who called it.
    pub(crate) origin: Fingerprint,
    pub(crate) at: Tick,
    pub(crate) sketch: Sketch,
}

impl Rewordings {
    /// Remembers a call. Returns the arguments in which it differs from a call that it seems to
    /// repeat.
    pub(crate) fn note(&self, seen: Seen, window: Duration) -> Vec<String> {
        let mut recent = self.recent.lock();
        recent.retain(|earlier| seen.at.since(earlier.at) < window);
        let of_origin = recent.iter().rev();
        let differs = of_origin
            .filter(|earlier| earlier.origin == seen.origin)
            .map(|earlier| differences_of_retry(&earlier.sketch, &seen.sketch));
        let found = differs.flatten().next().unwrap_or_default();
        if recent.len() == MAX_CALLS {
            recent.pop_front();
        }
        recent.push_back(seen);
        found
    }

    /// Counts a difference. Returns how often it was seen since the start.
    pub(crate) fn count(&self, tool: &str, argument: &str) -> u64 {
        let mut counts = self.counts.lock();
        let key = (tool.to_owned(), argument.to_owned());
        if counts.len() >= MAX_COUNTED && !counts.contains_key(&key) {
            return 1;
        }
        let count = counts.entry(key).or_default();
        *count += 1;
        *count
    }
}

/// The differences of a call that looks like a retry: at least one argument is equal, and at most
/// half of them differ. `None` for other calls; empty for an equal one.
fn differences_of_retry(earlier: &Sketch, later: &Sketch) -> Option<Vec<String>> {
    let differs = earlier.differences(later);
    let all = earlier.len().max(later.len());
    (differs.len() * 2 <= all).then_some(differs)
}

/// The first step of a pointer, if the tool declares an argument of that name.
pub(crate) fn declared_name(pointer: &str, names: &BTreeSet<String>) -> String {
    let first = pointer.trim_start_matches('/').split('/').next();
    let first = first
        .unwrap_or_default()
        .replace("~1", "/")
        .replace("~0", "~");
    match names.contains(&first) {
        true => format!("/{}", escape(&first)),
        false => UNDECLARED.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel::Secret;
    use serde_json::{Value, json};

    fn seen(who: &[u8], at: u64, arguments: &Value) -> Seen {
        let secret = Secret::none();
        Seen {
            origin: Fingerprint::builder(&secret).part(who).finish(),
            at: Tick::new(Duration::from_secs(at)),
            sketch: Sketch::new(arguments, "", &secret),
        }
    }

    #[test]
    fn calls_that_look_like_retries_are_compared() {
        let rewordings = Rewordings::default();
        let window = Duration::from_secs(120);
        let note =
            |who: &[u8], at, arguments: &Value| rewordings.note(seen(who, at, arguments), window);
        let first = json!({"to": "a", "amount": 5, "note": "rent"});
        let reworded = json!({"to": "a", "amount": 5, "note": "the rent"});
        let other = json!({"to": "b", "amount": 7, "note": "food"});
        assert!(note(b"ann", 1, &first).is_empty());
        assert!(note(b"bob", 2, &reworded).is_empty(), "another caller");
        assert!(note(b"ann", 3, &other).is_empty(), "another call");
        assert_eq!(note(b"ann", 4, &reworded), ["/note"]);
        assert!(note(b"ann", 5, &reworded).is_empty(), "the same call");
        assert!(note(b"ann", 500, &first).is_empty(), "after the window");
    }

    #[test]
    fn only_declared_names_are_reported() {
        let names: BTreeSet<String> = ["note".to_owned(), "a/b".to_owned()].into();
        assert_eq!(declared_name("/note/deep", &names), "/note");
        assert_eq!(declared_name("/a~1b", &names), "/a~1b");
        assert_eq!(declared_name("/sk_live", &names), UNDECLARED);
    }

    #[test]
    fn memory_is_bounded() {
        let rewordings = Rewordings::default();
        for n in 0..2000 {
            rewordings.note(seen(b"ann", 1, &json!({"n": n})), Duration::from_secs(9));
            rewordings.count("pay", &n.to_string());
        }
        assert_eq!(rewordings.recent.lock().len(), MAX_CALLS);
        assert_eq!(rewordings.counts.lock().len(), MAX_COUNTED);
    }
}
