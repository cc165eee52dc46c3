//! `Semel` on a bucket.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use semel::Semel;
use semel_core::diagnosis::Severity;
use semel_core::store::StoreAdmin as _;

use super::support::{complete, fresh, open, own_url, won};

#[tokio::test(flavor = "multi_thread")]
async fn of_many_callers_over_two_processes_one_runs() {
    let url = own_url();
    let (a, b) = (
        Semel::open(&url).await.expect("a bucket"),
        Semel::open(&url).await.expect("a bucket"),
    );
    let ran = Arc::new(AtomicU32::new(0));
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..16 {
        let semel = if caller % 2 == 0 {
            a.clone()
        } else {
            b.clone()
        };
        let ran = Arc::clone(&ran);
        callers.spawn(async move {
            let run = semel.operation("charge").key("one").payload(&"same");
            let answer = run.run(move |_| async move {
                ran.fetch_add(1, Ordering::SeqCst);
                semel::tokio_env()
                    .clock
                    .sleep(Duration::from_millis(200))
                    .await;
                Ok::<_, std::io::Error>("charged".to_owned())
            });
            answer.await.expect("an answer").value
        });
    }
    while let Some(answer) = callers.join_next().await {
        assert_eq!(answer.expect("no panic"), "charged");
    }
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_doctor_finds_nothing_wrong_with_a_fit_server() {
    let store = open(&own_url()).await;
    let findings = store.diagnose().await.expect("an answer");
    let worst = findings.iter().map(|finding| finding.severity).max();
    assert_eq!(worst, Some(Severity::Good), "{findings:#?}");
    // And leaves nothing behind.
    assert_eq!(store.stats().await.expect("an answer").records, 0);
}

#[tokio::test]
async fn sweeping_can_be_left_to_the_bucket() {
    let url = own_url();
    let store = open(&format!("{url}&sweep=off")).await;
    let findings = store.diagnose().await.expect("an answer");
    let sweeping = findings.iter().find(|finding| finding.check == "sweeping");
    let sweeping = sweeping.expect("a finding");
    assert_eq!(sweeping.severity, Severity::Note);
    assert!(
        sweeping
            .fix
            .as_deref()
            .is_some_and(|fix| fix.contains("semel lifecycle"))
    );
}

#[tokio::test]
async fn records_are_counted_and_others_objects_are_left_alone() {
    use object_store::ObjectStoreExt as _;
    let store = open(&own_url()).await;
    let claim = fresh();
    let lease = won(&store, &claim).await;
    semel_core::Store::settle(&store, &lease, &complete("done"))
        .await
        .expect("an answer");
    let record = store.path_of(&claim.identity).to_string();
    let (folder, _) = record.split_at(record.len() - 33);
    let others = object_store::path::Path::from(format!("{folder}/notes.txt"));
    let write = store.client().put(&others, "mine".into()).await;
    write.expect("a server");
    assert_eq!(store.stats().await.expect("an answer").records, 1);
    assert_eq!(store.sweep(100).await.expect("an answer"), 0);
    let listed = store.list(&semel_core::store::Query::default()).await;
    assert_eq!(listed.expect("an answer").records.len(), 1);
    assert!(store.client().head(&others).await.is_ok());
}
