//! `semel dev`: every scenario by the page's own API, the guard of the page, and a clean end.

use std::path::PathBuf;
use std::process::Stdio;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use rustix::process::{Pid, Signal, kill_process};
use semel_testkit::private::new_folder;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

use crate::support::{command, pause};

/// A running `semel dev`.
struct Dev {
    page: String,
    /// The folder in which it makes its own.
    folder: PathBuf,
    child: Child,
}

impl Dev {
    async fn start() -> Self {
        Self::start_in(new_folder("dev")).await
    }

    async fn start_in(folder: PathBuf) -> Self {
        let mut started = command(&["dev", "--no-open"]);
        started.env("TMPDIR", &folder).stdout(Stdio::piped());
        let mut started = tokio::process::Command::from(started);
        let mut child = started.kill_on_drop(true).spawn().expect("as set up");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        while let Some(line) = lines.next_line().await.expect("text") {
            if let Some(page) = line.trim().strip_prefix("The page") {
                let page = page.trim().trim_end_matches('/').to_owned();
                return Self {
                    page,
                    folder,
                    child,
                };
            }
        }
        panic!("it ended without the address of its page");
    }

    async fn get(&self, path: &str) -> Value {
        let url = format!("{}{path}", self.page);
        ask(Request::get(url), Value::Null).await.1
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let url = format!("{}{path}", self.page);
        ask(Request::post(url), body).await
    }

    /// Runs a scenario to its end.
    async fn play(&self, scenario: &str, with_semel: bool, crash: &str) -> Value {
        let wanted = json!({"scenario": scenario, "with_semel": with_semel, "crash": crash});
        let (status, begun) = self.post("/api/runs", wanted.clone()).await;
        assert_eq!(status, 202, "{begun}");
        assert_eq!(self.post("/api/runs", wanted).await.0, 409, "one at a time");
        self.ended(&begun).await
    }

    async fn ended(&self, begun: &Value) -> Value {
        for _ in 0..1500 {
            let state = self.get("/api/state").await;
            let runs = state["runs"].as_array().expect("runs");
            let run = runs.iter().find(|run| run["number"] == begun["run"]);
            let run = run.expect("the run");
            if run["is_done"] == true && state["is_busy"] == false {
                return run.clone();
            }
            pause().await;
        }
        panic!("{begun} does not end");
    }
}

/// Status and JSON.
async fn ask(builder: http::request::Builder, body: Value) -> (u16, Value) {
    let request = builder
        .header("content-type", "application/json")
        .body(Full::<Bytes>::from(body.to_string()))
        .expect("a request");
    let answer = semel_httpclient::send(request).await;
    let body = serde_json::from_slice(&answer.body).unwrap_or_default();
    (answer.status.as_u16(), body)
}

/// The labels of a run's timeline.
fn labels(run: &Value) -> Vec<&str> {
    let events = run["events"].as_array().expect("events");
    let label = |event: &'_ Value| event["at"].is_u64();
    assert!(events.iter().all(label), "{run:#}");
    events
        .iter()
        .map(|event| event["label"].as_str().expect("a label"))
        .collect()
}

fn statuses(run: &Value) -> Vec<u64> {
    let replies = run["replies"].as_array().expect("replies");
    let status = |reply: &Value| reply["status"].as_u64().expect("a status");
    replies.iter().map(status).collect()
}

fn says(run: &Value, words: &str) {
    let text = run["verdict"]["text"].as_str().unwrap_or_default();
    assert!(text.starts_with(words), "{run:#}");
}

