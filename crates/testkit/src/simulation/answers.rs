//! Checks that the answers to callers are true and in time.

use std::sync::atomic::Ordering;

use semel_core::engine::{Problem, Ran, Replayed, Response};
use semel_core::event::BusyReason;
use semel_core::{Settlement, State, StoreErrorKind};

use super::book::RuleBreach;
use super::job::Job;
use super::sched::Micros;
use super::world::World;
use crate::history::KeyEnding;

/// What an answer means to a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryAdvice {
    /// Asking again gives the same.
    Final,
    /// Asking again may give more.
    Retry,
}

/// When a request came, by the world's clock, and how long its node had been paused by then.
pub(super) struct RequestStart {
    at: Micros,
    paused: Micros,
}

impl RequestStart {
    pub(super) fn now(world: &World, job: &Job) -> Self {
        world.ledger.lock().tally.requests += 1;
        Self {
            at: world.sched.now(),
            paused: world.nodes.lock()[job.node].paused,
        }
    }
}

/// The longest that a caller may be kept (P34), by the world's clock, its own effect and its node's
/// pauses aside.
///
/// A claim is sent three times at most, with pauses between. There is one before the caller waits,
/// one when its wait is over, and one after a doubt was ended. The other calls: to end that doubt,
/// to renew a lease that came late, to read what another answered; and the settlement, which is
/// sent for one lease. Each may last until it is given up.
pub(super) fn longest(world: &World, job: &Job) -> Micros {
    let plan = &world.plan;
    if plan.calm {
        return job.wait + 4 * plan.lease + 2_000_000;
    }
    let call = plan.call_limit;
    let claim = 3 * call + 125_000;
    // Who may not wait for a run may wait for another's claim, for as long as one call.
    let wait = job.wait.max(call);
    let settlement = plan.lease + 2 * call + 1_000_000;
    // The record of an answer is claimed and settled before the settlement, or read after a claim.
    let apart = world.answer_retention.map_or(0, |_| 6 * call);
    let kept = wait + 3 * claim + 3 * call + settlement + apart + 5_000;
    // A node's clock may be slow.
    kept + kept * (plan.faults.drift + 1_000) / 1_000_000
}

/// A patient caller was told nothing.
pub(super) fn never_told(world: &World, job: &Job, life: u32) {
    let nodes = world.nodes.lock();
    let node = &nodes[job.node];
    let excused = node.life != life || node.engine.is_none() || node.paused > 0;
    drop(nodes);
    if !excused && job.work() == 0 {
        let sentence = "a caller was told nothing for longer than any limit".to_owned();
        world.ledger.lock().breach(job.key, ("P34", sentence));
    }
}

/// Judges an answer.
pub(super) fn told(
    world: &World,
    job: &Job,
    begun: &RequestStart,
    response: &Response<u64>,
) -> RetryAdvice {
    let (what, told) = kind(response);
    let wrong = in_time(world, job, begun, response).or_else(|| is_true(world, job, response));
    let wrong = wrong.or_else(|| at_the_end(job, response));
    let mut ledger = world.ledger.lock();
    ledger.tally.tell(what);
    let now = world.sched.now();
    ledger.trace(30, [now, job.key as u64, what.len() as u64]);
    if let Some(wrong) = wrong {
        ledger.breach(job.key, wrong);
    }
    told
}

fn kind(response: &Response<u64>) -> (&'static str, RetryAdvice) {
    match response {
        Response::Ran(ran) => match ran.state {
            State::Completed | State::Failed => ("its own answer", RetryAdvice::Final),
            _ => ("its own failure", RetryAdvice::Retry),
        },
        Response::Replayed(_) => ("an earlier answer", RetryAdvice::Final),
        Response::Unprotected(_) => ("its own answer, unprotected", RetryAdvice::Final),
        Response::Problem(problem) => match problem.is_retryable() {
            true => (problem.code().as_str(), RetryAdvice::Retry),
            false => (problem.code().as_str(), RetryAdvice::Final),
        },
    }
}

/// Nobody is kept past its limit (P34, I10), by the node's own time while it was awake.
fn in_time(
    world: &World,
    job: &Job,
    begun: &RequestStart,
    response: &Response<u64>,
) -> Option<RuleBreach> {
    let paused = world.nodes.lock()[job.node].paused - begun.paused;
    let now = world.sched.now();
    let took = now - begun.at;
    let most = longest(world, job) + paused + job.work();
    if took > most {
        let sentence = format!("a caller was kept for {took} µs, and {most} would have been much");
        return Some(("P34", sentence));
    }
    if !world.plan.calm {
        return None;
    }
    // Nothing is wrong here, so a settlement wakes whoever waits for it at once.
    let settled = world.ledger.lock().books[job.key].settled.max(begun.at);
    let late = now.saturating_sub(settled);
    let replayed = matches!(response, Response::Replayed(_));
    if replayed && late > 100_000 {
        return Some((
            "P34",
            format!("an answer was {late} µs old when a waiter was told"),
        ));
    }
    let gave_up = |why: &BusyReason| matches!(why, BusyReason::WaitedTooLong);
    match response {
        Response::Problem(Problem::Busy { why, .. })
            if gave_up(why) && took > job.wait + 100_000 =>
        {
            Some((
                "P34",
                format!("a caller waited for {took} µs, not {}", job.wait),
            ))
        }
        _ => None,
    }
}

