//! One shard of the window: keys in the order in which they were last seen, in two flat arrays.
//!
//! Everything is allocated when it is made, so that no operation ever waits for a table to be
//! rebuilt, and nothing is left behind by a removal. 36 bytes a key: 28 for the node, 8 for two
//! buckets. See ADR 0023.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;

use crate::key::StreamKey;

/// Nodes are numbered from 1: 0 is none, so that fresh memory from the system is an empty table as
/// it is.
type Link = u32;
const NONE: Link = 0;

/// In quarters, so that a node needs no padding.
type Packed = [u32; 4];

#[derive(Debug)]
struct Node {
    key: Packed,
    newer: Link,
    older: Link,
    /// The next in the same bucket; or the next that is free.
    chain: Link,
}

/// At most `capacity` keys; the one that was seen longest ago gives way.
#[derive(Debug)]
pub(crate) struct Lru {
    buckets: Box<[Link]>,
    nodes: Vec<Node>,
    capacity: usize,
    len: usize,
    newest: Link,
    oldest: Link,
    free: Link,
}

impl Lru {
    /// The most keys that links can count.
    pub(crate) const MOST: usize = (u32::MAX / 2) as usize;

    pub(crate) fn new(capacity: usize) -> Self {
        debug_assert!(
            (1..=Self::MOST).contains(&capacity),
            "checked by the caller"
        );
        Self {
            buckets: vec![NONE; capacity * 2].into_boxed_slice(),
            nodes: Vec::with_capacity(capacity),
            capacity,
            len: 0,
            newest: NONE,
            oldest: NONE,
            free: NONE,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn contains(&self, hash: u64, key: StreamKey) -> bool {
        self.find(hash, pack(key)) != NONE
    }

    /// Whether the key is new; either way it is now the one seen last.
    pub(crate) fn record(
        &mut self,
        hash: u64,
        key: StreamKey,
        hasher: &DefaultHashBuilder,
    ) -> bool {
        let key = pack(key);
        let found = self.find(hash, key);
        if found != NONE {
            if found != self.newest {
                self.unlink(found);
                self.link_newest(found);
            }
            return false;
        }
        if self.len == self.capacity {
            let oldest = self.oldest;
            let hash = hasher.hash_one(unpack(self.node(oldest).key));
            self.remove(hash, oldest);
        }
        let bucket = self.bucket(hash);
        let at = self.place(Node {
            key,
            newer: NONE,
            older: NONE,
            chain: self.buckets[bucket],
        });
        self.buckets[bucket] = at;
        self.link_newest(at);
        self.len += 1;
        true
    }

    /// Takes the key out. → whether it was there.
    pub(crate) fn forget(&mut self, hash: u64, key: StreamKey) -> bool {
        let found = self.find(hash, pack(key));
        if found != NONE {
            self.remove(hash, found);
        }
        found != NONE
    }

    /// All keys, the one that gives way next first.
    pub(crate) fn oldest_first(&self) -> impl Iterator<Item = StreamKey> + '_ {
        let first = (self.oldest != NONE).then_some(self.oldest);
        let newer = |at: &Link| Some(self.node(*at).newer).filter(|&next| next != NONE);
        std::iter::successors(first, newer).map(|at| unpack(self.node(at).key))
    }

    fn node(&self, at: Link) -> &Node {
        &self.nodes[at as usize - 1]
    }

    fn node_mut(&mut self, at: Link) -> &mut Node {
        &mut self.nodes[at as usize - 1]
    }

    /// By the upper half of the hash; the shard was chosen by the lower.
    fn bucket(&self, hash: u64) -> usize {
        let upper = (hash >> 32) * self.buckets.len() as u64;
        // Below the number of buckets, which is a usize.
        usize::try_from(upper >> 32).unwrap_or_default()
    }

    fn find(&self, hash: u64, key: Packed) -> Link {
        let mut at = self.buckets[self.bucket(hash)];
        while at != NONE {
            let node = self.node(at);
            if node.key == key {
                break;
            }
            at = node.chain;
        }
        at
    }

    fn place(&mut self, node: Node) -> Link {
        let at = self.free;
        if at == NONE {
            self.nodes.push(node);
            // At most MOST nodes.
            return u32::try_from(self.nodes.len()).unwrap_or(NONE);
        }
        self.free = self.node(at).chain;
        *self.node_mut(at) = node;
        at
    }

    fn remove(&mut self, hash: u64, at: Link) {
        self.unlink(at);
        let chain = self.node(at).chain;
        let bucket = self.bucket(hash);
        let mut before = self.buckets[bucket];
        if before == at {
            self.buckets[bucket] = chain;
        } else {
            while self.node(before).chain != at {
                before = self.node(before).chain;
            }
            self.node_mut(before).chain = chain;
        }
        self.node_mut(at).chain = self.free;
        self.free = at;
        self.len -= 1;
    }

    fn unlink(&mut self, at: Link) {
        let (newer, older) = (self.node(at).newer, self.node(at).older);
        match newer {
            NONE => self.newest = older,
            newer => self.node_mut(newer).older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.node_mut(older).newer = newer,
        }
    }

    fn link_newest(&mut self, at: Link) {
        let older = self.newest;
        let node = self.node_mut(at);
        (node.newer, node.older) = (NONE, older);
        match older {
            NONE => self.oldest = at,
            older => self.node_mut(older).newer = at,
        }
        self.newest = at;
    }
}

#[expect(clippy::cast_possible_truncation, reason = "in quarters")]
const fn pack(StreamKey(key): StreamKey) -> Packed {
    [
        key as u32,
        (key >> 32) as u32,
        (key >> 64) as u32,
        (key >> 96) as u32,
    ]
}

const fn unpack([a, b, c, d]: Packed) -> StreamKey {
    StreamKey(a as u128 | (b as u128) << 32 | (c as u128) << 64 | (d as u128) << 96)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;

    #[test]
    fn packing_loses_nothing() {
        for key in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_0246_8ace_1357_9bdf] {
            assert_eq!(unpack(pack(StreamKey(key))).0, key);
        }
    }

    /// Every call, and the whole order after it, against a queue. Keys are few, so that they meet;
    /// the hasher puts them all in a few buckets, so that chains are long.
    #[test]
    fn it_does_what_a_plain_queue_does() {
        let hasher = DefaultHashBuilder::default();
        for seed in 0..50 {
            let mut random = StdRng::seed_from_u64(seed);
            let capacity = random.random_range(1..12);
            let (mut lru, mut plain) = (Lru::new(capacity), VecDeque::new());
            for step in 0..2_000 {
                let key = StreamKey(random.random_range(0..16));
                let hash = hasher.hash_one(key);
                let was = plain.iter().position(|other| *other == key);
                if random.random_bool(0.2) {
                    assert_eq!(
                        lru.forget(hash, key),
                        was.is_some(),
                        "seed {seed} step {step}"
                    );
                    was.map(|at| plain.remove(at));
                } else {
                    assert_eq!(lru.contains(hash, key), was.is_some());
                    let new = lru.record(hash, key, &hasher);
                    assert_eq!(new, was.is_none(), "seed {seed} step {step}");
                    was.map(|at| plain.remove(at));
                    if plain.len() == capacity {
                        plain.pop_front();
                    }
                    plain.push_back(key);
                }
                assert_eq!(lru.len(), plain.len());
                assert!(
                    lru.oldest_first().eq(plain.iter().copied()),
                    "seed {seed} step {step}"
                );
            }
        }
    }
}
