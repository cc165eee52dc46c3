//! `semel demo`, completions and manual pages.

use std::process::Stdio;

use semel_testkit::private::new_folder;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::support::{command, semel};

#[tokio::test(flavor = "multi_thread")]
async fn demo_charges_twice_without_semel_and_once_with_it() {
    let shown = semel(&["demo", "--json"]).await.json();
    let number = |side: &str, name: &str| shown[side][name].as_u64().expect("a number");
    assert!(number("without", "duplicate_charges") > 0, "{shown}");
    assert_eq!(number("without", "charges"), number("without", "requests"));
    assert_eq!(number("with", "duplicate_charges"), 0);
    assert_eq!(
        (number("with", "charges"), number("with", "orders")),
        (20, 20)
    );
    assert_eq!(
        number("with", "requests"),
        number("without", "requests"),
        "the same losses"
    );
    assert_eq!(number("with", "replays"), number("with", "responses_lost"));

    let text = semel(&["demo"]).await.good();
    assert!(
        text.contains("idempotent-replayed: true") && text.contains("semel serve --upstream"),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "no colours where nobody looks");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_of_the_demo_stands_alone() {
    let mut started = command(&["demo", "--service", "0"]);
    started.stdout(Stdio::piped());
    let mut started = tokio::process::Command::from(started);
    let mut child = started.kill_on_drop(true).spawn().expect("as set up");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let line = lines.next_line().await.expect("text").expect("a line");
    let url = line.split_whitespace().last().expect("a URL").to_owned();
    assert!(
        url.starts_with("http://127.0.0.1:") && url.ends_with("/charges"),
        "{line}"
    );
    let order = r#"{"order": "A-1", "cents": 4200}"#;
    for number in 1..=2 {
        let charged = ask("POST", &url, order).await;
        let expected =
            serde_json::json!({"charge": format!("ch_{number:04}"), "order": "A-1", "cents": 4200});
        assert_eq!(charged, expected, "it charges whenever it is asked");
    }
    assert_eq!(
        ask("GET", &url, "").await,
        serde_json::json!({"charges": 2})
    );
    let port = url.split([':', '/']).rev().nth(1).expect("a port");
    let taken = semel(&["demo", "--service", port]).await;
    assert_eq!(taken.code, 5, "{}", taken.err);
}

async fn ask(method: &str, url: &str, body: &'static str) -> serde_json::Value {
    semel_httpclient::send(semel_httpclient::json(method, url, body))
        .await
        .json()
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_and_manual_cover_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = semel(&["completions", shell]).await.good();
        assert!(
            text.contains("in-doubt") && text.contains("doctor"),
            "{shell}"
        );
    }
    assert!(semel(&["man"]).await.good().contains("semel\\-keys"));
    let folder = new_folder("man");
    semel(&["man", "--out", folder.to_str().expect("as set up")])
        .await
        .good();
    for page in [
        "semel.1",
        "semel-keys-list.1",
        "semel-doctor.1",
        "semel-demo.1",
    ] {
        assert!(folder.join(page).exists(), "{page}");
    }
}
