//! The rules for what callers were told, each seen to fail; and histories in lines, which outlive
//! their process.

use std::io::Write;
use std::sync::Arc;

use parking_lot::Mutex;
use semel_conformance::clock::FakeClock;
use semel_core::{
    Answer, Claim, ClaimTerms, Claimed, CrashPolicy, Fingerprint, Identity, Key, MemoryConfig,
    MemoryStore, Namespace, Secret, Settlement, Store as _, Token,
};
use semel_testkit::history::callers::{CallerOutcome, CallerReport, Reading, check};
use semel_testkit::history::{
    CallRecord, CallReply, CallRequest, EffectRecord, History, HistoryLog, KeyEnding, OPERATOR,
    read_lines,
};

fn told(start: u64, answer: u64) -> CallerReport {
    CallerReport {
        client: 1,
        key: "k".to_owned(),
        payload: 7,
        start,
        end: start + 10,
        what: CallerOutcome::Answer(KeyEnding::Completed(answer)),
    }
}

fn effect(start: u64) -> EffectRecord {
    EffectRecord {
        client: 1,
        key: "k".to_owned(),
        fence: start,
        attempt: 1,
        start,
        began: 0,
        end: Some(start + 1),
    }
}

/// The invariants that are found broken.
fn broken(
    told: &[CallerReport],
    effects: &[EffectRecord],
    reading: Reading<'_>,
) -> Vec<&'static str> {
    let found = check(told, effects, reading);
    found.iter().map(|violation| violation.invariant).collect()
}

#[test]
fn one_answer_for_all_is_clean() {
    let effects = [effect(5), effect(12)];
    let all = [told(10, 1), told(30, 1)];
    assert!(broken(&all, &effects, Reading::default()).is_empty());
}

#[test]
fn two_answers_for_one_key_are_found() {
    let all = [told(10, 1), told(30, 2)];
    assert_eq!(broken(&all, &[effect(5)], Reading::default()), ["I2"]);
}

#[test]
fn an_effect_after_the_answer_is_found() {
    let effects = [effect(5), effect(21)];
    assert_eq!(broken(&[told(10, 1)], &effects, Reading::default()), ["I9"]);
}

#[test]
fn an_answer_for_two_payloads_is_found() {
    let other = CallerReport {
        payload: 8,
        ..told(30, 1)
    };
    let all = [told(10, 1), other];
    assert_eq!(broken(&all, &[effect(5)], Reading::default()), ["I7"]);
}

fn operators(start: u64, ask: CallRequest, reply: CallReply) -> CallRecord {
    CallRecord {
        client: 1 | OPERATOR,
        key: "k".to_owned(),
        start,
        end: Some(start + 1),
        began: start,
        ended: Some(start + 1),
        ask,
        reply,
    }
}

fn completed(start: u64, answer: u64) -> CallRecord {
    let ask = CallRequest::Settle {
        fence: start,
        token: 1,
        ending: KeyEnding::Completed(answer),
    };
    CallRecord {
        client: 1,
        ..operators(start, ask, CallReply::Done)
    }
}

fn broken_beside(
    told: &[CallerReport],
    effects: &[EffectRecord],
    calls: Vec<CallRecord>,
) -> Vec<&'static str> {
    let store = History {
        calls,
        effects: Vec::new(),
    };
    let reading = Reading {
        store: Some(&store),
        undisturbed: false,
    };
    broken(told, effects, reading)
}

#[test]
fn a_key_that_an_operator_deletes_has_another_life() {
    let (all, effects) = ([told(10, 1), told(50, 2)], [effect(5), effect(45)]);
    let with = |deletion: CallReply| {
        let deletion = operators(30, CallRequest::Delete, deletion);
        vec![completed(6, 1), deletion, completed(46, 2)]
    };
    assert!(broken_beside(&all, &effects, with(CallReply::Deleted(true))).is_empty());
    let refused = with(CallReply::Failed { definite: true });
    assert_eq!(broken_beside(&all, &effects, refused), ["I2", "I9"]);
    // What went wrong before the deletion is found.
    let early = [told(10, 1), told(15, 2)];
    let deleted = with(CallReply::Deleted(true));
    assert_eq!(broken_beside(&early, &effects, deleted), ["P33", "I2"]);
}

