//! The circuit breaker of the real program, read from its metrics.

use super::support::{Rig, pause};

const OPERATION: &str = r#"
[[routes]]
path = "/orders"
operation = "create"
"#;

/// A program whose breaker is open for `first_try`, because its store is down.
async fn opened(first_try: &str) -> Rig {
    let settings = format!("engine.breaker_first_try = \"{first_try}\"\n{OPERATION}");
    let mut rig = Rig::start(&settings).await;
    rig.metrics().await.is("semel_breaker_state", &[], 0.0);
    rig.metrics()
        .await
        .is("semel_breaker_refusals_total", &[], 0.0);
    rig.store.kill();
    for number in 0..100 {
        let key = format!("order-{number:04}");
        assert_eq!(rig.post("/orders", Some(&key), "{}").await.0, 503);
        let opened = [r#"state="open""#];
        let metrics = rig.metrics().await;
        if metrics.get("semel_breaker_changes_total", &opened) >= Some(1.0) {
            return rig;
        }
    }
    panic!("the breaker is never open");
}

#[tokio::test]
#[ignore = "needs servers"]
async fn rejected_requests_are_counted_by_operation() {
    let rig = opened("60s").await;
    let labels = [r#"backend="redis""#, r#"operation="create""#];
    let count = |metrics: &super::support::Metrics| {
        metrics.is("semel_breaker_state", &[r#"backend="redis""#], 1.0);
        metrics.get("semel_breaker_refusals_total", &labels)
    };
    let before = count(&rig.metrics().await).expect("a counter");
    for number in 0..3 {
        let key = format!("rejected-{number:04}");
        assert_eq!(rig.post("/orders", Some(&key), "{}").await.0, 503);
    }
    // A request of another route has no operation.
    assert_eq!(rig.post("/", Some("rejected-0004"), "{}").await.0, 503);
    let metrics = rig.metrics().await;
    let by_operation = count(&metrics).expect("a counter");
    assert!((by_operation - before - 3.0).abs() < 1e-9, "{}", metrics.0);
    let all = metrics.get("semel_breaker_refusals_total", &labels[..1]);
    assert_eq!(all, Some(by_operation + 1.0), "{}", metrics.0);
}

#[tokio::test]
#[ignore = "needs servers"]
async fn a_breaker_that_may_try_again_is_half_open_until_the_store_answers() {
    let mut rig = opened("1s").await;
    // Nobody asks meanwhile.
    while rig.metrics().await.get("semel_breaker_state", &[]) != Some(2.0) {
        pause().await;
    }
    rig.store.restart().await;
    let answered = async |rig: &Rig| rig.post("/orders", Some("order-after"), "{}").await.0 == 200;
    while !answered(&rig).await {
        pause().await;
    }
    rig.metrics().await.is("semel_breaker_state", &[], 0.0);
}
