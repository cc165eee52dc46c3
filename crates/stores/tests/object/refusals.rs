//! What a server of objects may answer, brought about one by one: an effect that ran is settled in
//! the end, and runs once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use semel::{Failure, Semel};
use semel_core::Certainty;
use semel_stores::object::ERRORS;
use semel_testkit::http_proxy::{HttpFault, HttpProxy};

use super::support::{chance, own_url, proxy, through};

/// More than one call tries by itself, if the outcome is not known.
const MORE_THAN_A_CALL: u32 = 9;

/// One of the answers that a row stands for: a status, and S3's word for it.
fn sample(code: &'static str) -> (u16, &'static str) {
    let (status, word) = code.split_once(' ').unwrap_or((code, ""));
    let status = format!("{:0<3}", status.trim_end_matches('*'));
    (status.parse().expect("a status"), word)
}

/// Runs an effect whose settlement goes wrong so often.
async fn settles(semel: &Semel, proxy: &Arc<HttpProxy>, wrong: HttpFault, times: u32) {
    let (key, runs) = (format!("k-{:032x}", chance()), Arc::new(AtomicU32::new(0)));
    for replayed in [false, true] {
        let (proxy, runs) = (Arc::clone(proxy), Arc::clone(&runs));
        let call = semel.operation("charge").key(&key).payload(&1);
        let answer = call.run(async move |_| {
            for _ in 0..times {
                proxy.next("PUT", wrong);
            }
            Ok::<_, Failure>(runs.fetch_add(1, Ordering::SeqCst))
        });
        let answer = answer
            .await
            .unwrap_or_else(|error| panic!("{wrong:?}: {error:?}"));
        assert_eq!((answer.value, answer.replayed), (0, replayed), "{wrong:?}");
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1, "{wrong:?}");
    assert_eq!(proxy.armed(), 0, "{wrong:?}: not all of it happened");
}

#[tokio::test]
async fn refused_settlement_is_retried_until_it_is_settled() {
    let proxy = Arc::new(proxy().await);
    let url = through(&proxy, &own_url());
    // Replays come from the bucket.
    let semel = Semel::open(&url).await.expect("a bucket");
    for row in ERRORS {
        let (status, word) = sample(row.code);
        settles(&semel, &proxy, HttpFault::RefusedAs(status, word), 1).await;
        if row.certainty == Certainty::Unknown {
            settles(
                &semel,
                &proxy,
                HttpFault::RefusedAs(status, word),
                MORE_THAN_A_CALL,
            )
            .await;
            settles(&semel, &proxy, HttpFault::DoneBut(status), 1).await;
        }
    }
}
