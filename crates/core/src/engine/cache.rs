//! The local replay cache: completed and failed answers don't change, so a copy may answer (P38).
//!
//! Filled by the first replay that the store gives rather than by every completion: most keys are
//! never asked for again, and those that are get their second and later replays from here.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use hashbrown::DefaultHashBuilder;
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use crate::claim::{Mismatch, Replay};
use crate::clock::Tick;
use crate::fingerprint::Fingerprint;
use crate::identity::{Identity, address_bits};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Settings of the local replay cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheConfig {
    /// The most bytes of answers kept; 0 turns the cache off. 16 MiB.
    pub max_bytes: u64,
    /// The longest that a copy is used, and so the longest that another node's deletion goes
    /// unnoticed. 30 s.
    pub max_age: Duration,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            max_bytes: 16 * 1024 * 1024,
            max_age: Duration::from_secs(30),
        }
    }
}

impl CacheConfig {
    /// Sets [`max_bytes`](Self::max_bytes).
    #[must_use]
    pub const fn with_max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Sets [`max_age`](Self::max_age).
    #[must_use]
    pub const fn with_max_age(mut self, max_age: Duration) -> Self {
        self.max_age = max_age;
        self
    }
}

pub(super) struct ReplayCache {
    max_age: Duration,
    copies: Option<Cache<CacheKey, Arc<CachedReplay>, ByBytes, DefaultHashBuilder>>,
    /// The microsecond after the last call of `forget`; 0 before the first.
    forgotten: AtomicU64,
}

/// An identity that is hashed by its address alone: that is half of a digest.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CacheKey(Identity);

impl Hash for CacheKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        address_bits(&self.0.address()).hash(state);
    }
}

struct CachedReplay {
    fingerprint: Fingerprint,
    replay: Replay,
    good_until: Tick,
    given: AtomicU32,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<CacheKey, Arc<CachedReplay>> for ByBytes {
    fn weight(&self, _: &CacheKey, copy: &Arc<CachedReplay>) -> u64 {
        let answer = &copy.replay.answer;
        // A fixed share for the entry itself, so that tiny answers are bounded too.
        (256 + answer.head.len() + answer.body.held_bytes()) as u64
    }
}

/// The result of a lookup.
pub(super) enum CacheLookup {
    Replay(Replay, u32),
    Mismatch(Mismatch),
    Nothing,
}

impl ReplayCache {
    pub(super) fn new(config: CacheConfig) -> Self {
        let items = usize::try_from(config.max_bytes / 1024).unwrap_or(usize::MAX);
        let (hasher, lifecycle) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        let copies = (config.max_bytes > 0)
            .then(|| Cache::with(items, config.max_bytes, ByBytes, hasher, lifecycle));
        Self {
            max_age: config.max_age,
            copies,
            forgotten: AtomicU64::new(0),
        }
    }

    pub(super) fn get(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        now: Tick,
    ) -> CacheLookup {
        let Some(copies) = &self.copies else {
            return CacheLookup::Nothing;
        };
        let Some(copy) = copies.get(&CacheKey(*identity)) else {
            return CacheLookup::Nothing;
        };
        // An old copy stays for its number of replays, until the store's answer replaces it.
        if now >= copy.good_until {
            return CacheLookup::Nothing;
        }
        if copy.fingerprint != *fingerprint {
            return CacheLookup::Mismatch(Mismatch {
                fingerprint: copy.fingerprint,
                requested_at: Some(copy.replay.requested_at),
            });
        }
        let number = copy.given.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        CacheLookup::Replay(copy.replay.clone(), number)
    }

    /// Keeps a replay that the store just gave, and returns the number of this replay. `asked` is
    /// when the store was asked: the record's remaining retention counts from then at the latest,
    /// so the copy never outlives the record. A replay that was asked for before the last call of
    /// `forget` isn't kept, because its record may be gone.
    pub(super) fn put(
        &self,
        identity: Identity,
        fingerprint: Fingerprint,
        replay: &Replay,
        asked: Tick,
    ) -> Option<u32> {
        let copies = self.copies.as_ref()?;
        let good_until = asked.plus(replay.expires_in.min(self.max_age));
        // An earlier copy of the same run's answer goes on counting.
        let number = match copies.get(&CacheKey(identity)) {
            Some(copy) if copy.replay.fence == replay.fence => {
                let number = copy.given.fetch_add(1, Ordering::Relaxed).saturating_add(1);
                // One answer of the store may be shared by many callers.
                if (copy.good_until, copy.fingerprint) == (good_until, fingerprint) {
                    return Some(number);
                }
                number
            }
            _ => 1,
        };
        let given = AtomicU32::new(number);
        copies.insert(
            CacheKey(identity),
            Arc::new(CachedReplay {
                fingerprint,
                replay: replay.clone(),
                good_until,
                given,
            }),
        );
        // Checked after the insertion: `forget` sets the mark before it removes, so one of the two
        // sees the other.
        if asked.as_micros() < self.forgotten.load(Ordering::SeqCst) {
            copies.remove(&CacheKey(identity));
            return None;
        }
        Some(number)
    }

    /// Removes all copies.
    pub(super) fn clear(&self, now: Tick) {
        self.mark(now);
        if let Some(copies) = &self.copies {
            copies.clear();
        }
    }

    fn mark(&self, now: Tick) {
        let after = now.as_micros().saturating_add(1);
        self.forgotten.fetch_max(after, Ordering::SeqCst);
    }

    pub(super) fn forget(&self, identity: &Identity, now: Tick) {
        self.mark(now);
        if let Some(copies) = &self.copies {
            copies.remove(&CacheKey(*identity));
        }
    }
}
