//! [`Distribution`]: a histogram of durations, and its quantiles.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;
use utoipa::ToSchema;

/// The longest measured duration. Longer ones count as this.
const MAX_MICROS: u64 = 120_000_000;

/// Quantiles in milliseconds, with a precision of about 1 %.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct Quantiles {
    /// The median.
    pub(super) p50: f64,
    /// The 95th percentile.
    pub(super) p95: f64,
    /// The 99th percentile.
    pub(super) p99: f64,
}

/// The distribution of one kind of duration.
#[derive(Clone, Debug, Default)]
pub(super) struct Distribution(Option<Histogram<u32>>);

impl Distribution {
    pub(super) fn record(&mut self, took: Duration) {
        if self.0.is_none() {
            // These constant bounds are valid.
            self.0 = Histogram::new_with_bounds(1, MAX_MICROS, 2).ok();
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(MAX_MICROS);
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(micros.clamp(1, MAX_MICROS));
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        match (&mut self.0, &other.0) {
            (_, None) => {}
            (None, some) => self.0.clone_from(some),
            // Both have the same bounds.
            (Some(ours), Some(theirs)) => drop(ours.add(theirs)),
        }
    }

    pub(super) fn quantiles(&self) -> Option<Quantiles> {
        let histogram = self.0.as_ref()?;
        let at = |quantile| {
            let micros = u32::try_from(histogram.value_at_quantile(quantile)).unwrap_or(u32::MAX);
            f64::from(micros) / 1000.0
        };
        Some(Quantiles {
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_out_of_range_count_as_the_limit() {
        let mut distribution = Distribution::default();
        distribution.record(Duration::ZERO);
        distribution.record(Duration::from_secs(100_000));
        let quantiles = distribution.quantiles().unwrap();
        assert!(
            quantiles.p50 < 0.01 && quantiles.p99 >= 119_000.0,
            "{quantiles:?}"
        );
    }
}
