//! [`Clocks`]: how far the clocks of a history may be apart.

use std::time::Duration;

/// How a store's clock is to be read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clocks {
    /// How far it and the history's may run apart over the length of a lease or retention.
    pub slack: Duration,
    /// How long after the end of a lease or retention the store may still decide as if it were just
    /// before it: a store that knows the time only roughly ends nothing early that way.
    pub margin: Duration,
}

impl From<Duration> for Clocks {
    fn from(slack: Duration) -> Self {
        Self {
            slack,
            margin: Duration::ZERO,
        }
    }
}
