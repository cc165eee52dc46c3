//! The Rust client through a bad network: a real sidecar on a real Redis, a proxy that drops,
//! delays, duplicates and cuts answers, and client processes that are killed.

mod network;
mod service;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use semel_client::{
    CallInfo, Error, IdempotencyKey, IdempotencyMiddleware, RetryBudget, RetryPolicy,
};
use semel_testkit::private::new_folder;

use network::Network;
use service::{Service, Sidecar, pause};

const CALLS: usize = 2_000;

fn patient() -> RetryPolicy {
    RetryPolicy::default()
        .with_max_attempts(30)
        .with_base(Duration::from_millis(5))
        .with_cap(Duration::from_millis(200))
        .with_attempt_timeout(Duration::from_secs(10))
}

fn client() -> reqwest_middleware::ClientWithMiddleware {
    let idempotency = IdempotencyMiddleware::default()
        .policy(patient())
        .budget(Arc::new(RetryBudget::new(1_000_000, 1.0)));
    let builder = reqwest_middleware::ClientBuilder::new(reqwest::Client::new());
    builder.with(idempotency).build()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_calls_through_a_bad_network_take_effect_once_each() {
    let service = Service::start().await;
    let sidecar = Sidecar::start(service.address).await;
    let network = Network::to(sidecar.address).await;
    let (client, url) = (client(), format!("http://{}/charges", network.address));
    let call = |number: usize| {
        let request = client
            .post(&url)
            .json(&serde_json::json!({"order": format!("ord-{number}")}));
        async move {
            let answer = request.send().await.expect("an answer in the end");
            assert_eq!(answer.status(), 201);
            let called = CallInfo::from_response(&answer)
                .expect("how it went")
                .clone();
            let receipt = answer.text().await.expect("a whole body");
            (format!("ord-{number}"), receipt, called)
        }
    };
    let calls = futures_util::stream::iter(0..CALLS)
        .map(call)
        .buffer_unordered(16);
    let answers: Vec<_> = calls.collect().await;

    let effects = service.effects();
    assert_eq!(effects.len(), CALLS);
    let (mut replayed, mut attempts) = (0, 0);
    for (order, receipt, called) in &answers {
        assert_eq!(effects[order], vec![receipt.clone()], "{order}");
        replayed += usize::from(called.replayed);
        attempts += called.attempts as usize;
    }
    // Every attempt of an order, and every copy that the network made of one, had the same key.
    let keys = network.keys();
    assert_eq!(keys.len(), CALLS);
    assert!(keys.values().all(|keys| keys.len() == 1));
    let troubles = network.troubles();
    println!("{CALLS} calls, {attempts} attempts, {replayed} replays; {troubles:?}");
    assert!(
        replayed > 100 && attempts > CALLS + 400,
        "the network was good"
    );
    assert!(troubles.values().all(|count| *count > 50), "{troubles:?}");
}

#[tokio::test]
async fn a_conflict_ends_the_call_at_once() {
    let service = Service::start().await;
    let sidecar = Sidecar::start(service.address).await;
    let (client, url) = (client(), format!("http://{}/charges", sidecar.address));
    let charge = |order: &str| {
        let key = IdempotencyKey::new("the-key-of-one-charge").expect("a key");
        let body = serde_json::json!({"order": order});
        client.post(&url).json(&body).with_extension(key).send()
    };
    assert_eq!(charge("ord-1").await.expect("an answer").status(), 201);
    let error = charge("ord-2").await.expect_err("another payload");
    let status = http::StatusCode::UNPROCESSABLE_ENTITY;
    assert_eq!(Error::find_in(&error), Some(&Error::Conflict { status }));
    assert_eq!(service.effects().len(), 1);
    assert_eq!(service.requests(), 1);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_given_up_on_and_nothing_was_done() {
    let nobody = semel_testkit::private::free_port();
    let idempotency = IdempotencyMiddleware::default().policy(
        RetryPolicy::default()
            .with_max_attempts(3)
            .with_base(Duration::from_millis(1)),
    );
    let builder = reqwest_middleware::ClientBuilder::new(reqwest::Client::new());
    let client = builder.with(idempotency).build();
    let sent = client
        .post(format!("http://127.0.0.1:{nobody}/charges"))
        .send()
        .await;
    let error = sent.expect_err("nobody is there");
    let told = Error::find_in(&error).expect("one of ours");
    assert!(
        matches!(
            told,
            Error::GaveUp {
                attempts: 3,
                unknown: false,
                ..
            }
        ),
        "{told}"
    );
}

/// Each process charges the orders that are not charged yet, by its outbox; it is killed again and
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_killed_again_and_again_charges_each_order_once() {
    const ORDERS: usize = 120;
    let service = Service::start().await;
    let sidecar = Sidecar::start(service.address).await;
    let network = Network::to(sidecar.address).await;
    let (outbox, receipts) = (new_folder("outbox"), new_folder("receipts"));
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_semel-child"));
        command
            .arg("charge")
            .arg(format!("http://{}/charges", network.address));
        command.args([&outbox, &receipts]).arg(ORDERS.to_string());
        command.stdout(Stdio::null()).spawn().expect("a child")
    };
    let done = || std::fs::read_dir(&receipts).expect("a folder").count();
    let mut kills = 0;
    loop {
        let (mut child, before) = (start(), done());
        // Some further orders, then it dies, wherever it is.
        let goal = (before + 10).min(ORDERS);
        while done() < goal && child.try_wait().expect("a child").is_none() {
            pause(3).await;
        }
        if done() == ORDERS {
            assert!(child.wait().expect("an end").success());
            break;
        }
        child.kill().expect("it can be killed");
        child.wait().expect("an end");
        kills += 1;
        assert!(kills < 200, "it gets nowhere");
    }
    assert!(kills >= 5, "{kills} kills");
    let effects = service.effects();
    assert_eq!(effects.len(), ORDERS);
    for (order, made) in &effects {
        let receipt = std::fs::read_to_string(receipts.join(order)).expect("a receipt");
        assert_eq!(*made, vec![receipt], "{order}");
    }
    let keys: BTreeMap<_, _> = network.keys();
    assert!(keys.values().all(|keys| keys.len() == 1), "a key changed");
    // What a process that died while writing left beside is no call.
    let outbox = semel_client::Outbox::open(outbox).await.expect("a folder");
    assert!(outbox.pending().await.expect("readable").is_empty());
    println!(
        "{ORDERS} orders, {kills} kills, {} requests",
        network.requests()
    );
}
