//! What a user of the typed operation meets, mistakes included.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use semel::core::event::{Event, Observer, Step};
use semel::core::{MemoryConfig, MemoryStore, StoreAdmin};
use semel::{CrashPolicy, Error, Failure, Mode, Policy, Problem, Secret, Semel, tokio_env};
use semel_conformance::clock::{FakeClock, env};

const MINUTE: Duration = Duration::from_secs(60);

async fn open() -> Semel {
    Semel::open("memory://").await.expect("it opens")
}

/// Runs `charge` under `key`; the effect counts and answers how often it ran.
async fn count(semel: &Semel, key: &str, effects: &Arc<AtomicU32>) -> Result<(u32, bool), Error> {
    let effects = Arc::clone(effects);
    let effect = |_| async move { Ok::<_, Failure>(effects.fetch_add(1, Ordering::SeqCst) + 1) };
    let answer = semel
        .operation("charge")
        .key(key)
        .payload(&100)
        .run(effect)
        .await?;
    Ok((answer.value, answer.replayed))
}

#[tokio::test]
async fn answer_has_replay_flag_and_original_time() {
    let semel = open().await;
    let run = || {
        semel
            .operation("charge")
            .key("k")
            .payload(&1)
            .run(async |_| Ok::<_, Failure>(7))
    };
    let (first, second) = (run().await.unwrap(), run().await.unwrap());
    assert_eq!((first.value, first.replayed, first.attempt), (7, false, 1));
    assert_eq!(
        (second.value, second.replayed, second.attempt),
        (7, true, 1)
    );
    let apart = first.original_time.duration_since(second.original_time);
    assert!(apart.unwrap_or_else(|e| e.duration()).as_secs() < 60);
}

#[tokio::test]
async fn equal_keys_in_different_namespaces_are_independent() {
    let effects = Arc::new(AtomicU32::new(0));
    let store = Arc::new(MemoryStore::new(MemoryConfig::default(), tokio_env().clock));
    for environment in ["staging", "production"] {
        let builder = Semel::builder().environment(environment);
        let semel = builder
            .open_on(Arc::clone(&store) as Arc<dyn StoreAdmin>)
            .await
            .unwrap();
        for (tenant, scope) in [
            ("acme", "charge"),
            ("acm", "echarge"),
            ("", "charge"),
            ("acme", "refund"),
        ] {
            let effects = Arc::clone(&effects);
            let operation = semel.operation(scope).tenant(tenant);
            let effect =
                |_| async move { Ok::<_, Failure>(effects.fetch_add(1, Ordering::SeqCst)) };
            let answer = operation.key("same").payload(&1).run(effect).await.unwrap();
            assert!(!answer.replayed);
        }
    }
    assert_eq!(effects.load(Ordering::SeqCst), 8);
}

#[tokio::test]
async fn another_payload_under_the_same_key_is_refused() {
    let semel = open().await;
    let run = |cents: u64| {
        semel
            .operation("charge")
            .key("k")
            .payload(&cents)
            .run(async |_| Ok::<_, Failure>(()))
    };
    run(100).await.unwrap();
    let error = run(200).await.unwrap_err();
    assert!(matches!(error, Error::Problem(Problem::Mismatch)));
    assert!(!error.is_retryable());
    assert!(error.to_string().contains("use a new key"), "{error}");
}

