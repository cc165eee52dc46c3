//! Claims, settlements, takeovers and room in the memory store.

use futures_util::FutureExt as _;
use semel_core::{
    Answer, Claimed, Grant, Renewed, Resolution, Resolved, Settled, Settlement, State, Store as _,
    StoreAdmin as _, StoreErrorKind,
};
use shuttle::thread::{self, JoinHandle};

use super::{LEASE, RETENTION, Seen, claim_of, complete, explore, join, now, store_of, won};

#[test]
fn of_concurrent_claims_one_wins() {
    explore(|| {
        let (store, _) = store_of(8);
        let claims = (1..=3).map(|token| {
            let store = store.clone();
            thread::spawn(move || now(store.claim(&claim_of("k", token))))
        });
        let answers = join(claims.collect());
        let winners: Vec<Grant> = answers.iter().filter_map(won).collect();
        assert_eq!(winners.len(), 1);
        let busy = answers
            .iter()
            .filter(|answer| matches!(answer, Claimed::Busy(_)))
            .count();
        assert_eq!(busy, 2);
        let record = now(store.read(&winners[0].identity)).expect("the winner's record");
        assert!(record.is_owned_by(winners[0].fence, winners[0].token));
    });
}

#[test]
fn of_a_settlement_and_a_takeover_one_holds() {
    static SETTLED: Seen = Seen::new();
    static TAKEN_OVER: Seen = Seen::new();
    explore(|| {
        let (store, clock) = store_of(8);
        let first = won(&now(store.claim(&claim_of("k", 1)))).expect("a new key");
        let time = thread::spawn(move || clock.advance(LEASE));
        let owner = {
            let (store, first) = (store.clone(), first.clone());
            thread::spawn(move || now(store.settle(&first, &complete("first"))))
        };
        let second = {
            let store = store.clone();
            thread::spawn(move || {
                let claimed = now(store.claim(&claim_of("k", 2)));
                won(&claimed).map(|grant| (now(store.settle(&grant, &complete("second"))), grant))
            })
        };
        time.join().expect("a thread that ends");
        let settled = owner.join().expect("a thread that ends");
        let second = second.join().expect("a thread that ends");
        let expected = match &second {
            Some((settled_second, grant)) => {
                TAKEN_OVER.note();
                assert!(grant.fence > first.fence);
                assert_eq!((settled, *settled_second), (Settled::Lost, Settled::Done));
                Answer::from_body("second")
            }
            None => {
                SETTLED.note();
                assert_eq!(settled, Settled::Done);
                Answer::from_body("first")
            }
        };
        let Claimed::Replay(replay) = now(store.claim(&claim_of("k", 3))) else {
            panic!("settled, and not replayed")
        };
        assert_eq!(
            (replay.state, &*replay.answer),
            (State::Completed, &expected)
        );
    });
    SETTLED.assert_happened("the owner settled");
    TAKEN_OVER.assert_happened("the second took over");
}

#[test]
fn a_renewal_and_a_takeover_never_both_hold_the_lease() {
    static HELD: Seen = Seen::new();
    static LOST: Seen = Seen::new();
    explore(|| {
        let (store, clock) = store_of(8);
        let first = won(&now(store.claim(&claim_of("k", 1)))).expect("a new key");
        clock.advance(LEASE);
        let renewal = {
            let (store, first) = (store.clone(), first);
            thread::spawn(move || now(store.renew(&first, None)))
        };
        let claims = (2..=3).map(|token| {
            let store = store.clone();
            thread::spawn(move || now(store.claim(&claim_of("k", token))))
        });
        let winners = join(claims.collect()).iter().filter_map(won).count();
        match renewal.join().expect("a thread that ends") {
            Renewed::Held => {
                HELD.note();
                assert_eq!(winners, 0, "the renewed lease was taken over");
            }
            Renewed::Lost => {
                LOST.note();
                assert_eq!(winners, 1);
            }
        }
    });
    HELD.assert_happened("the renewal held");
    LOST.assert_happened("the renewal was lost");
}

