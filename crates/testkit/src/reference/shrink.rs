//! Shrinks a failing sequence to a minimal one.

use std::fmt;
use std::sync::Arc;

use semel_core::StoreAdmin;

use super::driver::{Difference, compare};
use super::op::Op;
use super::tally::RuleTally;
use semel_conformance::clock::FakeClock;

/// Makes an empty store that takes its time from the clock.
pub type Make<'a> = &'a dyn Fn(&FakeClock) -> Arc<dyn StoreAdmin>;

/// Compares `ops` on a store of their own.
///
/// # Errors
/// The first [`Difference`].
pub async fn fresh(make: Make<'_>, ops: &[Op], tally: &mut RuleTally) -> Result<(), Difference> {
    let clock = FakeClock::new();
    let store = make(&clock);
    compare(store.as_ref(), &clock, ops, tally).await
}

/// A difference, for people: how to see it again, and the smallest sequence that shows it.
#[derive(Clone, Debug)]
pub struct DifferenceReport {
    /// The seed of the whole sequence, where it came from one.
    pub seed: Option<u64>,
    /// The steps left after shrinking; all of them where a store of its own shows no difference.
    pub ops: Vec<Op>,
    /// The difference they make; `None` where a store of its own shows none.
    pub difference: Option<Difference>,
}

impl fmt::Display for DifferenceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the store and the reference differ")?;
        if let Some(seed) = self.seed {
            writeln!(f, "seed {seed}")?;
        }
        for (step, op) in self.ops.iter().enumerate() {
            writeln!(f, "{:>3}. {op:?}", step + 1)?;
        }
        match &self.difference {
            Some(difference) => write!(f, "{difference}"),
            None => {
                f.write_str("not on a store of its own: something outlived an earlier sequence")
            }
        }
    }
}

/// Shrinks a sequence that differs: leaves out ever smaller parts as long as a difference remains.
pub async fn explain(make: Make<'_>, seed: Option<u64>, ops: &[Op]) -> DifferenceReport {
    let mut tally = RuleTally::default();
    let mut ops = ops.to_vec();
    let mut difference = fresh(make, &ops, &mut tally).await.err();
    if difference.is_none() {
        return DifferenceReport {
            seed,
            ops,
            difference,
        };
    }
    let mut part = ops.len().div_ceil(2);
    loop {
        let before = ops.len();
        let mut at = 0;
        while at < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + part).min(ops.len()));
            match fresh(make, &fewer, &mut tally).await {
                Err(found) => (ops, difference) = (fewer, Some(found)),
                Ok(()) => at += part,
            }
        }
        if part == 1 && ops.len() == before {
            return DifferenceReport {
                seed,
                ops,
                difference,
            };
        }
        part = part.div_ceil(2);
    }
}
