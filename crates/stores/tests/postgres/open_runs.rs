//! Whoever comes while a `run_in` is open: is told that it is busy, waits with pauses, and makes
//! nobody else wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use semel::core::event::{Event, Observer, Step, StoreCall};
use semel::{Error, Failure, OnBusy, Policy, Problem, Semel, TypedAnswer};
use semel_testkit::private::PostgresServer;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::support::sleep;
use crate::transaction::{Bank, fresh, write};

/// An effect that has written its entry, and waits to be told how to end.
struct OpenRun {
    end: oneshot::Sender<Result<(), Failure>>,
    run: JoinHandle<Result<TypedAnswer<String>, Error>>,
}

impl OpenRun {
    async fn of(bank: &Bank, key: &str) -> Self {
        let begun = Arc::new(Notify::new());
        let (end, ended) = oneshot::channel::<Result<(), Failure>>();
        let (text, pool) = (bank.entry(key), bank.pool.clone());
        let (call, tell) = (bank.call(key), Arc::clone(&begun));
        let run = tokio::spawn(async move {
            call.run_in(&pool, async move |mut tx, _| {
                write(&mut tx, text).await?;
                tell.notify_one();
                ended.await??;
                Ok::<_, Failure>("receipt".to_owned())
            })
            .await
        });
        begun.notified().await;
        Self { end, run }
    }

    async fn end(self, how: Result<(), Failure>) -> Result<TypedAnswer<String>, Error> {
        self.end.send(how).expect("the effect waits for it");
        self.run.await.expect("no panic")
    }
}

fn refusing() -> semel::Builder {
    Semel::builder().policy(Policy::default().with_on_busy(OnBusy::Refuse))
}

/// Runs the key without a transaction of its own.
async fn run_plainly(bank: &Bank, key: &str) -> Result<TypedAnswer<String>, Error> {
    let call = bank.call(key);
    call.run(|_| async { Ok::<_, Failure>("plain".to_owned()) })
        .await
}

/// How many sessions wait for a lock.
fn waiting(server: &PostgresServer) -> String {
    let text = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    server.sql("postgres", text)
}

fn assert_busy(told: &Result<TypedAnswer<String>, Error>) {
    let is_busy = matches!(told, Err(Error::Problem(Problem::Busy { .. })));
    assert!(is_busy, "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_call_is_busy_and_leaves_no_statement_behind() {
    let server = PostgresServer::start(&[]).await;
    let owner = Bank::at(&server.url(), Semel::builder()).await;
    let other = Bank::at(&server.url(), refusing()).await;
    let key = fresh();
    let open = OpenRun::of(&owner, &key).await;
    for _ in 0..4 {
        assert_busy(&run_plainly(&other, &key).await);
        assert_eq!(waiting(&server), "0");
    }
    // Nothing that was sent meanwhile wins now.
    let undone = open.end(Err(Failure::retry("not today"))).await;
    assert!(matches!(undone, Err(Error::Failed(_))), "{undone:?}");
    let ran = run_plainly(&other, &key).await.unwrap();
    assert_eq!((ran.value.as_str(), ran.replayed), ("plain", false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_call_replays_what_the_transaction_committed() {
    let server = PostgresServer::start(&[]).await;
    let owner = Bank::at(&server.url(), Semel::builder()).await;
    let other = Bank::at(&server.url(), refusing()).await;
    let key = fresh();
    let open = OpenRun::of(&owner, &key).await;
    assert_busy(&run_plainly(&other, &key).await);
    open.end(Ok(())).await.unwrap();
    let ran = run_plainly(&other, &key).await.unwrap();
    assert_eq!((ran.value.as_str(), ran.replayed), ("receipt", true));
}

/// Leaves a record of `key` that is free to claim.
async fn release(bank: &Bank, key: &str) {
    let call = bank.call(key);
    let failed = call
        .run(|_| async { Err::<String, _>(Failure::retry("not yet")) })
        .await;
    assert!(matches!(failed, Err(Error::Failed(_))), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_call_is_busy_while_a_transaction_replaces_a_record() {
    let server = PostgresServer::start(&[]).await;
    let owner = Bank::at(&server.url(), Semel::builder()).await;
    let other = Bank::at(&server.url(), refusing()).await;
    let key = fresh();
    release(&owner, &key).await;
    let open = OpenRun::of(&owner, &key).await;
    for _ in 0..4 {
        assert_busy(&run_plainly(&other, &key).await);
        assert_eq!(waiting(&server), "0");
    }
    open.end(Ok(())).await.unwrap();
    assert!(run_plainly(&other, &key).await.unwrap().replayed);
}

/// Counts the claims that reach the store.
#[derive(Default)]
struct Claims(AtomicUsize);

impl Claims {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Observer for Claims {
    fn observe(&self, event: &Event<'_>) {
        if let Step::StoreCalled {
            call: StoreCall::Claim,
            ..
        } = event.step
        {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Two seconds behind an open transaction: a waiter asks with growing pauses (P34), and no session
/// waits for a lock.
async fn waits_with_pauses(replaces: bool, plainly: bool) {
    let server = PostgresServer::start(&[]).await;
    let owner = Bank::at(&server.url(), Semel::builder()).await;
    let claims = Arc::new(Claims::default());
    let builder = Semel::builder().observer(claims.clone());
    let waiter = Arc::new(Bank::at(&server.url(), builder).await);
    let key = fresh();
    if replaces {
        release(&owner, &key).await;
    }
    let open = OpenRun::of(&owner, &key).await;
    let waiting_call = tokio::spawn({
        let (waiter, key) = (Arc::clone(&waiter), key.clone());
        async move {
            match plainly {
                true => run_plainly(&waiter, &key).await,
                false => waiter.transfer(&key).await,
            }
        }
    });
    while claims.count() < 2 {
        assert!(!waiting_call.is_finished(), "it did not wait");
        sleep(10).await;
    }
    let clock = semel::tokio_env().clock;
    let began = clock.now();
    while clock.now().since(began) < Duration::from_secs(2) {
        assert_eq!(waiting(&server), "0");
        sleep(100).await;
    }
    let asked = claims.count();
    assert!(asked <= 20, "{asked} claims of one waiter");
    open.end(Ok(())).await.expect("a commit");
    let told = waiting_call.await.expect("no panic").expect("an answer");
    assert_eq!((told.value.as_str(), told.replayed), ("receipt", true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p34_a_plain_waiter_behind_an_open_transaction_pauses() {
    waits_with_pauses(false, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p34_a_waiter_with_a_transaction_behind_an_open_one_pauses() {
    waits_with_pauses(false, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p34_a_plain_waiter_behind_a_transaction_that_replaces_a_record_pauses() {
    waits_with_pauses(true, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p34_a_waiter_with_a_transaction_behind_one_that_replaces_a_record_pauses() {
    waits_with_pauses(true, false).await;
}
