//! The handlers. None of them looks at keys: the layer does that.
//!
//! A submission and what happened to it are written in one transaction. Where the process vanishes
//! after that and before the record says so, the layer lets the next retry run: it finds the event
//! of the run before it, and changes nothing. An event that is older than keys are kept is none of
//! such a run: the key was forgotten, and makes a new submission.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use semel::http::{EffectOutcome, HandlerLease};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sqlx::types::Json as Sql;
use sqlx::{PgConnection, Row as _};

use crate::events::REQUEST;
use crate::{App, INTAKES, RETENTION};

type Fields = Map<String, Value>;
type Answer = Result<(StatusCode, Json<Value>), Refused>;

/// What a request asks for; which of the two depends on the call.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Ask {
    initial_fields: Fields,
    fields: Fields,
}

/// Why there is no answer.
pub(crate) enum Refused {
    Not(StatusCode, &'static str, String),
    Database,
}

impl From<sqlx::Error> for Refused {
    fn from(error: sqlx::Error) -> Self {
        eprintln!("database: {error}");
        Self::Database
    }
}

impl axum::response::IntoResponse for Refused {
    fn into_response(self) -> axum::response::Response {
        // A server error frees the key: the retry runs again.
        let (status, kind, message, retryable) = match self {
            Self::Not(status, kind, message) => (status, kind, message, false),
            Self::Database => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                (
                    status,
                    "unavailable",
                    "ask again with the same key".to_owned(),
                    true,
                )
            }
        };
        let error = json!({"type": kind, "message": message, "retryable": retryable});
        (status, Json(json!({"ok": false, "error": error}))).into_response()
    }
}

/// `createSubmission`.
pub(crate) async fn create(
    State(app): State<App>,
    Path(intake): Path<String>,
    lease: Option<HandlerLease>,
    Json(ask): Json<Ask>,
) -> Answer {
    required(&intake)?;
    let run = Run::begin(&app, lease.as_ref()).await?;
    run.once("submission.created", StatusCode::CREATED, async |tx| {
        insert(tx, &intake, &ask.initial_fields).await
    })
    .await
}

/// `setFields`.
pub(crate) async fn set_fields(
    State(app): State<App>,
    Path((intake, id)): Path<(String, String)>,
    lease: Option<HandlerLease>,
    Json(ask): Json<Ask>,
) -> Answer {
    let id = number(&id)?;
    let run = Run::begin(&app, lease.as_ref()).await?;
    run.once("submission.fields_set", StatusCode::OK, async |tx| {
        let set = "UPDATE submissions SET fields = fields || $3 WHERE id = $1 AND intake = $2 AND state = 'draft'";
        let set = sqlx::query(set).bind(id).bind(&intake).bind(Sql(&ask.fields));
        if set.execute(tx).await?.rows_affected() == 0 {
            return Err(gone("there is no such draft"));
        }
        Ok(id)
    })
    .await
}

/// `submit`. One that is refused because something is missing did nothing, and says so: its key is
/// free.
pub(crate) async fn submit(
    State(app): State<App>,
    Path((intake, id)): Path<(String, String)>,
    lease: Option<HandlerLease>,
) -> Answer {
    let id = number(&id)?;
    let run = Run::begin(&app, lease.as_ref()).await?;
    let done = run.once("submission.submitted", StatusCode::CREATED, async |tx| {
        finish(tx, &intake, id).await
    });
    free_if_refused(done.await, lease.as_ref())
}

/// A submission made, filled in and submitted by one request.
pub(crate) async fn all_at_once(
    State(app): State<App>,
    Path(intake): Path<String>,
    lease: Option<HandlerLease>,
    Json(ask): Json<Ask>,
) -> Answer {
    let run = Run::begin(&app, lease.as_ref()).await?;
    let done = run.once("submission.submitted", StatusCode::CREATED, async |tx| {
        let id = insert(tx, &intake, &ask.fields).await?;
        finish(tx, &intake, id).await
    });
    free_if_refused(done.await, lease.as_ref())
}

/// `getSubmission`: with everything that happened to it.
pub(crate) async fn look(
    State(app): State<App>,
    Path((intake, id)): Path<(String, String)>,
) -> Answer {
    let id = number(&id)?;
    let look = "SELECT state, fields FROM submissions WHERE id = $1 AND intake = $2";
    let found = sqlx::query(look).bind(id).bind(&intake);
    let Some(found) = found.fetch_optional(&app.pool).await? else {
        return Err(gone("there is no such submission"));
    };
    let events = "SELECT id, type, original_id, replay_number, key_prefix, \
                  to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), actor \
                  FROM submission_events WHERE submission_id = $1 ORDER BY id";
    let events = sqlx::query(events).bind(id).fetch_all(&app.pool).await?;
    let shown = |row: &sqlx::postgres::PgRow| {
        let mut event = json!({"eventId": format!("evt_{}", row.get::<i64, _>(0)), "submissionId": format!("sub_{id}"),
            "type": row.get::<String, _>(1), "timestamp": row.get::<String, _>(5)});
        if let Some(original) = row.get::<Option<i64>, _>(2) {
            let (number, prefix): (Option<i32>, Option<String>) = (row.get(3), row.get(4));
            event["payload"] = json!({"idempotencyKey": prefix.map(|prefix| prefix + "…"),
                "originalEventId": format!("evt_{original}"), "replayNumber": number});
        }
        if let Some(agent) = row.get::<Option<String>, _>(6) {
            event["actor"] = json!({"type": "agent", "id": agent});
        }
        event
    };
    let Sql(fields): Sql<Fields> = found.get(1);
    let events: Vec<Value> = events.iter().map(shown).collect();
    let document = json!({"ok": true, "submissionId": format!("sub_{id}"), "state": found.get::<String, _>(0), "fields": fields, "events": events});
    Ok((StatusCode::OK, Json(document)))
}

