//! The loop on a cell whose replies are scripted.

use std::sync::Mutex;
use std::time::Duration;

use semel_core::{
    Certainty, Claim, ClaimTerms, CrashPolicy, Fence, Fingerprint, Identity, Key, Namespace,
    Secret, StoreErrorKind, Token, protocol,
};

use super::*;

/// What a scripted read or swap gives.
enum Reply {
    /// A read of a record with this fence, or of none.
    Seen(Option<u64>),
    Done,
    Lost,
    Uncertain,
    Fails(Certainty),
    NotConfirmed,
}

struct Scripted {
    replies: Mutex<Vec<Reply>>,
}

impl Scripted {
    fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let mut replies: Vec<_> = replies.into_iter().collect();
        replies.reverse();
        Self {
            replies: Mutex::new(replies),
        }
    }

    fn next(&self) -> Reply {
        let next = self.replies.lock().expect("one thread").pop();
        next.expect("one more reply than scripted was asked for")
    }

    fn is_through(&self) -> bool {
        self.replies.lock().expect("one thread").is_empty()
    }
}

fn error(certainty: Certainty) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, certainty, "scripted")
}

fn record(fence: u64) -> Record {
    let namespace = Namespace::new("", "", "cas").expect("a namespace");
    let key = Key::parse("k-1").expect("a key");
    let minute = Duration::from_secs(60);
    let claim = Claim {
        retry: false,
        identity: Identity::new(&Secret::none(), &namespace, &key),
        fingerprint: Fingerprint::builder(&Secret::none()).finish(),
        token: Token(1),
        terms: ClaimTerms::new(minute, minute, CrashPolicy::Takeover, 5).expect("terms"),
        secret_id: 0,
        hint: key.hint(),
        namespace,
    };
    let first = protocol::claim(None, &claim, Timestamp::default()).write;
    Record {
        fence: Fence(fence),
        ..first.expect("a first run is written")
    }
}

/// The record that is wanted has this fence. → the fence that was found first.
const WANTED: u64 = 9;

fn decide(found: Option<&Record>, _: Timestamp) -> Decision<Option<u64>> {
    let fence = found.map(|record| record.fence.0);
    Decision {
        answer: fence,
        write: (fence != Some(WANTED)).then(|| record(WANTED)),
    }
}

const READ: Start<()> = Start::Read { write_sent: false };

fn run(start: Start<()>, replies: impl IntoIterator<Item = Reply>) -> Outcome {
    let cell = Scripted::new(replies);
    let driving = drive(&cell, start, decide);
    let change = futures_util::FutureExt::now_or_never(driving).expect("nothing waits");
    assert!(cell.is_through(), "fewer steps than scripted");
    change.map(|change| change.map(|change| (change.answer, change.written.is_some())))
}

/// The answer, and whether something was written; `None` if it was overtaken.
type Outcome = StoreResult<Option<(Option<u64>, bool)>>;

fn certainty(outcome: Outcome) -> Certainty {
    outcome.expect_err("an error").certainty
}

#[test]
fn a_swap_that_loses_is_decided_again_on_a_new_read() {
    use Reply::{Done, Lost, Seen};
    let outcome = run(READ, [Seen(Some(1)), Lost, Seen(Some(2)), Done]);
    assert_eq!(outcome.expect("done"), Some((Some(2), true)));
    let outcome = run(READ, [Seen(None), Done]);
    assert_eq!(outcome.expect("done"), Some((None, true)));
    let outcome = run(READ, [Seen(Some(WANTED))]);
    assert_eq!(outcome.expect("done"), Some((Some(WANTED), false)));
}

