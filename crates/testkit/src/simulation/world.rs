//! A world: nodes with engines, one store, and faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use semel_core::engine::Engine;
use semel_core::identity::Address;
use semel_core::{Identity, Key, Namespace, Secret};
use semel_stores::encrypted::{EncryptionKey, Keyring, SharedKeyring, WriteKey};

use super::clocks::{Dice, StoreClock};
use super::ledger::Ledger;
use super::plan::Plan;
use super::sched::{Micros, Sched};
use crate::broken::{BrokenStore, Bug};

/// What may be wrong with the nodes of a world, to show that it is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeFlaw {
    /// A store call without an answer is given up after eight times its limit: callers are kept too
    /// long (P34).
    CallsGivenUpLate,
    /// Answers in records of their own get an eighth of their retention (P50).
    AnswersExpireEarly,
    /// A mark names a record of an answer that was never written (P50).
    MarksWithoutAnswers,
}

/// What the nodes of a world do with answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorldKind {
    /// Answers lie in their records, in plain text.
    Plain,
    /// Records are encrypted. A new key is on its way: until all faults are over, every other node
    /// lacks it.
    Encrypted,
    /// Answers lie in records of their own, with a shorter retention (P50).
    AnswersApart,
}

/// What everybody in a world shares.
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) flaw: Option<NodeFlaw>,
    /// The keys of each node, if they encrypt.
    pub(super) encryption: Option<Vec<SharedKeyring>>,
    /// How long answers are kept, if that is shorter than their records are.
    pub(super) answer_retention: Option<Micros>,
    pub(super) sched: Sched,
    pub(super) dice: Dice,
    pub(super) ledger: Mutex<Ledger>,
    pub(super) store: BrokenStore,
    pub(super) store_clock: StoreClock,
    pub(super) keys: Vec<(Namespace, Key, Address)>,
    pub(super) nodes: Mutex<Vec<Node>>,
    /// Until when the store is down.
    pub(super) down_until: AtomicU64,
    /// How far the store's clock was set back, in all.
    pub(super) set_back: AtomicU64,
    /// Nodes that are to end, and to be started anew at once or after a while.
    pub(super) doomed: Mutex<Vec<Doom>>,
    /// Nothing goes wrong any more.
    pub(super) healed: AtomicBool,
    /// The director has seen enough.
    pub(super) over: AtomicBool,
}

/// A node that is to end.
pub(super) struct Doom {
    pub(super) node: usize,
    /// After how long it is started anew.
    pub(super) back_after: Micros,
}

/// A node, up or down.
pub(super) struct Node {
    /// `None` while it is down.
    pub(super) engine: Option<Engine>,
    pub(super) life: u32,
    pub(super) drift: i64,
    /// No message of it arrives until then.
    pub(super) cut_off_until: Micros,
    /// It does nothing until then.
    pub(super) paused_until: Micros,
    /// How long it was paused, in all.
    pub(super) paused: Micros,
}