fn has_in_order(run: &Value, wanted: &[&str]) {
    let labels = labels(run);
    let mut left = labels.iter();
    for label in wanted {
        let found = left.any(|found| found == label);
        assert!(found, "no {label:?} in its place: {labels:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_semel_every_scenario_charges_once() {
    let dev = Dev::start().await;
    let run = dev.play("send", true, "hold").await;
    says(&run, "1 request, 1 charge.");
    let whole = [
        "charge $19",
        "claimed",
        "charging",
        "charged",
        "response stored",
        "201",
    ];
    has_in_order(&run, &whole);

    let run = dev.play("lost_reply", true, "hold").await;
    says(&run, "2 requests, 1 charge.");
    assert_eq!(statuses(&run), [201, 201]);
    assert_eq!(run["replies"][0]["body"], run["replies"][1]["body"]);
    has_in_order(&run, &["201, lost", "no reply", "replayed"]);

    let run = dev.play("other_payload", true, "hold").await;
    says(&run, "2 requests, 1 charge.");
    assert_eq!(statuses(&run), [201, 422]);
    has_in_order(&run, &["response stored", "conflict 422"]);

    let run = dev.play("ten", true, "hold").await;
    says(&run, "10 requests, 1 charge.");
    assert_eq!(statuses(&run), [201; 10]);
    has_in_order(&run, &["claimed", "9 waiting", "charged", "replayed"]);

    let run = dev.play("kill", true, "takeover").await;
    says(&run, "2 requests, 2 runs.");
    assert_eq!(statuses(&run), [201]);
    let taken = ["killed", "waiting", "lease lapsed", "taken over", "201"];
    has_in_order(&run, &taken);

    let state = dev.get("/api/state").await;
    let totals = json!({"orders": 4, "charges": 4, "duplicates": 0});
    assert_eq!(state["with"], totals, "a receipt is no charge");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_whose_owner_is_killed_waits_for_an_operator() {
    let dev = Dev::start().await;
    let run = dev.play("kill", true, "hold").await;
    says(&run, "2 requests, 1 charge.");
    assert_eq!(statuses(&run), [409]);
    has_in_order(&run, &["claimed", "killed", "lease lapsed", "in doubt"]);
    let link = run["verdict"]["record"].as_str().expect("a link");
    let (dashboard, id) = link.split_once("/#/keys/").expect("a record");

    let url = format!("{dashboard}/admin/v1/records/{id}");
    let (_, record) = ask(Request::get(&url), Value::Null).await;
    assert_eq!(record["state"], "in_doubt", "{record}");
    let body = json!({
        "actor": "jo",
        "reason": "the books have it",
        "fence": record["fence"],
        "outcome": "completed",
        "answer": {"status": 201, "body": {"charge": "ch_0001"}},
    });
    let (status, resolved) = ask(Request::post(format!("{url}/resolve")), body).await;
    assert_eq!(status, 200, "{resolved}");

    let (status, begun) = dev.post("/api/runs/1/retry", json!({})).await;
    assert_eq!(status, 202, "{begun}");
    let run = dev.ended(&begun).await;
    assert_eq!(statuses(&run), [409, 201], "{run:#}");
    has_in_order(&run, &["in doubt", "resolved by an operator", "replayed"]);
    assert_eq!(dev.post("/api/runs/9/retry", json!({})).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_semel_retries_charge_again() {
    let dev = Dev::start().await;
    for (scenario, words) in [
        ("send", "1 request, 1 charge."),
        ("lost_reply", "2 requests, 2 charges."),
        ("other_payload", "2 requests, 2 charges."),
        ("ten", "10 requests, 10 charges."),
        ("kill", "2 requests, 2 charges."),
    ] {
        let run = dev.play(scenario, false, "hold").await;
        says(&run, words);
        let again = labels(&run).contains(&"charged again");
        assert_eq!(again, scenario != "send", "{run:#}");
    }
    let state = dev.get("/api/state").await;
    let totals = json!({"orders": 5, "charges": 17, "duplicates": 12});
    assert_eq!(state["without"], totals);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_names_and_origins_are_refused() {
    let dev = Dev::start().await;
    let url = format!("{}/api/state", dev.page);
    let (status, _) = ask(Request::get(&url).header("host", "evil.test"), Value::Null).await;
    assert_eq!(status, 403, "a name that was made to point here");
    let url = format!("{}/api/runs", dev.page);
    let foreign = Request::post(&url).header("origin", "http://evil.test");
    let (status, _) = ask(foreign, json!({"scenario": "send"})).await;
    assert_eq!(status, 403, "a page of another origin");
}

/// The addresses of the sidecars.
fn sidecars(state: &Value) -> Vec<String> {
    let sidecars = state["sidecars"].as_array().expect("sidecars");
    let address = |sidecar: &Value| {
        let address = sidecar["address"].as_str().expect("an address");
        address.trim_start_matches("http://").to_owned()
    };
    sidecars.iter().map(address).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_the_sidecars_and_removes_the_store() {
    let mut dev = Dev::start().await;
    let state = dev.get("/api/state").await;
    let made = std::fs::read_dir(&dev.folder).expect("a folder").count();
    assert_eq!(made, 1, "the store is in a folder of its own");
    let id = i32::try_from(dev.child.id().expect("a process")).expect("an id");
    kill_process(Pid::from_raw(id).expect("an id"), Signal::TERM).expect("a process");
    let ended = dev.child.wait().await.expect("an end");
    assert!(ended.success(), "{ended}");
    let left = std::fs::read_dir(&dev.folder).expect("a folder").count();
    assert_eq!(left, 0, "nothing is left");
    for address in sidecars(&state) {
        let reached = tokio::net::TcpStream::connect(&address).await;
        assert!(reached.is_err(), "{address} still answers");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sidecars_end_with_a_command_that_is_killed() {
    let mut dev = Dev::start().await;
    let state = dev.get("/api/state").await;
    dev.child.kill().await.expect("a process");
    for address in sidecars(&state) {
        let mut asks = 0;
        while tokio::net::TcpStream::connect(&address).await.is_ok() {
            asks += 1;
            assert!(asks < 500, "{address} still answers");
            pause().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_start_removes_what_a_killed_one_left() {
    let mut killed = Dev::start().await;
    killed.child.kill().await.expect("a process");
    let folders = |dev: &Dev| {
        let entries = std::fs::read_dir(&dev.folder).expect("a folder");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        names.collect::<Vec<_>>()
    };
    let left = folders(&killed);
    assert_eq!(left.len(), 1, "a killed process can't tidy up");
    let next = Dev::start_in(killed.folder.clone()).await;
    let now = folders(&next);
    assert!(now.len() == 1 && now != left, "{left:?}, {now:?}");
}
