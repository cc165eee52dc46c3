//! The interval of a median.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use semel_bench_core::report::{Interval, median};

/// Resamples of the bootstrap.
const RESAMPLES: usize = 2_000;

/// The 95 % interval of the median, by bootstrap.
pub(crate) fn interval(values: &[f64]) -> Interval {
    let mut rng = StdRng::seed_from_u64(1);
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let draw = |_| values[rng.random_range(0..values.len())];
            median((0..values.len()).map(draw).collect())
        })
        .collect();
    medians.sort_unstable_by(f64::total_cmp);
    let outside = RESAMPLES / 40;
    Interval {
        low: medians[outside],
        high: medians[RESAMPLES - 1 - outside],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_contains_the_median_and_narrows_with_agreement() {
        let spread: Vec<f64> = (0..40).map(|i| 0.5 + f64::from(i) / 40.0).collect();
        let close: Vec<f64> = (0..40).map(|i| 0.99 + f64::from(i) / 2_000.0).collect();
        for values in [&spread, &close] {
            let found = interval(values);
            let middle = median(values.clone());
            assert!(found.low <= middle && middle <= found.high, "{found:?}");
        }
        let width = |values| interval(values).high - interval(values).low;
        assert!(width(&close) < width(&spread) / 10.0);
    }
}