/// What a caller is told is what was done (I2, I7, I8, I11, P33).
fn is_true(world: &World, job: &Job, response: &Response<u64>) -> Option<RuleBreach> {
    match response {
        Response::Ran(ran) => was_settled(world, job, ran),
        Response::Replayed(replayed) => was_given(world, job, replayed),
        Response::Unprotected(_) if !job.fail_open => {
            Some(("I11", "a caller was served unprotected".to_owned()))
        }
        Response::Problem(Problem::AnswerExpired) => expired(world, job.key),
        Response::Problem(Problem::Unreadable { .. }) => {
            let spoiled = world.ledger.lock().books[job.key].spoiled;
            // Before all nodes have all keys, one without the key says so (P46).
            let lacks_key = world.encryption.is_some() && !job.last;
            (!spoiled && !lacks_key).then(|| ("P25", "a record could not be read".to_owned()))
        }
        _ => None,
    }
}

/// A caller is told that an answer has expired only after its retention.
fn expired(world: &World, key: usize) -> Option<RuleBreach> {
    // The clock may have been set back since.
    let now = world.store_clock.micros() + world.set_back.load(Ordering::Relaxed);
    let sentence = match world.ledger.lock().answers.is_over(key, now) {
        Some(true) => return None,
        Some(false) => "an answer was said to have expired before its retention was over",
        None => "an answer was said to have expired that was never written",
    };
    Some(("P50", sentence.to_owned()))
}

/// A caller is given its answer only once the store has it (P33).
fn was_settled(world: &World, job: &Job, ran: &Ran<u64>) -> Option<RuleBreach> {
    let ledger = world.ledger.lock();
    let done = ledger.books[job.key].done.get(&ran.fence.0);
    let as_told = match (ran.state, done) {
        (State::Running, _) => true,
        (State::Completed | State::Failed, Some(ending)) => {
            let index = usize::try_from(ran.value).unwrap_or(usize::MAX);
            let made = ledger.made.get(index)?;
            let answer = (*made.answer).clone().capped(world.plan.most_answer_bytes);
            let settlement = match ran.state {
                State::Failed => Settlement::Fail(answer.into()),
                _ => Settlement::Complete(answer.into()),
            };
            // The store has it encrypted, or a mark in its place.
            let is_changed = world.encryption.is_some() || world.answer_retention.is_some();
            match (is_changed, KeyEnding::from(&settlement)) {
                (false, told) => *ending == told,
                (true, KeyEnding::Failed(_)) => matches!(ending, KeyEnding::Failed(_)),
                (true, _) => matches!(ending, KeyEnding::Completed(_)),
            }
        }
        (State::Released, Some(KeyEnding::Released)) | (State::InDoubt, Some(_)) => true,
        _ => false,
    };
    (!as_told).then(|| {
        (
            "P33",
            "a caller was told of a settlement that isn't there".to_owned(),
        )
    })
}

/// An answer is byte for byte what was made, for this key and this payload.
fn was_given(world: &World, job: &Job, replayed: &Replayed) -> Option<RuleBreach> {
    let answer = &replayed.replay.answer;
    let number = <[u8; 8]>::try_from(&answer.head[..]).map(u64::from_be_bytes);
    let index = usize::try_from(number.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    let ledger = world.ledger.lock();
    let Some(made) = ledger.made.get(index) else {
        return Some(("I2", "an answer was replayed that nobody gave".to_owned()));
    };
    let whole = *made.answer == **answer;
    if !whole
        && made
            .answer
            .as_ref()
            .clone()
            .capped(world.plan.most_answer_bytes)
            != **answer
    {
        return Some(("I2", "an answer was changed".to_owned()));
    }
    if made.key != job.key {
        return Some(("I8", "another key's answer was replayed".to_owned()));
    }
    if made.payload != job.payload {
        return Some(("I7", "another payload's answer was replayed".to_owned()));
    }
    (made.state != replayed.replay.state).then(|| {
        (
            "P12",
            "a failure was replayed as an answer, or the other way round".to_owned(),
        )
    })
}

/// When all faults are over and all owners dead, every key is free, answered or in doubt (I10).
fn at_the_end(job: &Job, response: &Response<u64>) -> Option<RuleBreach> {
    let Response::Problem(problem) = response else {
        return None;
    };
    let fine = match problem {
        Problem::Mismatch
        | Problem::InDoubt(_)
        | Problem::Unreadable { .. }
        | Problem::AnswerExpired => true,
        Problem::Unavailable {
            source: Some(error),
            ..
        } => error.kind == StoreErrorKind::Full,
        _ => false,
    };
    (job.last && !fine).then(|| {
        let sentence = format!(
            "no answer though nothing is wrong any more: {}",
            problem.code()
        );
        ("I10", sentence)
    })
}
