//! [`IdempotencyStore`]: the keys that were seen last, within a bound.

use std::hash::BuildHasher as _;

use hashbrown::DefaultHashBuilder;
use parking_lot::Mutex;

use crate::key::StreamKey;
use crate::lru::Lru;

/// A bounded window of keys. When it is full, the least recently seen key is evicted, and looks new
/// again. To recognise duplicates after any length of time, use sequence numbers and
/// [`SeqNoTracker`](crate::SeqNoTracker).
///
/// 36 bytes a key, all of them taken when it is made; memory that no key has reached yet is the
/// system's to lend. Keys are spread by a hash with a random seed, so that nobody can choose keys
/// that crowd together.
///
/// ```
/// use semel_stream::{StreamKey, IdempotencyStore};
///
/// let store = IdempotencyStore::default_capacity();
/// assert!(store.check_and_record(StreamKey(1)));
/// assert!(!store.check_and_record(StreamKey(1)));
/// assert_eq!((store.len(), store.capacity()), (1, 100_000));
/// ```
#[derive(Debug)]
pub struct IdempotencyStore {
    shards: Box<[Shard]>,
    capacity: usize,
    hasher: DefaultHashBuilder,
}

/// On cache lines of its own: two threads in two shards never wait for each other's.
#[derive(Debug)]
#[repr(align(128))]
struct Shard(Mutex<Lru>);

/// How many keys a store has room for unless it is told.
pub const DEFAULT_CAPACITY: usize = 100_000;

/// More shards than this help nobody.
const MOST_SHARDS: usize = 1_024;

/// A shard with fewer keys than this would fill up long before the others.
const LEAST_SHARD: usize = 256;

impl IdempotencyStore {
    /// Room for exactly the last `capacity` keys (at least 1), behind one lock.
    ///
    /// # Panics
    /// If `capacity` is 0 or 2³¹ and more.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self::sharded(capacity, 1)
    }

    /// Room for 100,000 keys.
    #[must_use]
    pub fn default_capacity() -> Self {
        Self::new(DEFAULT_CAPACITY)
    }

    /// Room for at most `capacity` keys, in up to `shards` parts with a lock each, for several
    /// threads.
    ///
    /// Each part has room for its share, and keys fall into parts by chance: what is surely
    /// remembered is a little less than `capacity`, see [`surely`](Self::surely). A small window
    /// gets fewer parts.
    ///
    /// # Panics
    /// If `capacity` is 0, or a part would have 2³¹ keys and more.
    #[must_use]
    pub fn sharded(capacity: usize, shards: usize) -> Self {
        assert!(capacity > 0, "a window needs room for at least one key");
        let most = (capacity / LEAST_SHARD).clamp(1, MOST_SHARDS);
        let shards = shards.clamp(1, most);
        let share = |shard| capacity / shards + usize::from(shard < capacity % shards);
        assert!(share(0) <= Lru::MOST, "a window holds fewer than 2^31 keys");
        let shard = |shard| Shard(Mutex::new(Lru::new(share(shard))));
        Self {
            shards: (0..shards).map(shard).collect(),
            capacity,
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// Whether the key is new (`true`: apply the operation), and records it. `false`: it was seen
    /// before, skip.
    ///
    /// Records before anything is applied. Where applying may fail, use [`Gate`](crate::Gate), or
    /// [`forget`](Self::forget) the key when it did.
    #[must_use = "`false` says that this is a duplicate"]
    pub fn check_and_record(&self, key: StreamKey) -> bool {
        let hash = self.hasher.hash_one(key);
        self.shard(hash).lock().record(hash, key, &self.hasher)
    }

    /// [`check_and_record`](Self::check_and_record) for each of these keys, in their order: `true`
    /// if it is new.
    ///
    /// Each part's lock is taken once for all of its keys. Threads that share a window spend most
    /// of their time on handing parts to each other; with a hundred keys and more at a time they
    /// spend it on the keys.
    ///
    /// ```
    /// use semel_stream::{StreamKey, IdempotencyStore};
    ///
    /// let store = IdempotencyStore::sharded(100_000, 64);
    /// let keys = [1, 2, 1].map(StreamKey);
    /// assert_eq!(store.check_and_record_all(&keys), [true, true, false]);
    /// ```
    #[must_use = "`false` says that this is a duplicate"]
    pub fn check_and_record_all(&self, keys: &[StreamKey]) -> Vec<bool> {
        let hashes: Vec<u64> = keys.iter().map(|key| self.hasher.hash_one(key)).collect();
        // By part, and within a part as they came: a key may be there twice.
        let mut begins = vec![0_usize; self.shards.len() + 1];
        for hash in &hashes {
            begins[self.part(*hash) + 1] += 1;
        }
        for part in 1..begins.len() {
            begins[part] += begins[part - 1];
        }
        let (mut next, mut sorted) = (begins.clone(), vec![0_usize; keys.len()]);
        for (at, hash) in hashes.iter().enumerate() {
            let slot = &mut next[self.part(*hash)];
            sorted[*slot] = at;
            *slot += 1;
        }
        let mut new = vec![false; keys.len()];
        for (shard, range) in self.shards.iter().zip(begins.windows(2)) {
            if range[0] == range[1] {
                continue;
            }
            let mut lru = shard.0.lock();
            for &at in &sorted[range[0]..range[1]] {
                new[at] = lru.record(hashes[at], keys[at], &self.hasher);
            }
        }
        new
    }

    /// Whether the key is in the window. Changes nothing.
    #[must_use]
    pub fn contains(&self, key: StreamKey) -> bool {
        let hash = self.hasher.hash_one(key);
        self.shard(hash).lock().contains(hash, key)
    }

    /// Takes a key out again, because its operation was not applied. → whether it was there.
    pub fn forget(&self, key: StreamKey) -> bool {
        let hash = self.hasher.hash_one(key);
        self.shard(hash).lock().forget(hash, key)
    }

    /// How many keys are in the window now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().len()).sum()
    }

    /// Whether no key is in the window.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys there is room for.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many of the last distinct keys are remembered, but for odds below one in a billion a
    /// shard: all with one lock, six standard deviations less with several.
    #[must_use]
    pub fn surely(&self) -> usize {
        match self.shards.len() {
            1 => self.capacity,
            shards => self
                .capacity
                .saturating_sub(6 * (self.capacity * shards).isqrt()),
        }
    }

    /// All keys, the oldest first: recorded again in this order, they make the same window. With
    /// several parts the order between these is by rank, which is as near as parts can know.
    #[must_use]
    pub fn keys(&self) -> Vec<StreamKey> {
        let parts: Vec<Vec<StreamKey>> = self
            .shards
            .iter()
            .map(|shard| shard.0.lock().oldest_first().collect())
            .collect();
        let longest = parts.iter().map(Vec::len).max().unwrap_or(0);
        let mut keys = Vec::with_capacity(parts.iter().map(Vec::len).sum());
        // Counted from the newest, at which all parts end.
        for rank in (1..=longest).rev() {
            let ranked = parts
                .iter()
                .filter_map(|part| Some(part[part.len().checked_sub(rank)?]));
            keys.extend(ranked);
        }
        keys
    }

    fn part(&self, hash: u64) -> usize {
        // Any bits but the upper ones, which choose the bucket.
        let at = ((hash & 0xffff_ffff) * self.shards.len() as u64) >> 32;
        usize::try_from(at).unwrap_or_default()
    }

    fn shard(&self, hash: u64) -> &Mutex<Lru> {
        &self.shards[self.part(hash)].0
    }
}
