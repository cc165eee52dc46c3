//! `bench stream`: the window of keys beside a bare LRU map, threads beside one, marks beside the
//! window.
//!
//! Rounds of all of them take turns, so that whatever else the machine does falls on each.

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::Context as _;
use lru::LruCache;
use parking_lot::Mutex;
use semel::core::clock::SystemTime;
use semel_stream::{IdempotencyStore, Mark, SeqNo, SeqNoTracker, SessionId, StreamKey};

use semel_bench_core::report::{Row, median, publish};

/// A window as large as a busy consumer's.
const CAPACITY: usize = 1_000_000;
const SHARDS: usize = 64;
const SESSIONS: usize = 1_000;

/// Calls in a round, and rounds.
const ROUND: u64 = 200_000;
const ROUNDS: usize = 31;

/// Keys in a batch.
const BATCH: usize = 1_000;

/// One key in four was seen before, lately: a stream with many duplicates.
const NEW_IN_FOUR: u64 = 3;

pub(crate) fn bench(most: usize) -> anyhow::Result<()> {
    // First, while this process has no memory to give again.
    let memory = memory(most)?;
    let mut rows = speed()?;
    rows.push(memory);
    publish("stream", &rows)
}

/// The keys of one round, none of them in the rounds before but for the repeats. Made before the
/// clock runs.
fn keys(round: u64) -> Vec<StreamKey> {
    let session = SessionId::named("bench");
    let key = |n: u64| {
        let fresh = n % 4 < NEW_IN_FOUR;
        let seqno = if fresh { n } else { n - n % 97 - 1 };
        StreamKey::derive(session, SeqNo(round * ROUND + seqno), b"operation")
    };
    (0..ROUND).map(key).collect()
}

/// What takes turns.
struct Sides {
    bare: LruCache<u128, ()>,
    locked: Mutex<LruCache<u128, ()>>,
    exact: IdempotencyStore,
    shared: IdempotencyStore,
    batched: IdempotencyStore,
    marks: SeqNoTracker,
    sessions: Vec<SessionId>,
    clock: SystemTime,
}

const SIDES: usize = 7;

impl Sides {
    fn new() -> anyhow::Result<Self> {
        let capacity = NonZeroUsize::new(CAPACITY).context("a capacity")?;
        let sides = Self {
            bare: LruCache::new(capacity),
            locked: Mutex::new(LruCache::new(capacity)),
            exact: IdempotencyStore::new(CAPACITY),
            shared: IdempotencyStore::sharded(CAPACITY, SHARDS),
            batched: IdempotencyStore::sharded(CAPACITY, SHARDS),
            marks: SeqNoTracker::default(),
            sessions: (0..SESSIONS)
                .map(|n| SessionId::named(&n.to_string()))
                .collect(),
            clock: SystemTime::default(),
        };
        for session in &sides.sessions {
            sides.marks.advance(*session, Mark::new(0, 1_000_000))?;
        }
        Ok(sides)
    }

    /// Nanoseconds of a call, for each side.
    fn round(&mut self, round: u64) -> [f64; SIDES] {
        let keys = keys(round);
        let clock = self.clock;
        let timed = |calls: &mut dyn FnMut()| {
            let began = clock.now();
            calls();
            nanos(clock.now().since(began))
        };
        [
            timed(&mut || {
                for key in &keys {
                    black_box(bare(&mut self.bare, *key));
                }
            }),
            timed(&mut || {
                for key in &keys {
                    black_box(bare(&mut self.locked.lock(), *key));
                }
            }),
            timed(&mut || each(&self.exact, &keys)),
            // One round of the shared window on one thread, the next on two.
            timed(&mut || {
                if round.is_multiple_of(2) {
                    each(&self.shared, &keys);
                } else {
                    halves(&self.shared, &keys, each);
                }
            }),
            timed(&mut || {
                if round.is_multiple_of(2) {
                    batches(&self.batched, &keys);
                } else {
                    halves(&self.batched, &keys, batches);
                }
            }),
            timed(&mut || {
                for (n, _) in keys.iter().enumerate() {
                    let session = self.sessions[(n * 7919) % SESSIONS];
                    black_box(self.marks.check(session, Mark::new(0, n as u64)));
                }
            }),
            timed(&mut || {
                for key in &keys {
                    black_box(self.exact.contains(*key));
                }
            }),
        ]
    }
}

fn bare(lru: &mut LruCache<u128, ()>, key: StreamKey) -> bool {
    let new = !lru.contains(&key.0);
    if new {
        lru.put(key.0, ());
    }
    new
}

fn each(store: &IdempotencyStore, keys: &[StreamKey]) {
    for key in keys {
        black_box(store.check_and_record(*key));
    }
}

