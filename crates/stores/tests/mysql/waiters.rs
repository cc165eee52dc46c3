//! What waiting costs the server: callers that wait ask from time to time, not as fast as they are
//! answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use semel::{Failure, Semel};
use semel_core::event::{Event, Observer, Step, StoreCall};
use tokio::sync::Notify;

use crate::support::sleep;
use crate::transaction::{Bank, fresh};

/// Counts the claims that reach the store.
#[derive(Default)]
struct Claims {
    sent: AtomicU32,
    waiting: AtomicU32,
}

impl Observer for Claims {
    fn observe(&self, event: &Event<'_>) {
        match event.step {
            Step::StoreCalled {
                call: StoreCall::Claim,
                ..
            } => drop(self.sent.fetch_add(1, Ordering::SeqCst)),
            Step::WaitBegan { .. } => drop(self.waiting.fetch_add(1, Ordering::SeqCst)),
            _ => {}
        }
    }
}

/// The row of such a run is not committed, so nobody sees it running: that is no reason to ask at
/// once (P34).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p34_a_waiter_behind_an_open_transaction_asks_now_and_then() {
    let (bank, key) = (Bank::open().await, fresh());
    let (began, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let owner = tokio::spawn({
        let (call, pool) = (bank.call(&key), bank.pool.clone());
        let (began, go) = (Arc::clone(&began), Arc::clone(&go));
        async move {
            let owner = call.run_in(&pool, async move |_, _| {
                began.notify_one();
                go.notified().await;
                Ok::<_, Failure>("receipt".to_owned())
            });
            owner.await.map(|answer| answer.replayed)
        }
    });
    began.notified().await;
    let claims = Arc::new(Claims::default());
    let elsewhere = Bank::with(Semel::builder().observer(claims.clone())).await;
    let waiter = tokio::spawn({
        let (call, pool) = (elsewhere.call(&key), elsewhere.pool.clone());
        async move {
            let waiter = call.run_in(&pool, async |_, _| Ok::<_, Failure>("second".to_owned()));
            waiter.await.map(|answer| answer.replayed)
        }
    });
    while claims.waiting.load(Ordering::SeqCst) == 0 {
        sleep(5).await;
    }
    let clock = semel::tokio_env().clock;
    let (from, before) = (clock.now(), claims.sent.load(Ordering::SeqCst));
    clock.sleep(Duration::from_secs(3)).await;
    let sent = claims.sent.load(Ordering::SeqCst) - before;
    let took = clock.now().since(from);
    go.notify_one();
    assert!(!owner.await.unwrap().unwrap());
    assert!(waiter.await.unwrap().unwrap());
    // 50 ms, growing by half to 1 s, and a few that were in progress.
    let most = 10.0 + took.as_secs_f64();
    assert!(
        f64::from(sent) <= most,
        "{sent} claims in {took:?}, at most {most} expected"
    );
}
