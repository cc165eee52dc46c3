//! Semel on Redis, as its user meets it: two processes' worth of handles on one server.
#![cfg(feature = "redis")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use semel::{Failure, Semel};

fn url() -> String {
    std::env::var("SEMEL_TEST_REDIS_URL")
        .expect("SEMEL_TEST_REDIS_URL is not set: start the servers with `cargo xtask services up`")
}

/// A key that no other test has.
fn fresh_key() -> String {
    format!("k-{:032x}", semel::tokio_env().entropy.next_u128())
}

#[tokio::test]
async fn a_waiter_in_another_process_is_woken_long_before_it_polls_out() {
    let clock = semel::tokio_env().clock;
    let (one, two) = (
        Semel::open(&url()).await.unwrap(),
        Semel::open(&url()).await.unwrap(),
    );
    let (key, effects) = (fresh_key(), Arc::new(AtomicU32::new(0)));
    let started = Arc::new(tokio::sync::Notify::new());
    let owner = tokio::spawn({
        let (key, effects, started) = (key.clone(), Arc::clone(&effects), Arc::clone(&started));
        let clock = Arc::clone(&clock);
        async move {
            let effect = |_| async move {
                started.notify_one();
                clock.sleep(Duration::from_millis(700)).await;
                Ok::<_, Failure>(effects.fetch_add(1, Ordering::SeqCst) + 1)
            };
            one.operation("charge")
                .key(&key)
                .payload(&1)
                .run(effect)
                .await
        }
    });
    started.notified().await;
    let waiter = two.operation("charge").key(&key).payload(&1);
    let answer = waiter.run(async |_| Ok::<_, Failure>(99)).await.unwrap();
    assert_eq!((answer.value, answer.replayed), (1, true));
    assert_eq!(owner.await.unwrap().unwrap().value, 1);
    assert_eq!(effects.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_callers_over_four_handles_one_runs() {
    let mut handles = Vec::new();
    for _ in 0..4 {
        handles.push(Semel::open(&url()).await.unwrap());
    }
    let (key, effects) = (fresh_key(), Arc::new(AtomicU32::new(0)));
    let policy = Arc::new(semel::Policy::default().with_max_waiters_per_key(100));
    let callers: Vec<_> = (0..100)
        .map(|i| {
            let effects = Arc::clone(&effects);
            let operation = handles[i % 4]
                .operation("charge")
                .policy(Arc::clone(&policy));
            let call = operation.key(&key).payload(&1);
            tokio::spawn(call.run(|_| async move {
                Ok::<_, Failure>(effects.fetch_add(1, Ordering::SeqCst) + 1)
            }))
        })
        .collect();
    for caller in callers {
        assert_eq!(caller.await.unwrap().unwrap().value, 1);
    }
    assert_eq!(effects.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_said_at_start() {
    let error = Semel::open("redis://127.0.0.1:1")
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("can't be reached"), "{error}");
}

#[tokio::test]
async fn nodes_with_different_secrets_do_not_share_a_server() {
    let environment = fresh_key();
    let open = |id: u16| {
        let secret = semel::Secret::new(id, &[u8::try_from(id).unwrap(); 32]).unwrap();
        let builder = Semel::builder().environment(&environment).secret(secret);
        async { builder.open(&url()).await }
    };
    open(1).await.unwrap();
    open(1).await.unwrap();
    let error = open(2).await.unwrap_err().to_string();
    assert!(error.contains("another secret"), "{error}");
}
