//! What the layer says in the log when it is built.

use std::sync::Arc;

use parking_lot::Mutex;
use semel::http::{Profile, Route};
use semel::{Mode, Semel};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the messages.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Visit for Lines {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0.lock().push(format!("{value:?}"));
        }
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn log_names_the_covered_routes() {
    let semel = Semel::open("memory://").await.unwrap();
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let strict = Route::new()
            .profile(Profile::Acp)
            .hold()
            .ignore_credentials();
        let builder = semel.http_builder().route("/charges/{id}", strict);
        let watched = Route::new().mode(Mode::Observe);
        builder.defaults(watched).build().unwrap();
    });
    let said = lines.0.lock().clone();
    assert_eq!(
        said,
        [
            "idempotency layer covers /charges/{id}: POST, PATCH with key in header \
             Idempotency-Key (required), profile acp, enforced, hold",
            "idempotency layer covers every other path: POST, PATCH with key in header \
             Idempotency-Key (optional), profile ietf, observed only, credentials count as payload",
        ]
    );
}

#[tokio::test]
async fn log_says_every_path_is_covered_without_routes() {
    let semel = Semel::open("memory://").await.unwrap();
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || semel.http());
    let said = lines.0.lock().clone();
    assert_eq!(
        said,
        [
            "idempotency layer covers every path: POST, PATCH with key in header Idempotency-Key \
             (optional), profile ietf, enforced, credentials count as payload",
        ]
    );
}