#[test]
fn the_last_step_is_a_read() {
    use Reply::{Lost, Seen, Uncertain};
    let lost = || [Seen(Some(1)), Lost, Seen(Some(2)), Lost];
    let outcome = run(READ, lost().into_iter().chain([Seen(Some(3))]));
    assert_eq!(outcome.expect("overtaken"), None);
    // The write whose reply was lost is found by it.
    let found = [Seen(Some(1)), Lost, Seen(Some(2)), Uncertain];
    let outcome = run(READ, found.into_iter().chain([Seen(Some(WANTED))]));
    assert_eq!(outcome.expect("found"), Some((Some(WANTED), false)));
}

#[test]
fn what_is_remembered_decides_nothing_without_a_write() {
    use Reply::{Done, Seen};
    let remembered = |fence| {
        Start::Remembered(Snapshot {
            found: Some((record(fence), ())),
            now: Timestamp::default(),
        })
    };
    let outcome = run(remembered(WANTED), [Seen(Some(2)), Done]);
    assert_eq!(outcome.expect("done"), Some((Some(2), true)));
    let outcome = run(remembered(1), [Done]);
    assert_eq!(outcome.expect("done"), Some((Some(1), true)));
}

#[test]
fn what_is_not_confirmed_is_read_again() {
    use Reply::{Done, NotConfirmed, Seen};
    let outcome = run(
        READ,
        [Seen(Some(WANTED)), NotConfirmed, Seen(Some(3)), Done],
    );
    assert_eq!(outcome.expect("done"), Some((Some(3), true)));
}

#[test]
fn a_read_that_fails_after_a_write_leaves_the_outcome_unknown() {
    use Certainty::{Definite, Unknown};
    use Reply::{Fails, Lost, Seen, Uncertain};
    assert_eq!(certainty(run(READ, [Fails(Definite)])), Definite);
    let after_a_write = Start::Read { write_sent: true };
    assert_eq!(certainty(run(after_a_write, [Fails(Definite)])), Unknown);
    let lost = [Seen(Some(1)), Lost, Fails(Definite)];
    assert_eq!(certainty(run(READ, lost)), Unknown);
    let refused = [Seen(Some(1)), Fails(Definite)];
    assert_eq!(certainty(run(READ, refused)), Definite);
    let refused_later = [Seen(Some(1)), Uncertain, Seen(Some(1)), Fails(Definite)];
    assert_eq!(certainty(run(READ, refused_later)), Unknown);
    let unanswered = [Seen(Some(1)), Uncertain, Seen(Some(2)), Lost, Seen(Some(3))];
    assert_eq!(certainty(run(READ, unanswered)), Unknown);
}

#[test]
fn a_damaged_record_is_no_doubt_about_a_write() {
    let damaged = StoreError::new(StoreErrorKind::Record, Certainty::Definite, "damaged");
    assert_eq!(
        read_back_failed(true, damaged).certainty,
        Certainty::Definite
    );
}

impl Cell for Scripted {
    type Version = ();
    type Written = ();

    const ATTEMPTS: u32 = 3;

    async fn read(&self) -> StoreResult<Snapshot<()>> {
        match self.next() {
            Reply::Seen(fence) => Ok(Snapshot {
                found: fence.map(|fence| (record(fence), ())),
                now: Timestamp::default(),
            }),
            Reply::Fails(certainty) => Err(error(certainty)),
            _ => panic!("a read was not expected"),
        }
    }

    async fn swap(&self, _: &Snapshot<()>, _: Record) -> StoreResult<Swap<Self>> {
        match self.next() {
            Reply::Done => Ok(Swap::Done(())),
            Reply::Lost => Ok(Swap::Lost(None)),
            Reply::Uncertain => Ok(Swap::Uncertain(error(Certainty::Unknown))),
            Reply::Fails(certainty) => Err(error(certainty)),
            _ => panic!("a swap was not expected"),
        }
    }

    async fn confirm(&self, _: &Snapshot<()>) -> StoreResult<bool> {
        let is_last = matches!(
            self.replies.lock().expect("one thread").last(),
            Some(Reply::NotConfirmed)
        );
        if is_last {
            self.next();
        }
        Ok(!is_last)
    }
}
