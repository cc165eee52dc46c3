//! Each fault does what it says, and a wrapper without faults changes nothing.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use semel_conformance::clock::FakeClock;
use semel_conformance::{self, Spans, Subject};
use semel_core::{
    Answer, BoxFuture, Certainty, Claim, ClaimTerms, Claimed, CrashPolicy, Fingerprint, Grant,
    Identity, Key, MemoryConfig, MemoryStore, Namespace, Secret, Settled, Settlement, State,
    Store as _, StoreAdmin, Token,
};
use semel_testkit::faulty::{CallKind, Fault, Faults, FaultyStore};

const LEASE: Duration = Duration::from_secs(30);

struct Rig {
    clock: Arc<FakeClock>,
    memory: MemoryStore,
    faulty: FaultyStore,
}

impl Rig {
    fn new(faults: Faults, seed: u64) -> Self {
        let clock = Arc::new(FakeClock::new());
        let memory = MemoryStore::new(MemoryConfig::default(), clock.clone());
        let faulty = FaultyStore::new(Arc::new(memory.clone()), clock.clone(), faults, seed);
        Self {
            clock,
            memory,
            faulty,
        }
    }

    fn sound() -> Self {
        Self::new(Faults::NONE, 0)
    }

    async fn won(&self, claim: &Claim) -> Grant {
        match self.memory.claim(claim).await.expect("memory answers") {
            Claimed::Won(lease) => lease,
            other => panic!("expected Won, got {other:?}"),
        }
    }

    async fn state(&self, identity: &Identity) -> Option<State> {
        self.memory
            .read(identity)
            .await
            .expect("memory answers")
            .map(|record| record.state)
    }
}

impl Subject for Rig {
    fn store(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(self.faulty.clone())
    }

    fn another(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(self.faulty.clone())
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.clock.advance(time);
        Box::pin(tokio::task::yield_now())
    }

    fn spans(&self) -> Spans {
        Spans::FREE
    }

    fn tiny(&self) -> BoxFuture<'_, Option<Arc<dyn StoreAdmin>>> {
        let tiny = MemoryStore::new(MemoryConfig::default().with_capacity(3), self.clock.clone());
        let tiny = FaultyStore::sound(Arc::new(tiny), self.clock.clone());
        Box::pin(async { Some(Arc::new(tiny) as Arc<dyn StoreAdmin>) })
    }
}

fn claim(token: u128) -> Claim {
    let secret = Secret::none();
    let namespace = Namespace::new("", "", "charge").expect("a namespace");
    let key = Key::parse("ord-1").expect("a key");
    Claim {
        retry: false,
        identity: Identity::new(&secret, &namespace, &key),
        fingerprint: Fingerprint::builder(&secret).part(b"10 EUR").finish(),
        token: Token(token),
        terms: ClaimTerms::new(LEASE, LEASE * 10, CrashPolicy::Takeover, 5).expect("terms"),
        secret_id: 0,
        namespace,
        hint: key.hint(),
    }
}

fn paid() -> Settlement {
    Settlement::Complete(Answer::from_body("paid").into())
}

// A wrapper that keeps every rule when told of no fault.
semel_conformance::conformance_tests!(without_faults, async || Rig::sound());

/// I6 at large: every call arrives twice, and every rule still holds.
///
/// But where others race for a released key: by the time the second copy of a release arrives, the
/// record has moved on, and the release is rightly lost.
#[test]
fn every_call_may_arrive_twice() {
    const MOVES_ON: [&str; 2] = [
        "p12_each_release_runs_one_more_effect",
        "p22_fences_grow_in_a_storm",
    ];
    let twice = Faults {
        repeat: 1.0,
        ..Faults::NONE
    };
    let checks = semel_conformance::ALL
        .iter()
        .filter(|check| !MOVES_ON.contains(&check.name));
    let mut count = 0;
    for check in checks {
        semel_conformance::test(check.name, async || Rig::new(twice, 1));
        count += 1;
    }
    assert_eq!(count + MOVES_ON.len(), semel_conformance::ALL.len());
}

#[tokio::test]
async fn a_refused_call_changes_nothing_and_says_so() {
    let rig = Rig::sound();
    rig.faulty.next(CallKind::Claim, Fault::Refuse);
    let error = rig.faulty.claim(&claim(1)).await.unwrap_err();
    assert_eq!(error.certainty, Certainty::Definite);
    assert_eq!(rig.state(&claim(1).identity).await, None);
    assert!(matches!(
        rig.faulty.claim(&claim(1)).await,
        Ok(Claimed::Won(_))
    ));
    assert_eq!(rig.faulty.befallen(), 1);
}