#[test]
fn of_a_late_settlement_and_a_resolution_one_holds() {
    static OWNER: Seen = Seen::new();
    static OPERATOR: Seen = Seen::new();
    explore(|| {
        let (store, _) = store_of(8);
        let first = won(&now(store.claim(&claim_of("k", 1)))).expect("a new key");
        assert_eq!(now(store.settle(&first, &Settlement::Doubt)), Settled::Done);
        let operator = {
            let (store, first) = (store.clone(), first.clone());
            let resolution = Resolution::Complete(Answer::from_body("operator").into());
            thread::spawn(move || now(store.resolve(&first.identity, first.fence, &resolution)))
        };
        let owner = {
            let (store, first) = (store.clone(), first.clone());
            thread::spawn(move || now(store.settle(&first, &complete("owner"))))
        };
        let (settled, resolved) = (owner.join().expect("ends"), operator.join().expect("ends"));
        let expected = match (settled, resolved) {
            (Settled::Done, Resolved::NotInDoubt) => {
                OWNER.note();
                Answer::from_body("owner")
            }
            (Settled::Lost, Resolved::Done) => {
                OPERATOR.note();
                Answer::from_body("operator")
            }
            both => panic!("{both:?}"),
        };
        let record = now(store.read(&first.identity)).expect("a record");
        assert_eq!(record.answer.as_deref(), Some(&expected));
    });
    OWNER.assert_happened("the owner was first");
    OPERATOR.assert_happened("the operator was first");
}

#[test]
fn store_keeps_its_capacity_and_its_count() {
    const CAPACITY: usize = 2;
    static REFUSED: Seen = Seen::new();
    explore(|| {
        let (store, clock) = store_of(CAPACITY);
        assert!(won(&now(store.claim(&claim_of("old", 9)))).is_some());
        clock.advance(RETENTION);
        let keys = ["a", "b", "c"];
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        for (token, key) in (1..).zip(keys) {
            let store = store.clone();
            threads.push(thread::spawn(move || {
                let claim = claim_of(key, token);
                let claimed = store.claim(&claim).now_or_never().expect("no waiting");
                match claimed {
                    Ok(claimed) => assert!(won(&claimed).is_some(), "the key was new"),
                    Err(error) => {
                        REFUSED.note();
                        assert_eq!(error.kind, StoreErrorKind::Full);
                    }
                }
                assert!(store.len() <= CAPACITY);
            }));
        }
        let sweeper = store.clone();
        threads.push(thread::spawn(move || {
            now(sweeper.sweep(usize::MAX));
            assert!(sweeper.len() <= CAPACITY);
        }));
        let deleter = store.clone();
        threads.push(thread::spawn(move || {
            now(deleter.delete(&claim_of("a", 1).identity));
            assert!(deleter.len() <= CAPACITY);
        }));
        join(threads);
        now(store.sweep(usize::MAX));
        let is_there = |key: &&&str| now(store.read(&claim_of(key, 0).identity)).is_some();
        assert_eq!(
            store.len(),
            keys.iter().filter(is_there).count(),
            "the count is off"
        );
        clock.advance(RETENTION);
        now(store.sweep(usize::MAX));
        assert_eq!(store.len(), 0, "the count leaked");
    });
    REFUSED.assert_happened("a claim was refused");
}

#[test]
fn a_new_key_is_refused_only_by_a_store_full_of_live_records() {
    explore(|| {
        let (store, clock) = store_of(2);
        assert!(won(&now(store.claim(&claim_of("old", 9)))).is_some());
        clock.advance(RETENTION);
        let sweeper = store.clone();
        let sweep = thread::spawn(move || now(sweeper.sweep(usize::MAX)));
        // Room for both, once the expired record is gone; whoever removes it.
        let claims = (1..).zip(["a", "b"]).map(|(token, key)| {
            let store = store.clone();
            thread::spawn(move || now(store.claim(&claim_of(key, token))))
        });
        assert_eq!(join(claims.collect()).iter().filter_map(won).count(), 2);
        sweep.join().expect("a thread that ends");
        assert_eq!(store.len(), 2);
    });
}

#[test]
fn fences_grow_across_concurrent_claims_and_deletions() {
    explore(|| {
        let (store, _) = store_of(8);
        let owners = (1..=3_u32).map(|token| {
            let store = store.clone();
            thread::spawn(move || {
                let claim = claim_of("k", token.into());
                let grant = won(&now(store.claim(&claim)))?;
                if token % 2 == 0 {
                    now(store.settle(&grant, &Settlement::Release));
                } else {
                    now(store.delete(&claim.identity));
                }
                Some(grant.fence)
            })
        });
        let mut fences: Vec<_> = join(owners.collect()).into_iter().flatten().collect();
        let given = fences.len();
        fences.sort_unstable();
        fences.dedup();
        assert_eq!(fences.len(), given, "a fence was given out twice");
    });
}
