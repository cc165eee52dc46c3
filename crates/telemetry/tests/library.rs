//! What a program that uses the library sees of its calls.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::{OnBusy, Policy, Semel};
use semel_telemetry::{Telemetry, TelemetryConfig};
use tracing_subscriber::fmt::MakeWriter;

/// The lines that a subscriber writes.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("a lock").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

async fn charge(semel: &Semel, key: &str, amount: u32) -> bool {
    let operation = semel.operation("charge");
    let call = operation.key(key).payload(&amount);
    let answer = call.run(move |_| async move { Ok::<_, std::io::Error>(amount) });
    answer.await.is_ok()
}

#[tokio::test(flavor = "current_thread")]
async fn runs_replays_and_conflicts_are_counted_and_logged() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt().with_writer(lines.clone());
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let telemetry = Arc::new(Telemetry::new(&TelemetryConfig::new("memory")));
    let builder = Semel::builder().observer(Arc::clone(&telemetry) as _);
    let semel = builder.open("memory://").await.expect("a store");

    assert!(charge(&semel, "secret-key-of-mine", 5).await);
    assert!(charge(&semel, "secret-key-of-mine", 5).await);
    assert!(!charge(&semel, "secret-key-of-mine", 6).await);

    let page = telemetry.render();
    for line in [
        r#"semel_requests_total{scope="charge",outcome="ran"} 1"#,
        r#"semel_requests_total{scope="charge",outcome="replayed"} 1"#,
        r#"semel_requests_total{scope="charge",outcome="conflict"} 1"#,
        r#"semel_mismatches_total{scope="charge"} 1"#,
    ] {
        assert!(page.contains(line), "{line} is missing:\n{page}");
    }
    let logged = String::from_utf8(lines.0.lock().expect("a lock").clone()).expect("text");
    for event in [
        "idempotency.processed",
        "idempotency.replay",
        "idempotency.conflict",
    ] {
        assert!(logged.contains(event), "{event} is missing:\n{logged}");
    }
    assert!(!logged.contains("secret-key-of-mine") && !page.contains("secret-key"));
}

#[tokio::test(flavor = "current_thread")]
async fn a_lookup_is_logged_with_its_result_and_time() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(lines.clone());
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let config = TelemetryConfig::new("memory").with_debug_percent(100);
    let store = semel::open_store("memory://").await.expect("a store");
    // Each is a process of its own: what another one ran is not in its cache.
    let process = async || {
        let telemetry = Arc::new(Telemetry::new(&config));
        let builder = Semel::builder().observer(telemetry as _);
        builder.open_on(Arc::clone(&store)).await.expect("a store")
    };
    assert!(charge(&process().await, "k", 5).await);
    assert!(charge(&process().await, "k", 5).await);
    assert!(!charge(&process().await, "k", 6).await);
    let logged = String::from_utf8(lines.0.lock().expect("a lock").clone()).expect("text");
    let lookups = logged.lines().filter(|line| line.contains("cache.lookup"));
    let results: Vec<&str> = lookups
        .map(|line| {
            let value = |name: &str| line.split_once(name)?.1.split(' ').next();
            let took = value(" storage_duration_ms=").and_then(|text| text.parse::<u64>().ok());
            assert!(took.is_some(), "{line}");
            value(" result=").unwrap_or_default()
        })
        .collect();
    assert_eq!(results, [r#""miss""#, r#""hit""#, r#""mismatch""#]);
}

/// An owner that dies leaves its lease: a caller waits for it in vain, and a later one takes over.
#[test]
fn waits_in_vain_and_takeovers_are_counted() {
    let owner = tokio::runtime::Runtime::new().expect("a runtime");
    let others = tokio::runtime::Runtime::new().expect("a runtime");
    let telemetry = Arc::new(Telemetry::new(&TelemetryConfig::new("memory")));
    let policy = Policy::default()
        .with_lease(Duration::from_secs(2))
        .with_on_busy(OnBusy::Wait(Duration::from_millis(50)));
    let store = others.block_on(semel::open_store("memory://"));
    let store = store.expect("a store");
    let open = |observed: bool| {
        let builder = Semel::builder().policy(policy.clone());
        let builder = match observed {
            true => builder.observer(Arc::clone(&telemetry) as _),
            false => builder,
        };
        builder.open_on(Arc::clone(&store))
    };
    let (begun, begins) = std::sync::mpsc::channel();
    let first = owner.block_on(open(false)).expect("a store");
    owner.spawn(async move {
        let operation = first.operation("charge");
        let call = operation.key("abandoned").payload(&5_u32);
        let effect = move |_| async move {
            begun.send(()).expect("a listener");
            std::future::pending::<Result<u32, std::io::Error>>().await
        };
        call.run(effect).await.map(drop)
    });
    begins.recv().expect("the effect begins");

    let semel = others.block_on(open(true)).expect("a store");
    assert!(!others.block_on(charge(&semel, "abandoned", 5)));
    owner.shutdown_background();
    let took_over = others.block_on(async {
        for _ in 0..200 {
            if charge(&semel, "abandoned", 5).await {
                return true;
            }
        }
        false
    });
    assert!(took_over);
    let page = telemetry.render();
    let value = |series: &str| {
        let line = page.lines().find(|line| line.starts_with(series));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<u32>().ok());
        value.unwrap_or_else(|| panic!("{series} is missing:\n{page}"))
    };
    assert!(value(r#"semel_busy_total{scope="charge",why="waited_too_long"}"#) >= 1);
    assert_eq!(
        value(r#"semel_claims_won_total{scope="charge",kind="takeover"}"#),
        1
    );
}
