//! The search for a linearization.

use std::collections::{HashMap, HashSet};

use super::super::event::{CallRecord, CallReply, CallRequest};
use super::super::view::{View, until};
use super::happening::{Event, alike, event};
use super::key::Key;
use super::state::Terrain;

/// So many situations are looked at for one key, at most.
const PATIENCE: usize = 200_000;
/// The longest chains of unanswered calls that are tried before one answer: in the first search,
/// the second and the third.
pub(super) const CHAINS: [usize; 3] = [1, 2, 4];
/// So many calls are shown, at most.
const SHOWN: usize = 3;

/// What the search came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Order,
    Nothing(Stuck),
}

/// How far the search came.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Stuck {
    /// It was given up.
    pub(super) is_undecided: bool,
    /// The calls that changed the record last, and the one whose answer fits nowhere after them.
    pub(super) calls: Vec<usize>,
}

pub(super) struct Search<'h> {
    events: Vec<Event<'h>>,
    terrain: Terrain,
    /// By the answered calls that have happened and what they led to: which of the others had
    /// happened, none of them a subset of another.
    seen: HashMap<(Bits, Key), Vec<Bits>>,
    looked_at: usize,
    longest_chain: usize,
    deepest: (usize, Stuck),
    /// For a claim that nobody heard of again: the one before it that asks for the same.
    alike: Vec<Option<usize>>,
}

/// A set of events.
type Bits = Box<[u64]>;

/// Some events have happened, in some order.
#[derive(Clone)]
struct Situation {
    /// Answered calls.
    done: Bits,
    /// Others.
    used: Bits,
    count: usize,
    key: Key,
    /// The calls that changed the record last.
    last: Vec<usize>,
    /// When the last answered one of them was sent.
    written: u64,
}

impl Situation {
    fn has(&self, event: usize) -> bool {
        (self.done[event / 64] | self.used[event / 64]) & (1 << (event % 64)) != 0
    }

    fn with(&self, event: usize, must_happen: bool, key: Key) -> Self {
        let mut next = Self {
            key,
            ..self.clone()
        };
        let bits = if must_happen {
            &mut next.done
        } else {
            &mut next.used
        };
        bits[event / 64] |= 1 << (event % 64);
        next.count += usize::from(must_happen);
        next
    }
}

/// Whether all of `some` are in `all`.
fn is_subset(some: &[u64], all: &[u64]) -> bool {
    some.iter().zip(all).all(|(some, all)| some & !all == 0)
}

/// Whether a claim was overtaken (P4), and another call was writing the record at that time. Then
/// its answer says nothing about the record.
fn is_overtaken(index: usize, call: &CallRecord, view: &View<'_>) -> bool {
    let is_beside = |other: &CallRecord| other.start <= until(call) && call.start <= until(other);
    let writes = |other: &CallRecord| {
        other.ask != CallRequest::Read
            && !matches!(other.reply, CallReply::Busy | CallReply::Overtaken)
    };
    let others = view.calls.iter().enumerate();
    call.reply == CallReply::Overtaken
        && others
            .filter(|(number, _)| *number != index)
            .any(|(_, other)| writes(other) && is_beside(other))
}

impl<'h> Search<'h> {
    pub(super) fn new(view: &View<'h>, losses: &[(u64, u64)], longest_chain: usize) -> Self {
        let mut events: Vec<_> = view
            .calls
            .iter()
            .enumerate()
            .filter(|(index, call)| !is_overtaken(*index, call, view))
            .filter_map(|(index, call)| event(index, call))
            .collect();
        events.extend(losses.iter().map(|(from, to)| Event::Loss {
            from: *from,
            to: *to,
        }));
        events.sort_by_key(Event::from);
        Self {
            alike: alike(&events),
            events,
            terrain: Terrain::new(view, !losses.is_empty()),
            seen: HashMap::new(),
            looked_at: 0,
            longest_chain,
            deepest: (0, Stuck::default()),
        }
    }

    pub(super) fn run(mut self) -> Found {
        let all = self
            .events
            .iter()
            .filter(|event| event.must_happen())
            .count();
        let done = vec![0; self.events.len().div_ceil(64)].into_boxed_slice();
        let mut open = vec![Situation {
            used: done.clone(),
            done,
            count: 0,
            key: Key::default(),
            last: Vec::new(),
            written: 0,
        }];
        while let Some(situation) = open.pop() {
            let situation = self.take_what_changes_nothing(situation);
            if situation.count == all {
                return Found::Order;
            }
            if !self.is_new(&situation) {
                continue;
            }
            if self.looked_at > PATIENCE {
                self.deepest.1.is_undecided = true;
                break;
            }
            self.note(&situation);
            self.branch(&situation, &mut open);
        }
        Found::Nothing(self.deepest.1)
    }

    /// Whether nothing as good was looked at: one with the same answers explained, the same record,
    /// and no more of the other calls used up.
    fn is_new(&mut self, situation: &Situation) -> bool {
        let so_far = (situation.done.clone(), situation.key.clone());
        let all = self.seen.entry(so_far).or_default();
        if all.iter().any(|used| is_subset(used, &situation.used)) {
            return false;
        }
        all.retain(|used| !is_subset(&situation.used, used));
        all.push(situation.used.clone());
        self.looked_at += 1;
        true
    }

