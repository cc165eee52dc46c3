//! `semel demo`, completions and manual pages.

use semel_testkit::private::new_folder;

use crate::support::semel;

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