#[test]
fn an_owner_whose_lease_was_unlocked_may_begin_late() {
    let unlock = |fence| {
        let ask = CallRequest::Settle {
            fence,
            token: 1,
            ending: KeyEnding::Released,
        };
        operators(3, ask, CallReply::Done)
    };
    let (all, effects) = ([told(10, 1)], [effect(5), effect(21)]);
    let calls = |fence| vec![unlock(fence), completed(6, 1)];
    assert!(broken_beside(&all, &effects, calls(21)).is_empty());
    assert_eq!(broken_beside(&all, &effects, calls(22)), ["I9"]);
}

#[test]
fn an_answer_that_was_not_recorded_is_found() {
    let nothing = History::default();
    let reading = Reading {
        store: Some(&nothing),
        undisturbed: false,
    };
    assert_eq!(broken(&[told(10, 1)], &[effect(5)], reading), ["P33"]);
}

#[test]
fn two_effects_are_found_where_nobody_vanished() {
    let reading = Reading {
        undisturbed: true,
        ..Reading::default()
    };
    let effects = [effect(5), effect(6)];
    assert_eq!(broken(&[told(10, 1)], &effects, reading), ["I1"]);
}

/// What a process wrote, as a file would have it.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Write for Page {
    fn write(&mut self, lot: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(lot);
        Ok(lot.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn written() -> Vec<u8> {
    let (clock, page) = (Arc::new(FakeClock::new()), Page::default());
    let memory = MemoryStore::new(MemoryConfig::default(), clock.clone());
    let log = HistoryLog::in_lines(clock, Box::new(page.clone()));
    let store = log.recorder(Arc::new(memory), 3);
    let second = std::time::Duration::from_secs(1);
    let (secret, namespace) = (
        Secret::none(),
        Namespace::new("", "", "s").expect("as set up"),
    );
    let key = Key::parse("k-1").expect("as set up");
    let claim = Claim {
        retry: false,
        identity: Identity::new(&secret, &namespace, &key),
        fingerprint: Fingerprint::builder(&secret).part(b"p").finish(),
        token: Token(u128::MAX - 5),
        terms: ClaimTerms::new(second, second, CrashPolicy::Hold, 2).expect("as set up"),
        secret_id: 0,
        namespace,
        hint: key.hint(),
    };
    let Claimed::Won(lease) = store.claim(&claim).await.expect("as set up") else {
        panic!("the key is new");
    };
    store.effect_started(&lease.identity, lease.fence, lease.attempt);
    store.effect_finished(&lease.identity, lease.fence);
    let done = Settlement::Complete(Arc::new(Answer::from_body("done")));
    store.settle(&lease, &done).await.expect("as set up");
    log.record_report(told(1, 1));
    page.0.lock().clone()
}

#[tokio::test]
async fn lines_are_read_as_they_were_written() {
    let read = read_lines(&*written().await).unwrap();
    let (history, told) = (read.history, read.reports);
    assert_eq!(
        (history.calls.len(), history.effects.len(), told.len()),
        (2, 1, 1)
    );
    assert!(history.calls.iter().all(|call| call.end.is_some()));
    assert!(history.effects[0].end.is_some());
}

/// A process that is killed leaves half a line: what it was about to be told is not known, and
/// nothing else is lost.
#[tokio::test]
async fn a_torn_line_is_as_if_it_were_not_there() {
    let whole = written().await;
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    // Claim asked and answered, effect begun and over, settlement asked and answered, told.
    assert_eq!(lines.len(), 7);
    let torn = [lines[..5].concat(), lines[5][..20].to_vec()].concat();
    let read = read_lines(&*torn).unwrap();
    assert_eq!(read.history.calls.len(), 2);
    assert_eq!(read.history.calls[1].end, None, "not known");
    let damaged = [&lines[0][..20], b"\n", lines[1]].concat();
    assert!(
        read_lines(&*damaged).is_err(),
        "a line in the middle is another thing"
    );
}