#[tokio::test]
async fn member_order_does_not_make_another_payload() {
    let semel = open().await;
    let a: serde_json::Value = serde_json::from_str(r#"{"a":{"x":1,"y":2},"b":3}"#).unwrap();
    let b: serde_json::Value = serde_json::from_str(r#"{"b":3,"a":{"y":2,"x":1}}"#).unwrap();
    for (payload, replayed) in [(a, false), (b, true)] {
        let call = semel.operation("charge").key("k").payload(&payload);
        assert_eq!(
            call.run(async |_| Ok::<_, Failure>(()))
                .await
                .unwrap()
                .replayed,
            replayed
        );
    }
}

#[tokio::test]
async fn a_bad_key_is_refused_with_a_reason_and_never_repeated() {
    let semel = open().await;
    for key in ["", "with space", &"k".repeat(256), "ключ"] {
        let effects = Arc::new(AtomicU32::new(0));
        let error = count(&semel, key, &effects).await.unwrap_err();
        assert!(matches!(error, Error::Key(_)), "{error}");
        assert!(
            key.is_empty() || !error.to_string().contains(key),
            "{error}"
        );
        assert_eq!(effects.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test]
async fn a_payload_that_could_be_read_in_two_ways_starts_nothing() {
    let semel = open().await;
    let call = semel.operation("charge").key("k").payload(&u64::MAX);
    let error = call.run(async |_| Ok::<_, Failure>(())).await.unwrap_err();
    assert!(matches!(error, Error::Canonical(_)));
    assert!(error.to_string().contains("send it as a string"), "{error}");
}

#[tokio::test]
async fn rejection_is_final_and_replayed() {
    let semel = open().await;
    for replayed in [false, true] {
        let call = semel.operation("charge").key("k").payload(&1);
        let run = call
            .run(async |_| Err::<(), _>(Failure::reject("card declined")))
            .await;
        let Err(Error::Rejected(rejection)) = run else {
            panic!("{run:?}")
        };
        assert_eq!(rejection.reason::<String>().unwrap(), "card declined");
        assert_eq!(rejection.replayed, replayed);
    }
}

#[tokio::test]
async fn an_error_frees_the_key_and_keeps_its_cause() {
    let semel = open().await;
    let call = semel.operation("charge").key("k").payload(&1);
    let failed = call
        .run(async |_| Err::<u32, _>(std::io::Error::other("the line is down")))
        .await;
    let error = failed.unwrap_err();
    assert!(matches!(&error, Error::Failed(cause) if cause.to_string() == "the line is down"));
    assert!(error.is_retryable());
    let effects = Arc::new(AtomicU32::new(0));
    assert_eq!(count_same(&semel, &effects).await.unwrap(), (1, false));
}

async fn count_same(semel: &Semel, effects: &Arc<AtomicU32>) -> Result<(u32, bool), Error> {
    let effects = Arc::clone(effects);
    let effect = |_| async move { Ok::<_, Failure>(effects.fetch_add(1, Ordering::SeqCst) + 1) };
    let answer = semel
        .operation("charge")
        .key("k")
        .payload(&1)
        .run(effect)
        .await?;
    Ok((answer.value, answer.replayed))
}

#[tokio::test]
async fn under_hold_an_error_is_a_doubt_unless_nothing_happened() {
    let semel = open().await;
    let run = |key: &str, failure: Failure| {
        let call = semel.operation("charge").hold().key(key).payload(&1);
        call.run(async |_| Err::<u32, _>(failure))
    };
    let doubted = run("a", Failure::retry("timed out")).await.unwrap_err();
    assert!(matches!(doubted, Error::InDoubt(_)) && !doubted.is_retryable());
    let again = run("a", Failure::retry("not run")).await.unwrap_err();
    assert!(
        matches!(again, Error::Problem(Problem::InDoubt(_))),
        "{again}"
    );
    let untouched = run("b", Failure::no_effect("validation"))
        .await
        .unwrap_err();
    assert!(matches!(untouched, Error::Failed(_)) && untouched.is_retryable());
}

#[tokio::test]
async fn an_unknown_outcome_is_a_doubt_even_under_takeover() {
    let semel = open().await;
    let call = semel.operation("charge").key("k").payload(&1);
    let error = call
        .run(async |_| Err::<u32, _>(Failure::unknown("no reply")))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::InDoubt(_)), "{error}");
}

#[tokio::test]
async fn unprotected_uncertain_failure_is_not_retryable() {
    let semel = open().await;
    let run = async |crash, failure: Failure| {
        let policy = Policy::default().with_mode(Mode::Off).with_crash(crash);
        let operation = semel.operation("charge").policy(policy);
        let call = operation.key("k").payload(&1);
        let failed = call.run(async |_| Err::<u32, _>(failure)).await;
        failed.expect_err("it failed")
    };
    let (takeover, hold) = (CrashPolicy::Takeover, CrashPolicy::Hold);
    for error in [
        run(takeover, Failure::unknown("no reply")).await,
        run(hold, Failure::unknown("no reply")).await,
        run(hold, Failure::retry("half of it")).await,
    ] {
        assert!(matches!(error, Error::Unknown(_)), "{error}");
        assert!(!error.is_retryable());
    }
    for error in [
        run(takeover, Failure::retry("half of it")).await,
        run(hold, Failure::no_effect("validation")).await,
    ] {
        assert!(matches!(error, Error::Failed(_)), "{error}");
        assert!(error.is_retryable());
    }
}

#[tokio::test]
async fn rejection_with_too_large_reason_is_replayed() {
    let semel = open().await;
    let small = Arc::new(Policy::default().with_max_answer_bytes(8));
    let reasons = ["card declined".into(), serde_json::Value::Null];
    for (reason, replayed) in reasons.into_iter().zip([false, true]) {
        let operation = semel.operation("charge").policy(Arc::clone(&small));
        let call = operation.key("k").payload(&1);
        let run = call
            .run(async |_| Err::<(), _>(Failure::reject("card declined")))
            .await;
        let Err(Error::Rejected(rejection)) = run else {
            panic!("{run:?}")
        };
        assert_eq!((rejection.reason, rejection.replayed), (reason, replayed));
    }
}

#[tokio::test]
async fn unreadable_answer_is_reported_and_not_rerun() {
    let semel = open().await;
    semel
        .operation("a")
        .key("k")
        .payload(&1)
        .run(async |_| Ok::<_, Failure>("text".to_owned()))
        .await
        .unwrap();
    let other = semel
        .operation("a")
        .key("k")
        .payload(&1)
        .run(async |_| Ok::<u32, Failure>(1))
        .await;
    assert!(matches!(other, Err(Error::Answer(_))), "{other:?}");

    let small = Arc::new(Policy::default().with_max_answer_bytes(8));
    for first in [true, false] {
        let call = semel
            .operation("b")
            .policy(Arc::clone(&small))
            .key("k")
            .payload(&1);
        let run = call
            .run(async |_| Ok::<_, Failure>("much too large".to_owned()))
            .await;
        assert!(if first {
            run.is_ok()
        } else {
            matches!(run, Err(Error::NotKept { bytes: 16 }))
        });
    }
}

#[tokio::test]
async fn a_full_store_refuses_new_keys_and_keeps_the_old() {
    let semel = Semel::open("memory://?capacity=2").await.unwrap();
    let effects = Arc::new(AtomicU32::new(0));
    for key in ["a", "b"] {
        count(&semel, key, &effects).await.unwrap();
    }
    let error = count(&semel, "c", &effects).await.unwrap_err();
    let Error::Problem(Problem::Unavailable {
        source: Some(source),
        ..
    }) = &error
    else {
        panic!("{error}")
    };
    assert!(source.to_string().contains("full"), "{source}");
    assert_eq!(count(&semel, "a", &effects).await.unwrap(), (1, true));
    assert_eq!(effects.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn the_memory_store_has_room_for_200_000_records_by_default() {
    let room = async |url: &str| {
        let semel = Semel::open(url).await.unwrap();
        semel.store().stats().await.unwrap().capacity
    };
    assert_eq!(room("memory://").await, Some(200_000));
    assert_eq!(room("memory://?capacity=3").await, Some(3));
}

#[tokio::test]
async fn opening_says_what_is_wrong() {
    for (url, said) in [
        ("localhost", "memory://"),
        ("memcached://localhost", "memcached://"),
        ("memory://?capacity=lots", "capacity"),
        ("memory://?colour=red", "capacity=NUMBER"),
    ] {
        let error = Semel::open(url).await.unwrap_err().to_string();
        assert!(error.contains(said), "{url}: {error}");
    }
    let never = Policy::default().with_max_attempts(0);
    assert!(
        Semel::builder()
            .policy(never)
            .open("memory://")
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_secret_changes_where_records_are_filed() {
    let store = Arc::new(MemoryStore::new(MemoryConfig::default(), tokio_env().clock));
    let effects = Arc::new(AtomicU32::new(0));
    for id in [1, 2] {
        let secret = Secret::new(id, format!("a secret of sixteen bytes {id}").as_bytes()).unwrap();
        let builder = Semel::builder().secret(secret);
        let semel = builder
            .open_on(Arc::clone(&store) as Arc<dyn StoreAdmin>)
            .await
            .unwrap();
        assert!(!count(&semel, "k", &effects).await.unwrap().1);
    }
    assert_eq!(store.len(), 2);
}

/// Remembers the actors of events.
#[derive(Default)]
struct Actors(std::sync::Mutex<Vec<Option<String>>>);

impl Observer for Actors {
    fn observe(&self, event: &Event<'_>) {
        let actor = event.actor.map(str::to_owned);
        self.0.lock().expect("no panic").push(actor);
    }
}

#[tokio::test]
async fn events_name_the_actor_of_the_operation() {
    let actors = Arc::new(Actors::default());
    let builder = Semel::builder().observer(Arc::clone(&actors) as _);
    let semel = builder.open("memory://").await.unwrap();
    let operation = semel.operation("charge").actor("ada");
    let call = operation.key("k").no_payload();
    call.run(async |_| Ok::<_, Failure>(7)).await.unwrap();
    let actors = actors.0.lock().unwrap();
    assert!(actors.len() > 2, "{actors:?}");
    assert!(
        actors.iter().all(|actor| actor.as_deref() == Some("ada")),
        "{actors:?}"
    );
}

/// Remembers how many records sweeps removed.
#[derive(Default)]
struct Sweeps(std::sync::Mutex<Vec<u64>>);

impl Observer for Sweeps {
    fn observe(&self, event: &Event<'_>) {
        if let Step::Swept { records } = event.step {
            self.0.lock().expect("no panic").push(records);
        }
    }
}

#[tokio::test]
async fn sweeps_of_expired_records_are_reported() {
    let clock = FakeClock::new();
    let sweeps = Arc::new(Sweeps::default());
    let builder = Semel::builder().env(env(&clock, 1));
    let builder = builder.observer(Arc::clone(&sweeps) as _);
    let semel = builder.open("memory://").await.unwrap();
    for key in ["a", "b", "c"] {
        let operation = semel.operation("charge").retention(MINUTE);
        let call = operation.key(key).no_payload();
        call.run(async |_| Ok::<_, Failure>(7)).await.unwrap();
    }
    // Twice: the second sweep finds nothing, and says nothing.
    for _ in 0..2 {
        while clock.sleepers() == 0 {
            tokio::task::yield_now().await;
        }
        clock.advance(6 * MINUTE);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(*sweeps.0.lock().unwrap(), [3]);
}

#[tokio::test]
async fn expired_records_are_removed_every_five_minutes() {
    let clock = FakeClock::new();
    let sweeps = Arc::new(Sweeps::default());
    let builder = Semel::builder().env(env(&clock, 1));
    let builder = builder.observer(Arc::clone(&sweeps) as _);
    let semel = builder.open("memory://").await.unwrap();
    while clock.sleepers() == 0 {
        tokio::task::yield_now().await;
    }
    let operation = semel.operation("charge").retention(MINUTE);
    let call = operation.key("a").no_payload();
    call.run(async |_| Ok::<_, Failure>(7)).await.unwrap();
    let millisecond = Duration::from_millis(1);
    for (by, removed) in [(5 * MINUTE - millisecond, &[][..]), (millisecond, &[1])] {
        clock.advance(by);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(*sweeps.0.lock().unwrap(), removed);
    }
}