fn batches(store: &IdempotencyStore, keys: &[StreamKey]) {
    for batch in keys.chunks(BATCH) {
        black_box(store.check_and_record_all(batch));
    }
}

fn halves(store: &IdempotencyStore, keys: &[StreamKey], half: fn(&IdempotencyStore, &[StreamKey])) {
    let (left, right) = keys.split_at(keys.len() / 2);
    std::thread::scope(|scope| {
        scope.spawn(|| half(store, left));
        half(store, right);
    });
}

/// The times of each side; those of windows that are shared on one thread, and on two.
#[derive(Default)]
struct Times {
    bare: Vec<f64>,
    locked: Vec<f64>,
    exact: Vec<f64>,
    shared: [Vec<f64>; 2],
    batched: [Vec<f64>; 2],
    mark: Vec<f64>,
    contains: Vec<f64>,
}

fn times() -> anyhow::Result<Times> {
    let mut sides = Sides::new()?;
    // Until every window is full: from then on each new key makes an old one give way.
    let warm = 2 * CAPACITY as u64 / ROUND;
    for round in 0..warm {
        sides.round(round);
    }
    let mut times = Times::default();
    for round in warm..warm + 2 * ROUNDS as u64 {
        let [bare, locked, exact, shared, batched, mark, contains] = sides.round(round);
        let threads = usize::from(!round.is_multiple_of(2));
        times.bare.push(bare);
        times.locked.push(locked);
        times.exact.push(exact);
        times.shared[threads].push(shared);
        times.batched[threads].push(batched);
        times.mark.push(mark);
        times.contains.push(contains);
    }
    Ok(times)
}

fn speed() -> anyhow::Result<Vec<Row>> {
    let times = times()?;
    // Two threads take what two processors give: the rounds that were disturbed least say what they
    // can.
    let best = |sides: &[Vec<f64>; 2]| (least(&sides[0]), least(&sides[1]));
    let (one_at_best, two_at_best) = best(&times.shared);
    let (one_batched, two_batched) = best(&times.batched);
    let [one, _] = times.shared.map(median);
    let (bare, locked, exact) = (
        median(times.bare),
        median(times.locked),
        median(times.exact),
    );
    let (mark, contains) = (median(times.mark), median(times.contains));
    let rate = |nanos: f64| 1_000.0 / nanos;
    let unit = "M/s";
    let mut rows = vec![
        Row::at_least(
            "check_and_record, one thread, beside a bare LRU map without a lock",
            unit,
            rate(exact),
            rate(bare),
            Some(0.8),
        ),
        Row::at_least(
            "the same, beside one behind a lock",
            unit,
            rate(exact),
            rate(locked),
            None,
        ),
        Row::at_least(
            "the same, in 64 parts, beside a bare LRU map",
            unit,
            rate(one),
            rate(bare),
            None,
        ),
        Row::at_least(
            "in 64 parts, two threads, beside one, each at its best",
            unit,
            rate(two_at_best),
            rate(one_at_best),
            Some(1.3),
        ),
        Row::at_least(
            "the same in batches of 1,000, two threads beside one",
            unit,
            rate(two_batched),
            rate(one_batched),
            Some(1.3),
        ),
        Row::at_least(
            "in batches, two threads, beside single calls of one",
            unit,
            rate(two_batched),
            rate(one_at_best),
            None,
        ),
    ];
    rows.extend(of_marks(mark, exact, contains));
    Ok(rows)
}

fn of_marks(mark: f64, exact: f64, contains: f64) -> [Row; 2] {
    [
        Row::at_most(
            "a mark's check, beside check_and_record",
            "ns",
            mark,
            exact,
            Some(1.0 / 3.0),
        ),
        Row::at_most(
            "a mark's check, beside the window's without recording",
            "ns",
            mark,
            contains,
            None,
        ),
    ]
}

fn nanos(time: Duration) -> f64 {
    time.as_nanos() as f64 / ROUND as f64
}

fn least(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Bytes that a key takes in a full window, after as many again have pushed out the first.
fn memory(most: usize) -> anyhow::Result<Row> {
    let before = resident_bytes()?;
    let store = IdempotencyStore::sharded(most, SHARDS);
    for n in 0..2 * most as u128 {
        // Spread like digests are.
        let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        black_box(store.check_and_record(StreamKey(key)));
    }
    let each = (resident_bytes()? - before) / store.len() as f64;
    let name = format!(
        "bytes a key, {} of them, beside the key itself",
        store.len()
    );
    // 40 bytes.
    Ok(Row::at_most(name, "B", each, 16.0, Some(2.5)))
}

/// What this process has in memory now.
fn resident_bytes() -> anyhow::Result<f64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: f64 = statm
        .split_whitespace()
        .nth(1)
        .context("two numbers")?
        .parse()?;
    Ok(pages * 4096.0)
}