impl World {
    pub(super) fn new(
        seed: u64,
        bug: Option<Bug>,
        flaw: Option<NodeFlaw>,
        kind: WorldKind,
    ) -> Arc<Self> {
        let (mut plan, dice) = Plan::of(seed);
        let apart = kind == WorldKind::AnswersApart;
        if apart {
            // Records of answers take room, too, which no book counts.
            plan.capacity = None;
        }
        let sched = Sched::default();
        let store_clock = StoreClock::new(sched.clone());
        let store = BrokenStore::bounded(bug, Arc::new(store_clock.clone()), plan.capacity);
        let drift = |dice: &Dice| {
            let most = plan.faults.drift;
            let drift = i64::try_from(dice.below(2 * most + 1)).unwrap_or(0);
            drift - i64::try_from(most).unwrap_or(0)
        };
        let nodes = (0..plan.nodes).map(|_| Node {
            engine: None,
            life: 0,
            drift: drift(&dice),
            cut_off_until: 0,
            paused_until: 0,
            paused: 0,
        });
        let keys: Vec<_> = (0..plan.keys)
            .filter_map(|key| named(key, plan.keys))
            .collect();
        let names = keys
            .iter()
            .map(|(namespace, key, _)| (namespace.clone(), key.hint()));
        let encrypts = kind == WorldKind::Encrypted;
        let rings = || (0..plan.nodes).map(|node| SharedKeyring::new(ring(node, false)));
        let encryption = encrypts.then(|| rings().collect());
        let ledger = Ledger::new(seed, names.collect(), plan.capacity, encrypts);
        let world = Self {
            nodes: Mutex::new(nodes.collect()),
            ledger: Mutex::new(ledger),
            keys,
            plan,
            flaw,
            encryption,
            answer_retention: apart.then_some(plan.retention / 3),
            sched,
            dice,
            store,
            store_clock,
            down_until: AtomicU64::new(0),
            set_back: AtomicU64::new(0),
            doomed: Mutex::default(),
            healed: AtomicBool::new(false),
            over: AtomicBool::new(false),
        };
        let world = Arc::new(world);
        for node in 0..plan.nodes {
            world.start(node);
        }
        world
    }

    /// The number of a key; `None` for the record of an answer.
    pub(super) fn key_of(&self, identity: &Identity) -> Option<usize> {
        let address = identity.address();
        let mut keys = self.keys.iter();
        keys.position(|(.., known)| *known == address)
    }

    pub(super) fn is_down(&self) -> bool {
        self.sched.now() < self.down_until.load(Ordering::Relaxed)
    }

    pub(super) fn is_cut_off(&self, node: usize) -> bool {
        let nodes = self.nodes.lock();
        nodes
            .get(node)
            .is_some_and(|node| self.sched.now() < node.cut_off_until)
    }

    pub(super) fn is_healed(&self) -> bool {
        self.healed.load(Ordering::Relaxed)
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Whether a fault of so many in 1,000 strikes.
    pub(super) fn befalls(&self, kind: &'static str, per_mille: u32) -> bool {
        let strikes = !self.is_healed() && self.dice.per_mille(per_mille);
        if strikes {
            self.ledger.lock().tally.fault(kind);
        }
        strikes
    }

    /// All faults are over: the store is up, every node is new, reaches it and has all keys.
    pub(super) fn heal(&self) {
        self.healed.store(true, Ordering::Relaxed);
        for (node, keys) in self.encryption.iter().flatten().enumerate() {
            keys.replace(ring(node, true));
        }
        self.down_until.store(0, Ordering::Relaxed);
        for node in self.nodes.lock().iter_mut() {
            node.cut_off_until = 0;
            node.paused_until = 0;
        }
    }
}

/// The keys of a node. It goes on to write with the one that it wrote with, so that what it sends
/// again has the same bytes.
fn ring(node: usize, has_all: bool) -> Keyring {
    let is_new = node % 2 == 1;
    let ids: &[u8] = if is_new || has_all { &[1, 2] } else { &[1] };
    let keys = ids
        .iter()
        .filter_map(|id| EncryptionKey::new(u32::from(*id), &[*id; 32]));
    let write = WriteKey::Id(if is_new { 2 } else { 1 });
    Keyring::new(keys.collect(), write).unwrap_or_else(|_| Keyring::empty())
}

/// Two namespaces have keys of the same names.
fn named(index: usize, keys: usize) -> Option<(Namespace, Key, Address)> {
    let scope = if index < keys / 2 { "charge" } else { "refund" };
    let namespace = Namespace::new("simulation", "café", scope).ok()?;
    let key = Key::parse(&format!("order-number-{}", index % (keys / 2).max(1))).ok()?;
    let identity = Identity::new(&Secret::none(), &namespace, &key);
    Some((namespace, key, identity.address()))
}
