//! The file: who may read it, which files are refused, and what is said of it.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use futures_util::future::join_all;
use semel_core::diagnosis::Severity;
use semel_core::{Answer, Grant, Settlement, Store as _, StoreAdmin as _};
use semel_stores::sqlite::{SqliteStore, pending};

use crate::support::{brief, complete, done, finding, fresh, refusal, sleep, won};
use crate::{Place, open, raw};

fn mode(place: &Place, beside: &str) -> u32 {
    let path = format!("{}{beside}", place.path().display());
    let found = std::fs::metadata(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    found.permissions().mode() & 0o777
}

#[tokio::test]
async fn the_file_and_those_beside_it_are_its_owners_alone() {
    let place = Place::new();
    let store = place.open().await;
    assert!(done(&store, &fresh()).await);
    for beside in ["", "-wal", "-shm", "-turn"] {
        assert_eq!(mode(&place, beside), 0o600, "keys.db{beside}");
    }
}

#[tokio::test]
async fn a_file_that_others_may_read_is_told() {
    let place = Place::new();
    let store = place.open().await;
    let findings = store.diagnose().await.unwrap();
    let worst = findings.iter().map(|finding| finding.severity).max();
    assert_eq!(worst, Some(Severity::Good), "{findings:?}");
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
    let findings = store.diagnose().await.unwrap();
    assert_eq!(
        finding(&findings, "permissions").severity,
        Severity::Warning
    );
}

#[tokio::test]
async fn what_is_no_file_of_ours_is_refused_and_left_as_it_is() {
    let place = Place::new();
    let text = "not a database, but a text that somebody needs. ".repeat(40);
    std::fs::write(place.path(), &text).unwrap();
    let said = refusal(open(&place.url()).await);
    assert!(said.contains("not an SQLite database"), "{said}");
    assert_eq!(std::fs::read_to_string(place.path()).unwrap(), text);

    let place = Place::new();
    let mut theirs = raw(&place.path()).await;
    let make = sqlx::raw_sql("CREATE TABLE invoices (id INTEGER)");
    make.execute(&mut theirs).await.unwrap();
    let said = refusal(open(&place.url()).await);
    assert!(said.contains("another application"), "{said}");
    let journal: String = sqlx::query_scalar("PRAGMA journal_mode")
        .fetch_one(&mut theirs)
        .await
        .unwrap();
    assert_eq!(journal, "delete", "their file was changed");
}

#[tokio::test]
async fn a_newer_versions_file_is_refused() {
    let place = Place::new();
    drop(place.open().await);
    let newer = sqlx::raw_sql("PRAGMA user_version = 99");
    newer.execute(&mut place.raw().await).await.unwrap();
    let said = refusal(open(&place.url()).await);
    assert!(said.contains("newer version"), "{said}");
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_said() {
    let place = Place::new();
    let url = place.url().replace("keys.db", "no/such/keys.db");
    let said = refusal(open(&url).await);
    assert!(said.contains("folder"), "{said}");
}

#[tokio::test]
async fn without_migrations_missing_tables_are_said() {
    let place = Place::new();
    let off = format!("{}?migrate=off", place.url());
    assert_eq!(pending(&off).await.unwrap(), ["0001_records"]);
    assert!(!place.path().exists(), "to ask makes no file");
    let said = refusal(open(&off).await);
    assert!(said.contains("semel migrate"), "{said}");
    drop(place.open().await);
    assert!(pending(&off).await.unwrap().is_empty());
    open(&off).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_may_open_a_new_file_at_once() {
    // Several times: who looks while another makes the tables is a matter of luck.
    for _ in 0..8 {
        let place = Place::new();
        let url = place.url();
        let opening: Vec<_> = (0..16)
            .map(|_| {
                let url = url.clone();
                tokio::spawn(async move { open(&url).await })
            })
            .collect();
        for opened in opening {
            assert!(done(&opened.await.unwrap().unwrap(), &fresh()).await);
        }
    }
}

#[tokio::test]
async fn a_file_that_is_replaced_while_in_use_gets_no_more_claims() {
    let place = Place::new();
    let store = place.open().await;
    let claim = fresh();
    let lease = won(&store, &claim).await;
    let moved = place.path().with_extension("moved");
    std::fs::rename(place.path(), &moved).unwrap();
    let said = refusal(store.claim(&fresh()).await);
    assert!(said.contains("moved, removed or replaced"), "{said}");
    let said = refusal(store.settle(&lease, &complete("lost")).await);
    assert!(said.contains("moved, removed or replaced"), "{said}");
    std::fs::rename(&moved, place.path()).unwrap();
    store.settle(&lease, &complete("kept")).await.unwrap();
}

#[tokio::test]
async fn answers_of_another_file_are_refused() {
    let (place, other) = (Place::new(), Place::new());
    let claim = fresh();
    let elsewhere = other.open().await;
    let lease = won(&elsewhere, &claim).await;
    elsewhere.settle(&lease, &complete("other")).await.unwrap();
    drop(elsewhere);
    // Nothing has been read yet, so the connection for reading is opened after the replacement.
    let store = place.open().await;
    std::fs::rename(place.path(), place.path().with_extension("moved")).unwrap();
    let said = refusal(store.claim(&claim).await);
    assert!(said.contains("moved, removed or replaced"), "{said}");
    for ending in ["", "-wal", "-shm"] {
        let name = |path: &std::path::Path| format!("{}{ending}", path.display());
        if std::fs::exists(name(&other.path())).unwrap() {
            std::fs::rename(name(&other.path()), name(&place.path())).unwrap();
        }
    }
    let said = refusal(store.claim(&claim).await);
    assert!(said.contains("moved, removed or replaced"), "{said}");
    let said = refusal(store.read(&claim.identity).await);
    assert!(said.contains("moved, removed or replaced"), "{said}");
}

#[tokio::test]
async fn expired_records_are_swept_and_live_ones_are_not() {
    let place = Place::new();
    let store = place.open().await;
    let mut kept = Vec::new();
    for _ in 0..50 {
        won(&store, &brief()).await;
        kept.push(fresh());
        won(&store, &kept[kept.len() - 1]).await;
    }
    // On a slow machine the first may be over by now.
    let early = store.sweep(1_000).await.unwrap();
    sleep(1_100).await;
    assert_eq!(store.expired(1_000).await.unwrap(), 50 - early);
    let some = store.sweep(20).await.unwrap();
    assert_eq!(some, 20.min(50 - early));
    assert_eq!(store.sweep(1_000).await.unwrap(), 50 - early - some);
    assert_eq!(store.sweep(1_000).await.unwrap(), 0);
    for claim in kept {
        assert!(store.read(&claim.identity).await.unwrap().is_some());
    }
}

/// An answer of so many MiB.
fn large(mebibytes: usize) -> Settlement {
    let body = vec![b'x'; mebibytes << 20];
    Settlement::Complete(Arc::new(Answer::from_body(body)))
}

async fn leases(store: &SqliteStore, count: usize) -> Vec<Grant> {
    let mut leases = Vec::new();
    for _ in 0..count {
        leases.push(won(store, &fresh()).await);
    }
    leases
}

async fn log(store: &SqliteStore) -> Severity {
    let findings = store.diagnose().await.expect("an answer");
    finding(&findings, "log").severity
}

/// Whoever comes at once shares a transaction, up to some bytes: other processes wait for its end,
/// and the log has to hold all of it.
#[tokio::test]
async fn many_large_answers_at_once_make_no_large_log() {
    let place = Place::new();
    let store = place.open().await;
    let leases = leases(&store, 12).await;
    let answer = large(8);
    let settled = join_all(leases.iter().map(|lease| store.settle(lease, &answer)));
    for settled in settled.await {
        settled.unwrap();
    }
    assert_eq!(log(&store).await, Severity::Good);
}

/// A log that grew behind a reader is cut back once that is gone, so that nobody looks for it in
/// vain.
#[tokio::test]
async fn a_log_that_a_reader_made_grow_shrinks_after_it() {
    let place = Place::new();
    let store = place.open().await;
    let leases = leases(&store, 5).await;
    let mut reader = place.raw().await;
    let begin = sqlx::raw_sql("BEGIN; SELECT count(*) FROM records");
    begin.fetch_all(&mut reader).await.unwrap();
    for lease in &leases {
        store.settle(lease, &large(15)).await.unwrap();
    }
    assert_eq!(log(&store).await, Severity::Warning);
    let end = sqlx::raw_sql("COMMIT");
    end.execute(&mut reader).await.unwrap();
    // One brings the log into the file, the next begins it anew.
    for _ in 0..3 {
        assert!(done(&store, &fresh()).await);
    }
    assert_eq!(log(&store).await, Severity::Good);
}
