//! The tests beside this can fail: scenes like theirs with a mistake in them are found out.

use std::sync::Arc;

use semel_core::wake::Hub;
use semel_core::{Settled, Store as _, StoreAdmin as _};
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use shuttle::thread;

use super::{LEASE, claim_of, complete, finds_fault, identity, join, now, store_of, won};

/// Looks first and watches then: the wake-up may come in between.
#[test]
fn watching_too_late_is_found() {
    assert!(finds_fault(|| {
        let (hub, done) = (Hub::new(), Arc::new(AtomicBool::new(false)));
        let waiter = {
            let (hub, done) = (hub.clone(), Arc::clone(&done));
            thread::spawn(move || {
                if !done.load(SeqCst) {
                    shuttle::future::block_on(hub.watch(&identity()));
                }
            })
        };
        done.store(true, SeqCst);
        hub.wake(&identity().address());
        waiter.join().expect("a thread that ends");
    }));
}

/// Reads the count and writes it back: two may get the last place.
#[test]
fn a_count_that_is_read_then_written_is_found() {
    assert!(finds_fault(|| {
        let (present, kept) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let claims = (0..2).map(|_| {
            let (present, kept) = (Arc::clone(&present), Arc::clone(&kept));
            thread::spawn(move || {
                let count = present.load(SeqCst);
                if count < 1 {
                    present.store(count + 1, SeqCst);
                    kept.fetch_add(1, SeqCst);
                }
            })
        });
        join(claims.collect());
        assert!(kept.load(SeqCst) <= 1);
    }));
}

/// Checks whether the key is free in one step and takes it in another: two may win.
#[test]
fn a_claim_in_two_steps_is_found() {
    assert!(finds_fault(|| {
        let owner = Arc::new(Mutex::new(None));
        let claims = (1..=2).map(|token: u32| {
            let owner = Arc::clone(&owner);
            thread::spawn(move || {
                let free = owner.lock().expect("no panic").is_none();
                if free {
                    *owner.lock().expect("no panic") = Some(token);
                }
                free
            })
        });
        assert_eq!(
            join(claims.collect())
                .into_iter()
                .filter(|won| *won)
                .count(),
            1
        );
    }));
}

/// Settles through a read and a deletion instead of one step: a takeover slips in between.
#[test]
fn a_settlement_in_two_steps_is_found() {
    assert!(finds_fault(|| {
        let (store, clock) = store_of(8);
        let first = won(&now(store.claim(&claim_of("k", 1)))).expect("a new key");
        let second = {
            let store = store.clone();
            thread::spawn(move || {
                clock.advance(LEASE);
                won(&now(store.claim(&claim_of("k", 2))))
            })
        };
        let record = now(store.read(&first.identity)).expect("a record");
        if record.is_owned_by(first.fence, first.token) {
            now(store.delete(&first.identity));
        }
        if let Some(grant) = second.join().expect("a thread that ends") {
            assert_eq!(
                now(store.settle(&grant, &complete("second"))),
                Settled::Done
            );
        }
    }));
}
