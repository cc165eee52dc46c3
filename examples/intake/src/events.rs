//! What happened to a submission, replays included: `submission.replayed` names the event that it
//! repeats, and has a number.

use semel::{Event, Observer, Secret, Step};
use sqlx::PgPool;
use tokio::sync::mpsc;

/// The step under which a request is known to this application's tables.
pub(crate) const REQUEST: &str = "submission";

/// Hears of every step of every key; replays are passed on.
pub(crate) struct Replays(pub(crate) mpsc::Sender<Replay>);

/// A replay.
pub(crate) struct Replay {
    request: String,
    /// The first characters of the key: the whole key is nobody's to write down.
    key_prefix: String,
    /// The agent that sent it again.
    actor: Option<String>,
}

impl Observer for Replays {
    fn observe(&self, event: &Event<'_>) {
        if matches!(event.step, Step::Replayed { .. }) {
            // The same as `lease.derive_key(REQUEST)` of the request that is replayed.
            let request = event.identity.derive_key(&Secret::none(), REQUEST);
            // Never holds up an answer: what doesn't fit is left out, and an audit trail that
            // mustn't is `semel serve`'s.
            let key_prefix = event.hint.as_str().to_owned();
            let _ = self.0.try_send(Replay {
                request,
                key_prefix,
                actor: event.actor.map(str::to_owned),
            });
        }
    }

    fn wants_times(&self) -> bool {
        false
    }
}

/// Writes down what the observer passed on.
pub(crate) async fn write_replays(pool: PgPool, mut told: mpsc::Receiver<Replay>) {
    let note = "INSERT INTO submission_events (submission_id, type, request, key_prefix, actor, original_id, replay_number) \
                SELECT submission_id, 'submission.replayed', request, $2, $3, id, 1 + (SELECT count(*) FROM submission_events \
                WHERE request = $1 AND type = 'submission.replayed') FROM submission_events \
                WHERE request = $1 AND type <> 'submission.replayed'";
    while let Some(replay) = told.recv().await {
        let note = sqlx::query(note)
            .bind(&replay.request)
            .bind(&replay.key_prefix)
            .bind(&replay.actor);
        if let Err(error) = note.execute(&pool).await {
            eprintln!("a replay could not be written down: {error}");
        }
    }
}
