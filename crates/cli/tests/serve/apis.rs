//! The protocol API, the admin API and the audit trail.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Signal;
use semel_testkit::private::{free_port, new_folder};
use tokio::sync::Notify;

use crate::support::{RunningSemel, call, service, write};

/// The first page with a record of the proxy. Other tests use this Redis, too, so a page may be
/// empty and still have a next one.
async fn page_with_a_record(listing: &str, token: &str) -> String {
    let mut cursor = String::new();
    loop {
        let page = format!("{listing}{cursor}");
        let (status, text) = call("GET", &page, Some(token), "").await;
        assert_eq!(status, 200, "{text}");
        if text.contains("\"http\"") {
            return text;
        }
        let next = text
            .split_once("\"next\":\"")
            .and_then(|(_, rest)| rest.split('"').next());
        let next = next.unwrap_or_else(|| panic!("not listed: {text}"));
        cursor = format!("&cursor={next}");
    }
}

/// Makes a token with `semel token`. Returns the token and its entry.
fn create_token(arguments: &[&str]) -> (String, String) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_semel"));
    let output = command
        .arg("token")
        .args(arguments)
        .output()
        .expect("it runs");
    let [token, entry] =
        [output.stderr, output.stdout].map(|text| String::from_utf8(text).expect("text"));
    assert!(output.status.success(), "{token}");
    let token = token
        .trim()
        .strip_prefix("semel: token: ")
        .expect("a token");
    (token.to_owned(), entry)
}

#[tokio::test]
#[ignore = "needs servers"]
async fn apis_follow_the_settings_and_require_tokens() {
    let (runs, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let upstream = service("one", &runs, &gate).await;
    let [listen, admin] =
        [free_port(), free_port()].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let folder = new_folder("serve");
    let (file, trail) = (folder.join("semel.toml"), folder.join("audit.jsonl"));
    std::fs::write(folder.join("token"), "an-operators-token-1\n").unwrap();
    let tokens = folder.join("tokens");
    let acme = create_token(&["acme's worker", "--tenant", "acme"]);
    std::fs::write(&tokens, &acme.1).unwrap();
    let more = format!(
        "[admin]\naddress = \"{admin}\"\ntoken_file = \"{0}/token\"\n[api]\naccess = \"tokens\"\ntokens_file = \"{0}/tokens\"\n[audit]\nfile = \"{1}\"\n",
        folder.display(),
        trail.display(),
    );
    write(&file, listen, upstream, &more);
    let mut serving = RunningSemel::start(&file, listen).await;
    assert_eq!(serving.ask("/", "k-1").await.2, "one 1");

    let listing = format!(
        "http://{admin}/admin/v1/records?environment=test-{}-{}",
        std::process::id(),
        listen.port()
    );
    assert_eq!(call("GET", &listing, None, "").await.0, 401);
    assert_eq!(
        call("GET", &listing, Some("another-token-altogether"), "")
            .await
            .0,
        401
    );
    let records = page_with_a_record(&listing, "an-operators-token-1").await;
    assert!(
        records.contains("\"http\"") && records.contains("completed"),
        "{records}"
    );

    let claims = format!("http://{listen}/_semel/v1/claims");
    let claim = "{\"scope\":\"charge\",\"key\":\"k-1\",\"payload\":{}}";
    assert_eq!(call("POST", &claims, None, claim).await.0, 401);
    let (status, said) = call("POST", &claims, Some(&acme.0), claim).await;
    assert!(status < 300, "{status}: {said}");
    // A token is revoked and another one given without a restart.
    let next = create_token(&["acme's next worker", "--tenant", "acme"]);
    std::fs::write(&tokens, &next.1).unwrap();
    let lookups = format!("http://{listen}/_semel/v1/lookups");
    let lookup = "{\"scope\":\"charge\",\"key\":\"k-1\"}";
    assert_eq!(call("POST", &lookups, Some(&acme.0), lookup).await.0, 401);
    assert_eq!(call("POST", &lookups, Some(&next.0), lookup).await.0, 200);
    // Admin requests are not forwarded, and the other listener does not serve them.
    assert_eq!(
        call(
            "GET",
            &format!("http://{listen}/_semel/admin/v1/records"),
            Some("an-operators-token-1"),
            ""
        )
        .await
        .0,
        404
    );
    assert_eq!(runs.load(Ordering::SeqCst), 1);

    serving.tell(Signal::TERM);
    assert_eq!(serving.child.wait().await.unwrap().code(), Some(0));
    let kept = std::fs::read_to_string(trail).unwrap();
    assert!(
        kept.lines().count() >= 2,
        "the trail is written to its end: {kept}"
    );
}
