//! An intake form API that agents fill in, and retry: each request with a key happens once.
//!
//! | call | route |
//! |---|---|
//! | `createSubmission` | `POST /api/intakes/{intakeId}/submissions` |
//! | `setFields` | `PATCH /api/intakes/{intakeId}/submissions/{submissionId}/fields` |
//! | `submit` | `POST /api/intakes/{intakeId}/submissions/{submissionId}/submit` |
//! | all three at once | `POST /api/intakes/{intakeId}/submit` |
//! | `getSubmission` | `GET /api/intakes/{intakeId}/submissions/{submissionId}`: reading needs no key |

mod events;
mod submissions;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::{get, patch, post};
use semel::Semel;
use semel::http::{IdempotencyLayer, Profile, Route};
use semel_telemetry::{Telemetry, TelemetryConfig};
use sqlx::PgPool;
use tokio::sync::mpsc;

/// What can be filled in: a name, and the fields without which it can't be submitted.
pub const INTAKES: &[(&str, &[&str])] = &[
    ("vendor-onboarding", &["companyName", "taxId"]),
    ("access-request", &["system"]),
];

/// How long a key is kept. After that the same key makes a new submission.
pub const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// What every handler has.
#[derive(Clone)]
pub struct App {
    /// Makes things happen once.
    pub semel: Semel,
    /// The application's own tables, in the same database as Semel's.
    pub pool: PgPool,
    /// Counts and logs what happens to keys.
    pub telemetry: Arc<Telemetry>,
}

impl App {
    /// Opens the database at `url`, and makes the tables.
    ///
    /// # Errors
    /// Where the database can't be used.
    pub async fn open(url: &str) -> anyhow::Result<Self> {
        let pool = PgPool::connect(url).await?;
        // Replays are told to whoever reads the events of a submission.
        let (replays, told) = mpsc::channel(1024);
        let observer = Arc::new(events::Replays(replays));
        // Before the application's own tables: Semel's are in the schema `semel`, and for a user of
        // that name it is where tables without a schema are.
        let telemetry = Arc::new(Telemetry::new(&TelemetryConfig::new("postgres")));
        let builder = Semel::builder().observer(observer);
        let semel = builder.observer(telemetry.clone()).open(url).await?;
        // One at a time: `IF NOT EXISTS` doesn't keep two from making the same.
        let mut transaction = pool.begin().await?;
        sqlx::raw_sql("SELECT pg_advisory_xact_lock(20261116)")
            .execute(&mut *transaction)
            .await?;
        sqlx::raw_sql(include_str!("../tables.sql"))
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        tokio::spawn(events::write_replays(pool.clone(), told));
        Ok(Self {
            semel,
            pool,
            telemetry,
        })
    }

    /// The routes.
    ///
    /// # Errors
    /// Where a path or a scope can't be used.
    pub fn router(self) -> anyhow::Result<Router> {
        let layer = layer(&self.semel)?;
        Ok(Router::new()
            .route(
                "/api/intakes/{intake}/submit",
                post(submissions::all_at_once),
            )
            .route(
                "/api/intakes/{intake}/submissions",
                post(submissions::create),
            )
            .route(
                "/api/intakes/{intake}/submissions/{id}/fields",
                patch(submissions::set_fields),
            )
            .route(
                "/api/intakes/{intake}/submissions/{id}/submit",
                post(submissions::submit),
            )
            .layer(layer)
            .route(
                "/api/intakes/{intake}/submissions/{id}",
                get(submissions::look),
            )
            .route("/metrics", get(metrics))
            .with_state(self))
    }
}

/// The metrics for Prometheus: those of `semel serve` that the engine's events give.
async fn metrics(State(app): State<App>) -> String {
    app.telemetry.render()
}

/// The header in which an authenticating proxy names the agent.
pub const AGENT: &str = "x-agent";

fn agent(parts: &axum::http::request::Parts) -> Option<String> {
    Some(parts.headers.get(AGENT)?.to_str().ok()?.to_owned())
}

/// Keys live in their intake, and belong to an agent: the same key in two of them is two keys.
fn layer(semel: &Semel) -> anyhow::Result<IdempotencyLayer> {
    let profile = Route::new().profile(Profile::Intake).retention(RETENTION);
    let profile = profile.principal(agent);
    let of_an_intake = profile.clone().scope("intake:{intake}");
    let builder = semel.http_builder().defaults(profile);
    let builder = builder.route("/api/intakes/{intake}/{*rest}", of_an_intake);
    Ok(builder.build()?)
}
