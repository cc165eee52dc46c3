//! The world: producers, a network that loses, repeats and reorders, and a consumer that fails and
//! crashes.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use semel_stream::GateVerdict;

use crate::producer::{Kind, Message, Producer};
use crate::subject::{Bug, Subject};

const PRODUCERS: usize = 100;

/// So many messages are on their way at once, any of which may come next.
const ON_THE_WAY: usize = 300;

/// A message that was in flight for so many operations is next. Two thirds of the window: what
/// failed then comes again still within it.
const LATEST: u64 = 2_600;

/// What happened, so that a run can show that it was no idle one.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) applied: u64,
    pub(crate) duplicates: u64,
    pub(crate) gaps: u64,
    pub(crate) stale: u64,
    pub(crate) failures: u64,
    pub(crate) crashes: u64,
    pub(crate) restarts: u64,
    pub(crate) epochs: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, other: &Self) {
        self.applied += other.applied;
        self.duplicates += other.duplicates;
        self.gaps += other.gaps;
        self.stale += other.stale;
        self.failures += other.failures;
        self.crashes += other.crashes;
        self.restarts += other.restarts;
        self.epochs += other.epochs;
    }
}

pub(crate) struct World {
    random: StdRng,
    subject: Subject,
    producers: Vec<Producer>,
    on_the_way: Vec<Message>,
    now: u64,
    pub(crate) seen: Seen,
}

impl World {
    pub(crate) fn new(seed: u64, subject: Subject) -> Self {
        Self {
            random: StdRng::seed_from_u64(seed),
            subject,
            producers: (0..PRODUCERS).map(Producer::new).collect(),
            on_the_way: Vec::new(),
            now: 0,
            seen: Seen::default(),
        }
    }

    /// Sends `operations` in all, then goes on until each has arrived. → what is wrong.
    pub(crate) fn run(&mut self, operations: u64) -> Result<(), String> {
        while self.now < operations {
            self.send();
            if self.random.random_bool(0.002) {
                self.restart_a_producer()?;
            }
            if self.random.random_bool(0.001) {
                self.subject.restart();
                self.seen.restarts += 1;
            }
            while self.on_the_way.len() > ON_THE_WAY / 2 {
                self.consume()?;
            }
        }
        // No more than a few rounds are needed, unless something is lost for good.
        for _ in 0..10_000 {
            self.send_all_again();
            while !self.on_the_way.is_empty() {
                self.consume()?;
            }
            if self
                .producers
                .iter()
                .all(|producer| !producer.applied.contains(&0))
            {
                return Ok(());
            }
        }
        Err("an operation never arrives".to_owned())
    }

    fn send(&mut self) {
        let at = self.random.random_range(0..PRODUCERS);
        // A producer waits for answers before it is too far ahead.
        let producer = &mut self.producers[at];
        let again = producer.kind != Kind::Keyed
            && producer.known < producer.sent
            && (producer.sent - producer.known > 8 || self.random.random_bool(0.1));
        let message = if again {
            let index = self.random.random_range(producer.known..producer.sent);
            let index = if self.random.random_bool(0.5) {
                producer.known
            } else {
                index
            };
            producer.message(index, self.now)
        } else {
            self.now += 1;
            producer.send(self.now)
        };
        // Without a number to resend by, a message is only ever repeated.
        let copies = match producer.kind {
            Kind::Keyed => self.random.random_range(1..=3),
            _ => self.random.random_range(0..=3),
        };
        self.on_the_way.extend(std::iter::repeat_n(message, copies));
    }

    fn send_all_again(&mut self) {
        for producer in self
            .producers
            .iter()
            .filter(|producer| producer.kind != Kind::Keyed)
        {
            let unknown = producer.next..producer.sent;
            self.on_the_way.extend(
                unknown
                    .take(10)
                    .map(|index| producer.message(index, self.now)),
            );
        }
    }

