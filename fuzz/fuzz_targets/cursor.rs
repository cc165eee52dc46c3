//! Cursors of listings: any text is refused, or goes on with a listing that gives no record twice.
#![no_main]

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use semel_core::clock::Sleep;
use semel_core::store::{Cursor, Query};
use semel_core::{
    BoxFuture, Claim, Clock, CrashPolicy, Fingerprint, Identity, Key, MemoryConfig, MemoryStore,
    Namespace, Secret, Store as _, StoreAdmin as _, StoreErrorKind, ClaimTerms, Tick, Timestamp, Token,
};

struct Still;

impl Clock for Still {
    fn now(&self) -> Tick {
        Tick::new(Duration::ZERO)
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(1_790_000_000_000_000)
    }

    fn sleep(&self, _: Duration) -> Sleep {
        Box::pin(std::future::pending())
    }
}

fn ready<T>(mut future: BoxFuture<'_, T>) -> T {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("a store in memory never waits"),
    }
}

const RECORDS: usize = 40;

static STORE: LazyLock<MemoryStore> = LazyLock::new(|| {
    let store = MemoryStore::new(MemoryConfig::default(), Arc::new(Still));
    let secret = Secret::none();
    let namespace = Namespace::new("fuzz", "", "cursor").expect("a namespace");
    let hour = Duration::from_secs(3600);
    for number in 0..RECORDS {
        let key = Key::parse(&format!("key-{number}")).expect("a key");
        let claim = Claim {
            identity: Identity::new(&secret, &namespace, &key),
            fingerprint: Fingerprint::from_bytes([1; Fingerprint::BYTES]),
            token: Token(number as u128),
            terms: ClaimTerms::new(hour, hour, CrashPolicy::Hold, 1).expect("terms"),
            secret_id: 0,
            namespace: namespace.clone(),
            hint: key.hint(),
            retry: false,
        };
        ready(store.claim(&claim)).expect("room");
    }
    store
});

fuzz_target!(|data: &[u8]| {
    let Some((limit, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let mut query = Query::default()
        .with_limit(usize::from(limit % 16) + 1)
        .with_after(Cursor(text.to_owned()));
    let mut seen = BTreeSet::new();
    // Every page brings something or goes on: a listing ends.
    for _ in 0..10_000 {
        let page = match ready(STORE.list(&query)) {
            Ok(page) => page,
            Err(error) => {
                assert!(seen.is_empty(), "a cursor of the store's own is good");
                assert_eq!(error.kind, StoreErrorKind::Rejected);
                return;
            }
        };
        assert!(page.records.len() <= query.limit);
        for (identity, _) in page.records {
            assert!(seen.insert(*identity.as_bytes()), "a record came twice");
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => return,
        }
    }
    panic!("a listing has no end");
});
