//! The keys of the operations.

/// The maximum number of repetitions.
pub(crate) const MOST_TIMES: u64 = 6_000;

/// The keys that callers would send: as many in every run, so that making them is not counted.
pub(crate) fn keys(number: impl Fn(u64) -> u64) -> Vec<String> {
    (0..MOST_TIMES)
        .map(|i| format!("ord-{}", number(i)))
        .collect()
}
