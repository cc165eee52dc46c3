//! The life of a sidecar: requests, reload of the settings, draining.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Signal;
use semel_httpclient::{json, try_send};
use semel_testkit::private::{free_port, new_folder};
use tokio::sync::Notify;

use crate::support::{RunningSemel, ask, pause, service, write};

#[tokio::test]
#[ignore = "needs servers"]
async fn from_start_to_end() {
    let (runs, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let one = service("one", &runs, &gate).await;
    let two = service("two", &runs, &gate).await;
    let listen: SocketAddr = format!("127.0.0.1:{}", free_port()).parse().unwrap();
    let file = new_folder("serve").join("semel.toml");
    write(&file, listen, one, "");
    let mut serving = RunningSemel::start(&file, listen).await;
    for words in [
        "self-check passed",
        "records are kept in redis",
        "idempotency layer covers",
        "at least once",
    ] {
        serving.says(words).await;
    }

    // Sent three times, done once.
    let key = "k-secret-part-of-the-key";
    assert_eq!(
        serving.ask("/", key).await,
        (200, false, "one 1".to_owned())
    );
    for _ in 0..2 {
        assert_eq!(serving.ask("/", key).await, (200, true, "one 1".to_owned()));
    }

    // New settings apply to new requests; records stay.
    write(
        &file,
        listen,
        two,
        "[[routes]]\npath = \"/held\"\ncrash = \"hold\"\n",
    );
    serving.tell(Signal::HUP);
    serving.says("reloaded").await;
    assert_eq!(
        serving.ask("/", "k-2").await,
        (200, false, "two 2".to_owned())
    );
    assert_eq!(serving.ask("/", key).await, (200, true, "one 1".to_owned()));

    // A broken file is refused with its fix, and the old settings stay.
    std::fs::write(&file, "upstreem = 1\n").unwrap();
    serving.tell(Signal::HUP);
    serving.says("the old one stays").await;
    serving.says("did you mean `upstream`?").await;
    assert_eq!(
        serving.ask("/", "k-3").await,
        (200, false, "two 3".to_owned())
    );

    // It ends after running requests have ended.
    let asking = tokio::spawn(ask(listen, "/slow", "k-4"));
    while runs.load(Ordering::SeqCst) < 4 {
        pause().await;
    }
    serving.tell(Signal::TERM);
    serving.says("draining").await;
    assert!(serving.child.try_wait().unwrap().is_none(), "it waits");
    gate.notify_one();
    assert_eq!(asking.await.unwrap(), (200, false, "two 4".to_owned()));
    assert_eq!(serving.child.wait().await.unwrap().code(), Some(0));
    let log = serving.log.lock().join("\n");
    assert!(!log.contains("secret-part"), "a key is in the log:\n{log}");

    // Another process replays the response.
    write(&file, listen, two, "");
    let again = RunningSemel::start(&file, listen).await;
    assert_eq!(again.ask("/", key).await, (200, true, "one 1".to_owned()));
    assert_eq!(
        again.ask("/slow", "k-4").await,
        (200, true, "two 4".to_owned())
    );
}

#[tokio::test]
#[ignore = "needs servers"]
async fn second_signal_exits_at_once() {
    let (runs, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let upstream = service("one", &runs, &gate).await;
    let listen: SocketAddr = format!("127.0.0.1:{}", free_port()).parse().unwrap();
    let file = new_folder("serve").join("semel.toml");
    write(&file, listen, upstream, "");
    let mut serving = RunningSemel::start(&file, listen).await;
    let asking = tokio::spawn(async move {
        let mut request = json("POST", &format!("http://{listen}/slow"), "{}");
        let key = "k-1".parse().unwrap();
        request.headers_mut().insert("idempotency-key", key);
        try_send(request).await.is_err()
    });
    while runs.load(Ordering::SeqCst) < 1 {
        pause().await;
    }
    serving.tell(Signal::INT);
    serving.says("draining").await;
    serving.tell(Signal::TERM);
    assert_eq!(serving.child.wait().await.unwrap().code(), Some(7));
    assert!(asking.await.unwrap(), "cut off");
}
