//! The properties that must hold at every state.

use std::sync::atomic::{AtomicU64, Ordering};

use semel_core::claim::Claimed;
use semel_core::{CrashPolicy, State};

use super::Protocol;
use super::audit::is_answered;
use super::codec::{free_token, time};
use super::config::Asker;
use super::faults::Fault;
use super::property::{Property, property};
use super::reach::SOMETIMES;
use super::world::{AnswerNo, Call, Client, Phase, Reply, World};

/// What was found out about the properties, as bits in the order of the lists.
///
/// Stateright looks up the name of every property at every state, which takes longer than all the
/// rest. So it is given one, [`EVERY_RULE`], and the lists are gone through here.
#[derive(Debug, Default)]
pub(super) struct Findings {
    broken: AtomicU64,
    reached: AtomicU64,
}

impl Findings {
    /// Notes which of the properties a state breaks.
    pub(super) fn note_broken(&self, bits: u64) {
        Self::add(&self.broken, bits);
    }

    /// Notes which of the outcomes were reached.
    pub(super) fn note_reached(&self, bits: u64) {
        Self::add(&self.reached, bits);
    }

    fn add(bits: &AtomicU64, new: u64) {
        // Nearly always nothing is new, and reading is cheaper than writing.
        if new & !bits.load(Ordering::Relaxed) != 0 {
            bits.fetch_or(new, Ordering::Relaxed);
        }
    }

    /// Whether a state was found that breaks the `index`th of the properties.
    pub(super) fn is_broken(&self, index: usize) -> bool {
        self.broken.load(Ordering::Relaxed) & 1 << index != 0
    }

    /// Whether the `index`th of the outcomes was reached.
    pub(super) fn is_reached(&self, index: usize) -> bool {
        self.reached.load(Ordering::Relaxed) & 1 << index != 0
    }
}

/// The name under which Stateright knows all of [`ALWAYS`].
pub(super) const EVERY_RULE: &str = "every rule is kept";

/// Goes through the properties at a state. Whether all of [`ALWAYS`] hold.
pub(super) fn visit(model: &Protocol, world: &World) -> bool {
    let mask = |list: &[Property], wanted: bool| {
        let fits = |property: &Property| (property.condition)(model, world) == wanted;
        list.iter()
            .enumerate()
            .fold(0, |bits, (at, p)| bits | u64::from(fits(p)) << at)
    };
    model.findings.note_reached(mask(SOMETIMES, true));
    let broken = mask(ALWAYS, false);
    model.findings.note_broken(broken);
    model.wanted.map_or(broken, |wanted| broken & 1 << wanted) == 0
}

/// What must hold at every state.
pub(super) const ALWAYS: &[Property] = &[
    property("I1 fences only grow", |_, w| w.ghost.kept(Fault::Fences)),
    property("I1 one owner at a time may start", one_owner),
    property("I2 an answer never changes", |_, w| {
        w.ghost.kept(Fault::AnswerChanged)
    }),
    property("I2 all callers of one life get one answer", one_answer),
    property(
        "P33 an answer given is the answer recorded",
        given_is_recorded,
    ),
    property("I3 a stale lease changes nothing", |_, w| {
        w.ghost.kept(Fault::StaleLease)
    }),
    property("I4 no effect starts past the deadline", |_, w| {
        w.ghost.kept(Fault::LateStart)
    }),
    property("I4 an effect starts under a live lease", |_, w| {
        w.ghost.kept(Fault::StartWithoutLease)
    }),
    property(
        "I5 only a lapsed lease is taken over, and only if allowed",
        |_, w| w.ghost.kept(Fault::Takeover),
    ),
    property("I6 a call sent again is answered the same", |_, w| {
        w.ghost.kept(Fault::Resend)
    }),
    property("I7 a mismatch yields nothing", |_, w| {
        w.ghost.kept(Fault::Mismatch)
    }),
    property("I10 a lapsed lease can be claimed", claimable),
    property("I12 expired is absent at once", |_, w| {
        w.ghost.kept(Fault::Expired)
    }),
    property("I12 only expired records are swept", |_, w| {
        w.ghost.kept(Fault::Swept)
    }),
    property(
        "I13 release only where nothing happened, or may again",
        |_, w| w.ghost.kept(Fault::Release),
    ),
    property("hold: at most one effect", |_, w| {
        w.ghost.kept(Fault::HoldTwice)
    }),
    property("takeover: no more effects than attempts", |_, w| {
        w.ghost.kept(Fault::TooManyStarts)
    }),
    property("P15 a checkpoint is kept and handed on", |_, w| {
        w.ghost.kept(Fault::Checkpoint)
    }),
    property("P17 an owner may settle late", |_, w| {
        w.ghost.kept(Fault::LateSettle)
    }),
    property("P18 settled once", |_, w| w.ghost.kept(Fault::SettledOnce)),
    property("P19 a resolution ends the doubt it names", |_, w| {
        w.ghost.kept(Fault::Resolution)
    }),
    property("P36 the stored policy decides the settlement", |_, w| {
        w.ghost.kept(Fault::StoredPolicy)
    }),
];

fn one_owner(model: &Protocol, world: &World) -> bool {
    let may_start = |client: &&Client| match (client.phase, client.call) {
        (
            Phase::Claiming { since, .. },
            Call::Replied {
                reply: Reply::Won { .. },
                ..
            },
        )
        | (
            Phase::Renewing { since, .. },
            Call::Replied {
                reply: Reply::Held, ..
            },
        ) => model.is_before_deadline(world.now, since),
        _ => false,
    };
    world.clients.iter().filter(may_start).count() <= 1
}

fn one_answer(_: &Protocol, world: &World) -> bool {
    let mut given = answers(world);
    given
        .next()
        .is_none_or(|first| given.all(|answer| answer == first))
}

fn given_is_recorded(model: &Protocol, world: &World) -> bool {
    let Some(row) = world
        .row
        .filter(|row| !model.codec.is_expired(row, world.now))
    else {
        return true;
    };
    answers(world).all(|answer| is_answered(row.state) && row.answer == answer)
}

/// The answers given in this life of the key.
fn answers(world: &World) -> impl Iterator<Item = AnswerNo> {
    world
        .clients
        .iter()
        .filter_map(|client| match client.phase {
            Phase::Answered { answer } if answer != 0 => Some(answer),
            _ => None,
        })
}

/// Once a lease has lapsed, nobody is told to go on waiting; and where the policy allows it,
/// whoever asks now is the next owner.
fn claimable(model: &Protocol, world: &World) -> bool {
    let Some(row) = world.row else { return true };
    if row.state == State::Running && !model.codec.is_past_lease(&row, world.now) {
        return true;
    }
    let same_payload = |asker: &Asker| asker.payload == row.payload;
    let Some(client) = model.config.clients.iter().position(same_payload) else {
        return true;
    };
    let ask = model
        .codec
        .claim(free_token(client, |token| token == row.token));
    let found = model.codec.record(&row);
    let answer = model.rules.claim(Some(&found), ask, time(world.now)).answer;
    let free = row.crash == CrashPolicy::Takeover && row.attempt < model.config.max_attempts;
    match answer {
        Claimed::Won(_) => true,
        Claimed::Busy(_) => false,
        _ => row.state != State::Running || !free,
    }
}
