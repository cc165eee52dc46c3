//! Wake-ups: none is missed, and nobody is left waiting.

use std::sync::Arc;

use semel_core::wake::Hub;
use semel_core::{Claimed, Settled, Store as _};
use shuttle::sync::atomic::{AtomicBool, Ordering::SeqCst};
use shuttle::thread;

use super::{Seen, claim_of, complete, explore, identity, join, now, store_of, won};

#[test]
fn watching_before_claiming_gets_the_wake_up() {
    static WAITED: Seen = Seen::new();
    explore(|| {
        let (store, _) = store_of(8);
        let first = won(&now(store.claim(&claim_of("k", 1)))).expect("a new key");
        let waiters = (2..=3).map(|token| {
            let store = store.clone();
            thread::spawn(move || {
                let claim = claim_of("k", token);
                let wakeup = store.watch(&claim.identity);
                if matches!(now(store.claim(&claim)), Claimed::Busy(_)) {
                    WAITED.note();
                    shuttle::future::block_on(wakeup); // one that never comes is a deadlock
                }
                now(store.claim(&claim))
            })
        });
        let waiters: Vec<_> = waiters.collect();
        assert_eq!(now(store.settle(&first, &complete("first"))), Settled::Done);
        for answer in join(waiters) {
            assert!(matches!(answer, Claimed::Replay(_)), "{answer:?}");
        }
    });
    WAITED.assert_happened("a waiter waited");
}

#[test]
fn hub_has_no_waiters_after_all_left() {
    explore(|| {
        let (hub, done) = (Hub::new(), Arc::new(AtomicBool::new(false)));
        let mut threads = Vec::new();
        for patient in [true, true, false] {
            let (hub, done) = (hub.clone(), Arc::clone(&done));
            threads.push(thread::spawn(move || {
                let mut wakeup = hub.watch(&identity());
                if patient && !done.load(SeqCst) {
                    shuttle::future::block_on(&mut wakeup);
                }
                drop(wakeup);
            }));
        }
        done.store(true, SeqCst);
        hub.wake(&identity().address());
        hub.wake(&identity().address());
        join(threads);
        assert_eq!(hub.waiting(), 0);
    });
}