#[tokio::test]
async fn a_lost_request_changes_nothing_and_cannot_tell() {
    let rig = Rig::sound();
    rig.faulty.next(CallKind::Claim, Fault::LoseRequest);
    let error = rig.faulty.claim(&claim(1)).await.unwrap_err();
    assert_eq!(error.certainty, Certainty::Unknown);
    assert_eq!(rig.state(&claim(1).identity).await, None);
}

#[tokio::test]
async fn a_lost_reply_cannot_tell_that_it_happened() {
    let rig = Rig::sound();
    rig.faulty.next(CallKind::Claim, Fault::LoseReply);
    let error = rig.faulty.claim(&claim(1)).await.unwrap_err();
    assert_eq!(error.certainty, Certainty::Unknown);
    assert_eq!(rig.state(&claim(1).identity).await, Some(State::Running));
    assert!(matches!(
        rig.faulty.claim(&claim(1)).await,
        Ok(Claimed::Won(_))
    ));
}

#[tokio::test]
async fn a_lost_response_is_made_good_by_sending_again() {
    let rig = Rig::sound();
    let lease = rig.won(&claim(1)).await;
    rig.faulty.lose_response();
    let error = rig.faulty.settle(&lease, &paid()).await.unwrap_err();
    assert_eq!(error.certainty, Certainty::Unknown);
    assert_eq!(rig.state(&lease.identity).await, Some(State::Completed));
    assert_eq!(
        rig.faulty.settle(&lease, &paid()).await.unwrap(),
        Settled::Done
    );
}

#[tokio::test]
async fn a_crash_after_the_effect_leaves_the_key_to_the_next() {
    let rig = Rig::sound();
    let lease = rig.won(&claim(1)).await;
    rig.faulty.crash_after_effect();
    assert!(rig.faulty.settle(&lease, &paid()).now_or_never().is_none());
    // The dead process renews nothing, and does not try again.
    assert!(rig.faulty.renew(&lease, None).now_or_never().is_none());
    assert!(rig.faulty.settle(&lease, &paid()).now_or_never().is_none());
    assert!(rig.faulty.claim(&claim(1)).now_or_never().is_none());
    assert!(matches!(
        rig.faulty.claim(&claim(2)).await,
        Ok(Claimed::Busy(_))
    ));
    rig.clock.advance(LEASE);
    match rig.faulty.claim(&claim(2)).await.unwrap() {
        Claimed::Won(next) => assert_eq!(next.attempt, 2),
        other => panic!("expected a takeover, got {other:?}"),
    }
}

#[tokio::test]
async fn a_delayed_call_happens_late() {
    let rig = Rig::sound();
    rig.faulty.next(CallKind::Claim, Fault::Delay(LEASE));
    let ask = claim(1);
    let mut late = rig.faulty.claim(&ask);
    assert!((&mut late).now_or_never().is_none());
    assert_eq!(rig.state(&ask.identity).await, None);
    rig.clock.advance(LEASE);
    assert!(matches!(late.await, Ok(Claimed::Won(_))));
}

#[tokio::test]
async fn a_delayed_reply_comes_late() {
    let rig = Rig::sound();
    rig.faulty.next(CallKind::Claim, Fault::DelayReply(LEASE));
    let ask = claim(1);
    let mut late = rig.faulty.claim(&ask);
    assert!((&mut late).now_or_never().is_none());
    assert_eq!(rig.state(&ask.identity).await, Some(State::Running));
    rig.clock.advance(LEASE);
    assert!(matches!(late.await, Ok(Claimed::Won(_))));
}

#[tokio::test]
async fn a_script_is_followed_in_order_and_per_call() {
    let rig = Rig::sound();
    rig.faulty.next(CallKind::Settle, Fault::LoseRequest);
    rig.faulty.next(CallKind::Settle, Fault::Refuse);
    let lease = rig.won(&claim(1)).await;
    assert!(rig.faulty.renew(&lease, None).await.is_ok());
    let first = rig.faulty.settle(&lease, &paid()).await.unwrap_err();
    let second = rig.faulty.settle(&lease, &paid()).await.unwrap_err();
    assert_eq!(
        (first.certainty, second.certainty),
        (Certainty::Unknown, Certainty::Definite)
    );
    assert_eq!(
        rig.faulty.settle(&lease, &paid()).await.unwrap(),
        Settled::Done
    );
}

#[tokio::test]
async fn chance_repeats_itself_from_its_seed() {
    let faults = Faults {
        refuse: 0.3,
        lose_reply: 0.3,
        ..Faults::NONE
    };
    let mut runs = Vec::new();
    for seed in [7, 7, 8] {
        let rig = Rig::new(faults, seed);
        let mut run = Vec::new();
        for token in 0..64 {
            let result = rig.faulty.claim(&claim(token)).await;
            run.push(result.map_err(|error| error.certainty).map(|_| ()));
        }
        runs.push(run);
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
}