    fn restart_a_producer(&mut self) -> Result<(), String> {
        let at = self.random.random_range(0..PRODUCERS);
        let producer = &mut self.producers[at];
        if producer.kind == Kind::Keyed {
            return Ok(());
        }
        let last = self.subject.fence(producer.session, producer.epoch + 1);
        let last = last.map_err(|error| format!("no fence: {error}"))?;
        producer.restart(last);
        if producer.known != producer.next && self.subject.bug.is_none() {
            return Err("the fence says that more or less was applied than was".to_owned());
        }
        self.seen.epochs += 1;
        Ok(())
    }

    /// Takes some messages in any order, the late ones first.
    fn take(&mut self) -> Vec<Message> {
        let wanted = self.random.random_range(1..=20).min(self.on_the_way.len());
        let late = |message: &mut Message| self.now - message.born > LATEST;
        let mut taken: Vec<Message> = self.on_the_way.extract_if(.., late).collect();
        while taken.len() < wanted {
            let at = self.random.random_range(0..self.on_the_way.len());
            taken.push(self.on_the_way.swap_remove(at));
        }
        taken
    }

    fn consume(&mut self) -> Result<(), String> {
        let taken = self.take();
        let crashes = self.random.random_bool(0.005);
        let subject = &self.subject;
        let mut batch = subject.batch();
        // The effects are in a transaction: there when it is committed, and gone with a crash
        // before.
        let mut effects = Vec::new();
        let mut again = Vec::new();
        for message in &taken {
            match subject.offer(&mut batch, &message.operation) {
                GateVerdict::Apply(ticket) if self.random.random_bool(0.99) => {
                    batch.applied(ticket);
                    effects.push(*message);
                }
                GateVerdict::Apply(_) => {
                    self.seen.failures += 1;
                    again.push(*message);
                }
                GateVerdict::Duplicate => {
                    self.seen.duplicates += 1;
                    let is_one = is_duplicate(&self.producers[message.producer], message, &effects);
                    if !is_one {
                        return Err(format!(
                            "{message:?} is called a duplicate but was never applied"
                        ));
                    }
                }
                GateVerdict::Gap { .. } => {
                    self.seen.gaps += 1;
                    // Sent again by the network, or lost, and then by its producer.
                    if self.random.random_bool(0.7) {
                        again.push(*message);
                    }
                }
                GateVerdict::Stale { .. } => {
                    self.seen.stale += 1;
                    if message.epoch == self.producers[message.producer].epoch {
                        return Err(format!("{message:?} is of the present epoch"));
                    }
                }
                other @ (GateVerdict::Busy | GateVerdict::Full) => {
                    return Err(format!("{other:?}"));
                }
            }
        }
        let early = subject.bug == Some(Bug::MarkBeforeEffect);
        if crashes {
            if early {
                batch.commit().expect("it is in memory");
            } else {
                drop(batch);
            }
            self.subject.restart();
            self.seen.crashes += 1;
            // Nothing was acknowledged.
            self.on_the_way.extend(taken);
            return Ok(());
        }
        batch.commit().expect("it is in memory");
        self.on_the_way.extend(again);
        effects
            .into_iter()
            .try_for_each(|message| self.apply(&message))
    }

    fn apply(&mut self, message: &Message) -> Result<(), String> {
        let producer = &mut self.producers[message.producer];
        let times = &mut producer.applied[message.index];
        if *times > 0 {
            return Err(format!("{message:?} is applied twice"));
        }
        *times = 1;
        self.seen.applied += 1;
        if producer.kind != Kind::Keyed {
            if message.index != producer.next {
                return Err(format!("{message:?} is applied out of order"));
            }
            producer.next += 1;
            // Not every answer reaches the producer.
            if self.random.random_bool(0.8) {
                producer.known = producer.known.max(producer.next);
            }
        }
        Ok(())
    }
}

fn is_duplicate(producer: &Producer, message: &Message, effects: &[Message]) -> bool {
    let same = |other: &Message| (other.producer, other.index) == (message.producer, message.index);
    producer.applied[message.index] > 0 || effects.iter().any(same)
}
