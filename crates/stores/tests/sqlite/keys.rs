//! Encryption keys of whole processes: at start, at a reload, and where they come from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use semel::encrypted::{
    EncryptionKey, EncryptionKeyError, KeyCommand, KeyFiles, KeyProvider, KeyVariable, Keyring,
    WriteKey,
};
use semel::{Encryption, Semel};

use crate::Place;
use crate::encrypted::key;

fn ring(keys: Vec<EncryptionKey>) -> Keyring {
    Keyring::new(keys, WriteKey::Newest).expect("a ring")
}

async fn open(place: &Place, keys: Vec<EncryptionKey>) -> Result<Semel, semel::OpenError> {
    let encryption = Encryption::new(ring(keys));
    let builder = Semel::builder().environment("test").encryption(encryption);
    builder.open(&place.url()).await
}

async fn run(semel: &Semel, key: &str, effects: &Arc<AtomicU32>) -> Result<String, semel::Error> {
    let effects = Arc::clone(effects);
    let call = semel.operation("greet").key(key).payload(&"world");
    let answer = call.run(async move |_| {
        effects.fetch_add(1, Ordering::SeqCst);
        Ok::<_, std::io::Error>("a secret greeting".to_owned())
    });
    Ok(answer.await?.value)
}

fn has(file: &std::path::Path, text: &str) -> bool {
    let names = ["", "-wal"].map(|end| format!("{}{end}", file.display()));
    names.iter().any(|name| {
        let bytes = std::fs::read(name).unwrap_or_default();
        bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_was_answered_is_in_the_file() {
    let (place, effects) = (Place::new(), Arc::default());
    let semel = open(&place, vec![key(1, 1)]).await.expect("a store");
    for _ in 0..2 {
        let answer = run(&semel, "k-1", &effects).await.expect("an answer");
        assert_eq!(answer, "a secret greeting");
    }
    assert_eq!(effects.load(Ordering::SeqCst), 1);
    assert!(!has(&place.path(), "secret greeting"));
    // In an environment without encryption, the same file has it in plain text.
    let plain = Semel::builder().environment("plain");
    let plain = plain.open(&place.url()).await.expect("a store");
    run(&plain, "k-1", &effects).await.expect("a new key");
    assert!(has(&place.path(), "secret greeting"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_without_any_key_is_refused_once_records_are_encrypted() {
    let (place, effects) = (Place::new(), Arc::default());
    let without = || Semel::builder().environment("test");
    let early = without().open(&place.url()).await.expect("a store");
    // The first step of the rollout: nodes that have the key and only read.
    let reader = Keyring::new(vec![key(1, 1)], WriteKey::Nothing).expect("a ring");
    let reader = without().encryption(Encryption::new(reader));
    let reader = reader.open(&place.url()).await.expect("a reader");
    without()
        .open(&place.url())
        .await
        .expect("nothing is encrypted");
    reader
        .replace_keys(ring(vec![key(1, 1)]))
        .await
        .expect("keys");
    run(&reader, "k-1", &effects).await.expect("an answer");
    for builder in [without(), without().tool()] {
        let refused = builder.open(&place.url()).await.expect_err("refused");
        assert!(
            refused.to_string().contains("no encryption key"),
            "{refused}"
        );
    }
    // One that was there before refuses the record by name, and runs nothing.
    run(&early, "k-1", &effects).await.expect_err("encrypted");
    assert_eq!(effects.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_text_is_not_written_and_refused_at_once() {
    let place = Place::new();
    let reader = || Keyring::new(vec![key(1, 1)], WriteKey::Nothing).expect("a ring");
    let both = Encryption::new(reader()).refuse_plain(true);
    let refused = Semel::builder().encryption(both).open(&place.url()).await;
    let refused = refused.expect_err("refused");
    assert!(refused.to_string().contains("plain text"), "{refused}");
    let strict = Encryption::new(ring(vec![key(1, 1)])).refuse_plain(true);
    let semel = Semel::builder().encryption(strict).open(&place.url()).await;
    let semel = semel.expect("a store");
    semel.replace_keys(reader()).await.expect_err("refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_a_wrong_key_does_not_start() {
    let place = Place::new();
    open(&place, vec![key(1, 1)]).await.expect("the first node");
    open(&place, vec![key(1, 1)]).await.expect("another node");
    let same_id = open(&place, vec![key(1, 2)]).await.expect_err("refused");
    assert!(same_id.to_string().contains("key 1"), "{same_id}");
    let stranger = open(&place, vec![key(9, 9)]).await.expect_err("refused");
    assert!(stranger.to_string().contains("none of them"), "{stranger}");
    open(&place, vec![key(1, 1), key(2, 2)])
        .await
        .expect("a node with a new key");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_came_by_reloads_alone_starts_a_node() {
    let (place, effects) = (Place::new(), Arc::default());
    let semel = open(&place, vec![key(1, 1)]).await.expect("a store");
    run(&semel, "old", &effects).await.expect("an answer");
    let both = ring(vec![key(1, 1), key(2, 2)]);
    semel.replace_keys(both).await.expect("new keys");
    run(&semel, "new", &effects).await.expect("an answer");
    let wrong = ring(vec![key(1, 1), key(2, 7)]);
    semel.replace_keys(wrong).await.expect_err("another key 2");
    run(&semel, "old", &effects).await.expect("still readable");
    drop(semel);
    let next = open(&place, vec![key(2, 2)]).await.expect("a later node");
    run(&next, "new", &effects).await.expect("a replay");
    run(&next, "old", &effects)
        .await
        .expect_err("the old key is gone");
    assert_eq!(effects.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_come_from_files_and_variables() {
    let place = Place::new();
    let file = place.path().with_extension("keys");
    let line = EncryptionKey::line(3, &[1; 32]);
    std::fs::write(&file, format!("# old and new\n{}\n", *line)).expect("a file");
    let files = KeyFiles(vec![file.clone()]);
    let keys = files.load().await.expect("keys");
    assert_eq!(keys.iter().map(EncryptionKey::id).collect::<Vec<_>>(), [3]);
    std::fs::write(&file, format!("{}x\n", *line)).expect("a file");
    let refused = files.load().await.expect_err("not a key");
    assert!(matches!(refused, EncryptionKeyError::Line { line: 1, .. }));
    let missing = KeyVariable("SEMEL_TEST_NO_SUCH_KEY".to_owned());
    missing.load().await.expect_err("not set");
}

fn command(script: &str, seconds: u64) -> KeyCommand {
    KeyCommand::new(
        ["sh", "-c", script].map(str::to_owned).to_vec(),
        Duration::from_secs(seconds),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_gives_keys_within_bounds() {
    let line = EncryptionKey::line(3, &[0xab; 32]);
    let keys = command(&format!("echo {}", *line), 60).load().await;
    assert_eq!(keys.expect("keys").len(), 1);
    for (script, seconds, word) in [
        (
            format!("echo {} >&2; echo {}; exit 3", *line, *line),
            60,
            "3",
        ),
        (format!("echo {}; exec sleep 600", *line), 1, "no answer"),
        (format!("yes {}", *line), 60, "64 KiB"),
        (format!("echo {}ff", *line), 60, "line 1"),
        ("true".to_owned(), 60, "no encryption key"),
    ] {
        let refused = command(&script, seconds).load().await;
        let refused = refused.expect_err("refused");
        let said = format!("{refused} {refused:?}");
        assert!(said.contains(word), "{said}");
        assert!(!said.contains("abab"), "{said}");
    }
}
