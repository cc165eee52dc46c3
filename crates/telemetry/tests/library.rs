//! What a program that uses the library sees of its calls.

use std::io::Write;
use std::sync::{Arc, Mutex};

use semel::Semel;
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

/// Otherwise the memory of a program that nobody scrapes would grow.
#[tokio::test(flavor = "current_thread")]
async fn durations_are_summed_up_without_a_reader() {
    let telemetry = Arc::new(Telemetry::new(&TelemetryConfig::new("memory")));
    let builder = Semel::builder().observer(Arc::clone(&telemetry) as _);
    let semel = builder.open("memory://").await.expect("a store");
    for _ in 0..20_000 {
        charge(&semel, "k", 5).await;
    }
    let page = telemetry.render();
    let count = page
        .lines()
        .find(|line| line.starts_with("semel_request_duration_seconds_count"));
    assert!(count.is_some(), "{page}");
}