    /// What can happen next: whatever was sent before the first answer that is still to be
    /// explained.
    fn next(&self, situation: &Situation) -> Vec<usize> {
        let limit = self.limit(situation);
        let sent = self.events.partition_point(|event| event.from() <= limit);
        (0..sent).filter(|event| !situation.has(*event)).collect()
    }

    fn limit(&self, situation: &Situation) -> u64 {
        let open = self
            .events
            .iter()
            .enumerate()
            .filter(|(event, of)| of.must_happen() && !situation.has(*event));
        open.map(|(_, event)| event.until())
            .min()
            .unwrap_or(u64::MAX)
    }

    /// An answered call that changes nothing may as well have happened at once: it stands in
    /// nobody's way.
    fn take_what_changes_nothing(&self, mut situation: Situation) -> Situation {
        loop {
            let fits = self.next(&situation).into_iter().find(|event| {
                let (key, event) = (&situation.key, &self.events[*event]);
                let Event::Call {
                    call,
                    is_answered: true,
                    ..
                } = event
                else {
                    return false;
                };
                key.after(call, &self.terrain).contains(key)
            });
            let Some(event) = fits else { return situation };
            let key = situation.key.clone();
            situation = situation.with(event, true, key);
        }
    }

    /// Puts on what can follow: an answered call; or one that needs others before it of which
    /// nobody knows whether they happened. Such a one that makes no difference to the next answer
    /// may as well have happened later, so it is tried only right before an answer that needs it.
    fn branch(&self, situation: &Situation, open: &mut Vec<Situation>) {
        let (answered, others): (Vec<_>, Vec<_>) = self
            .next(situation)
            .into_iter()
            .partition(|event| self.events[*event].must_happen());
        let direct: Vec<_> = answered
            .iter()
            .flat_map(|event| self.follow(situation, *event))
            .collect();
        let chains = self.chains(situation, &others);
        // The last to be put on is the first to be tried: the shortest chains, and calls in the
        // order in which they were sent.
        for chain in chains[1..].iter().rev() {
            for event in answered.iter().rev() {
                let after = self.follow_or_stay(chain, *event).into_iter();
                let is_direct = |next: &Situation| {
                    let same = |other: &Situation| other.key == next.key && other.done == next.done;
                    direct.iter().any(same)
                };
                open.extend(after.filter(|next| !is_direct(next)));
            }
        }
        open.extend(direct.into_iter().rev());
    }

    /// What calls without an answer may have led to, the shortest chains first; the empty one is
    /// the first.
    fn chains(&self, situation: &Situation, others: &[usize]) -> Vec<Situation> {
        let mut chains = vec![situation.clone()];
        let mut known = HashSet::from([situation.key.clone()]);
        let mut first = 0;
        for _ in 0..self.longest_chain {
            let last = chains.len();
            for number in first..last {
                for event in others {
                    let longer = self.follow(&chains[number], *event).into_iter();
                    chains.extend(longer.filter(|longer| known.insert(longer.key.clone())));
                }
            }
            first = last;
        }
        chains
    }

    /// What `event` may lead to, where it changes something.
    fn follow(&self, situation: &Situation, event: usize) -> Vec<Situation> {
        let mut all = self.follow_or_stay(situation, event);
        all.retain(|next| next.key != situation.key);
        all
    }

    fn follow_or_stay(&self, situation: &Situation, event: usize) -> Vec<Situation> {
        let of = &self.events[event];
        if situation.has(event) || self.stands_back(event, situation) {
            return Vec::new();
        }
        let (keys, index) = match of {
            Event::Call { call, index, .. } => {
                (situation.key.after(call, &self.terrain), Some(*index))
            }
            // What was written after it is not lost by it.
            Event::Loss { to, .. } if situation.written > *to => return Vec::new(),
            Event::Loss { .. } => (situation.key.after_loss(), None),
        };
        let follow = |key: Key| {
            let has_changed = key != situation.key;
            let mut next = situation.with(event, of.must_happen(), key);
            if let Some(index) = index.filter(|_| has_changed) {
                next.last.push(index);
                let surplus = next.last.len().saturating_sub(SHOWN - 1);
                next.last.drain(..surplus);
                if of.must_happen() {
                    next.written = next.written.max(of.from());
                }
            }
            next
        };
        keys.into_iter().map(follow).collect()
    }

    /// Of claims that nobody heard of again, and that ask for the same, the first one may as well
    /// be the one that happened.
    fn stands_back(&self, event: usize, situation: &Situation) -> bool {
        let like = self.alike[event];
        like.is_some_and(|earlier| !situation.has(earlier))
    }

    /// Remembers the situation in which most was explained.
    fn note(&mut self, situation: &Situation) {
        if situation.count < self.deepest.0 {
            return;
        }
        let limit = self.limit(situation);
        let stuck = self
            .events
            .iter()
            .enumerate()
            .find_map(|(event, of)| match of {
                Event::Call {
                    index,
                    is_answered: true,
                    ..
                } => (!situation.has(event) && of.until() == limit).then_some(*index),
                _ => None,
            });
        let mut calls = situation.last.clone();
        calls.extend(stuck);
        calls.sort_unstable();
        calls.dedup();
        self.deepest = (
            situation.count,
            Stuck {
                is_undecided: false,
                calls,
            },
        );
    }
}
