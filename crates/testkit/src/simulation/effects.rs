//! Effects: their actions and answers, and whether they were allowed to begin.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use semel_core::engine::{Lease, Report, Verdict};
use semel_core::{Answer, AnswerBody, State, Store as _};

use super::job::Job;
use super::ledger::EffectEntry;
use super::sched::Micros;
use super::world::World;

/// What an effect will do, decided before it begins.
struct Script {
    work: Micros,
    checkpoint: Option<usize>,
    end: End,
}

enum End {
    Complete,
    Fail,
    Retry,
    NoEffect,
    Unknown,
    Panic,
}

impl Script {
    fn roll(world: &World, job: &Job) -> Self {
        let (dice, lease) = (&world.dice, world.plan.lease);
        if job.last {
            return Self {
                work: 1000,
                checkpoint: None,
                end: End::Complete,
            };
        }
        let work = match dice.below(10) {
            0..6 => dice.below(lease / 20),
            6..9 => dice.below(lease),
            _ => dice.below(3 * lease),
        };
        let sizes = [1, 3, 5000];
        let end = match dice.below(20) {
            0..12 => End::Complete,
            12..14 => End::Fail,
            14 | 15 => End::Retry,
            16 | 17 => End::NoEffect,
            18 => End::Unknown,
            _ => End::Panic,
        };
        Self {
            work,
            checkpoint: dice.one_in(3).then(|| sizes[dice.index(3)]),
            end,
        }
    }
}

/// Runs an effect under `lease`.
pub(super) async fn effect(world: Arc<World>, job: Job, lease: Lease) -> Report<u64> {
    let script = Script::roll(&world, &job);
    began(&world, &job, &lease, matches!(script.end, End::NoEffect));
    let begun = world.sched.now();
    job.worked(1);
    world.sched.sleep(script.work / 2).await;
    if let Some(bytes) = script.checkpoint {
        // Two in a row: the second takes the place of the first, also where it is empty.
        for bytes in [bytes, bytes / 2] {
            let mark = u8::try_from(world.dice.below(256)).unwrap_or(0);
            // A lease that is lost stops an effect that can be stopped; this one can't.
            let _ = lease.checkpoint(vec![mark; bytes]).await;
        }
    }
    world.sched.sleep(script.work / 2).await;
    job.worked(world.sched.now() - begun);
    match script.end {
        End::Complete => answer(&world, &job, State::Completed),
        End::Fail => answer(&world, &job, State::Failed),
        End::Retry => nothing(Verdict::Retry),
        End::NoEffect => nothing(Verdict::NoEffect),
        End::Unknown => nothing(Verdict::Unknown),
        // Not `panic!`, which would tell of it on the console.
        End::Panic => std::panic::resume_unwind(Box::new("simulated")),
    }
}

fn nothing(verdict: Verdict) -> Report<u64> {
    Report::new(u64::MAX, verdict)
}

fn answer(world: &World, job: &Job, state: State) -> Report<u64> {
    let (value, answer) = made(world, job.key, job.payload, state);
    let answer = Answer::clone(&answer);
    let verdict = match state {
        State::Failed => Verdict::Fail(answer),
        _ => Verdict::Complete(answer),
    };
    Report::new(value, verdict)
}

/// An answer that nobody else gives, and its number.
pub(super) fn made(world: &World, key: usize, payload: u8, state: State) -> (u64, Arc<Answer>) {
    let body = match world.dice.below(40) {
        0..8 => Bytes::new(),
        8 => Bytes::from(vec![0xa5; 70_000]),
        9..14 => Bytes::from_static(&[0x5a; 100]),
        // Bytes that are no text.
        _ => Bytes::from_static(b"\xff\x00\xfe"),
    };
    let mut ledger = world.ledger.lock();
    let number = ledger.made.len() as u64;
    let answer = Arc::new(Answer {
        head: Bytes::copy_from_slice(&number.to_be_bytes()),
        body: AnswerBody::Kept(body),
    });
    ledger.made.push(EffectEntry {
        key,
        payload,
        answer: Arc::clone(&answer),
        state,
    });
    (number, answer)
}

/// An effect begins: under a lease that is still its owner's (I4), or unprotected by choice (I11).
fn began(world: &World, job: &Job, lease: &Lease, nothing_happens: bool) {
    let Some(fence) = lease.fence() else {
        let mut ledger = world.ledger.lock();
        if !job.fail_open {
            let sentence = "an effect began without a lease".to_owned();
            ledger.breach(job.key, ("I11", sentence));
        }
        ledger.trace(20, [world.sched.now(), job.key as u64, 0]);
        return;
    };
    let late = lease.remaining().is_zero();
    let found = world.store.read(&job.identity).now_or_never();
    let record = found.and_then(Result::ok).flatten();
    let owns = record.is_some_and(|record| record.fence == fence && record.state == State::Running);
    let mut ledger = world.ledger.lock();
    ledger.tally.effects += 1;
    ledger.trace(21, [world.sched.now(), job.key as u64, fence.0]);
    // What does nothing may be given back by its owner under `hold` too (P36): the history takes an
    // effect for one that did.
    if !nothing_happens {
        ledger.effect(job.key, job.node, fence.0, lease.attempt());
    }
    let book = &ledger.books[job.key];
    let won = book.won.get(&fence.0).copied();
    let disturbed = won.is_none_or(|won| book.disturbed.is_some_and(|when| when >= won));
    if late {
        let sentence = format!("an effect under {fence} began after its owner's deadline");
        ledger.breach(job.key, ("I4", sentence));
    } else if !owns && !disturbed {
        let sentence = format!("an effect began under {fence}, which was another's by then");
        ledger.breach(job.key, ("I4", sentence));
    }
}
