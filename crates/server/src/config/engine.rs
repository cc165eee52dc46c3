//! The settings of keys and of the engine: store timeout, circuit breaker, replay cache.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::units::{Size, Span};

/// Which keys are valid.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Keys {
    /// The maximum length of a key, in bytes.
    #[schemars(range(min = 1, max = 1024))]
    pub max_bytes: usize,
    /// Characters that keys may have besides `A-Z a-z 0-9 _ - .`
    pub extra: String,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            max_bytes: 255,
            extra: ":".to_owned(),
        }
    }
}

/// Settings of the engine that apply to the whole process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Engine {
    /// How long one call to the store may take.
    pub store_timeout: Span,
    /// How many consecutive store failures open the circuit breaker. While it is open, the store
    /// gets no calls.
    #[schemars(range(min = 1))]
    pub breaker_failures: u32,
    /// How long the circuit breaker stays open before one request probes the store. Each failed
    /// probe doubles this.
    pub breaker_first_try: Span,
    /// The maximum time between two probes.
    pub breaker_open_for: Span,
    /// The maximum size of the in-memory cache of responses for replays. `0B` disables it.
    pub cache_size: Size,
    /// The maximum age of a cached response. A deletion by another node may go unnoticed for this
    /// long.
    pub cache_age: Span,
}

impl Default for Engine {
    fn default() -> Self {
        let config = semel::EngineConfig::default();
        Self {
            store_timeout: Span(config.call_limit),
            breaker_failures: config.breaker.failures,
            breaker_first_try: Span(config.breaker.first_try),
            breaker_open_for: Span(config.breaker.open_for),
            cache_size: Size(config.cache.max_bytes),
            cache_age: Span(config.cache.max_age),
        }
    }
}