/// One run of one request: a transaction, and what the request is known by.
struct Run {
    transaction: sqlx::Transaction<'static, sqlx::Postgres>,
    request: Option<String>,
}

impl Run {
    async fn begin(app: &App, lease: Option<&HandlerLease>) -> Result<Self, Refused> {
        let request = lease.map(|lease| lease.derive_key(REQUEST));
        Ok(Self {
            transaction: app.pool.begin().await?,
            request,
        })
    }

    /// Makes the change and notes it; or finds that an earlier run of this request did.
    async fn once(
        mut self,
        event: &str,
        status: StatusCode,
        change: impl AsyncFnOnce(&mut PgConnection) -> Result<i64, Refused>,
    ) -> Answer {
        let before = "SELECT submission_id FROM submission_events WHERE request = $1 AND type = $2 \
                      AND at > now() - make_interval(secs => $3)";
        let before = sqlx::query_scalar(before)
            .bind(&self.request)
            .bind(event)
            .bind(RETENTION.as_secs_f64());
        let id = match before.fetch_optional(&mut *self.transaction).await? {
            Some(id) => id,
            None => {
                let id = change(&mut self.transaction).await?;
                let forget = "UPDATE submission_events SET request = NULL WHERE request = $1";
                let forget = sqlx::query(forget).bind(&self.request);
                forget.execute(&mut *self.transaction).await?;
                let note = "INSERT INTO submission_events (submission_id, type, request) VALUES ($1, $2, $3)";
                let note = sqlx::query(note).bind(id).bind(event).bind(&self.request);
                note.execute(&mut *self.transaction).await?;
                id
            }
        };
        let state = sqlx::query_scalar("SELECT state FROM submissions WHERE id = $1").bind(id);
        let state: String = state.fetch_one(&mut *self.transaction).await?;
        self.transaction.commit().await?;
        let answer = json!({"ok": true, "submissionId": format!("sub_{id}"), "state": state});
        Ok((status, Json(answer)))
    }
}

async fn insert(tx: &mut PgConnection, intake: &str, fields: &Fields) -> Result<i64, Refused> {
    required(intake)?;
    let insert = "INSERT INTO submissions (intake, fields) VALUES ($1, $2) RETURNING id";
    let insert = sqlx::query_scalar(insert).bind(intake).bind(Sql(fields));
    Ok(insert.fetch_one(tx).await?)
}

/// Submits, and leaves a webhook to be delivered.
async fn finish(tx: &mut PgConnection, intake: &str, id: i64) -> Result<i64, Refused> {
    let look = "SELECT fields FROM submissions WHERE id = $1 AND intake = $2 AND state = 'draft' FOR UPDATE";
    let found = sqlx::query_scalar(look).bind(id).bind(intake);
    let Some(Sql(fields)): Option<Sql<Fields>> = found.fetch_optional(&mut *tx).await? else {
        return Err(gone("there is no such draft"));
    };
    let missing: Vec<&str> = required(intake)?
        .iter()
        .copied()
        .filter(|name| !fields.contains_key(*name))
        .collect();
    if !missing.is_empty() {
        let message = format!("fields are missing: {}", missing.join(", "));
        return Err(Refused::Not(
            StatusCode::UNPROCESSABLE_ENTITY,
            "missing",
            message,
        ));
    }
    let change = sqlx::query("UPDATE submissions SET state = 'submitted' WHERE id = $1").bind(id);
    change.execute(&mut *tx).await?;
    let webhook = sqlx::query("INSERT INTO webhooks (submission_id) VALUES ($1)").bind(id);
    webhook.execute(tx).await?;
    Ok(id)
}

fn free_if_refused(answer: Answer, lease: Option<&HandlerLease>) -> Answer {
    if let (Err(Refused::Not(..)), Some(lease)) = (&answer, lease) {
        lease.mark(EffectOutcome::NoEffect);
    }
    answer
}

fn required(intake: &str) -> Result<&'static [&'static str], Refused> {
    let found = INTAKES.iter().find(|(name, _)| *name == intake);
    let found = found.map(|(_, fields)| *fields);
    found.ok_or_else(|| gone("there is no such intake"))
}

fn number(id: &str) -> Result<i64, Refused> {
    let number = id
        .strip_prefix("sub_")
        .and_then(|number| number.parse().ok());
    number.ok_or_else(|| gone("there is no such submission"))
}

fn gone(message: &str) -> Refused {
    Refused::Not(StatusCode::NOT_FOUND, "not_found", message.to_owned())
}
