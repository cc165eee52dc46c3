//! `POST /v1/contract/transition`: a contract changes its state once for a key, with one proof.
//!
//! The transition, its proof and the record of the key are one transaction. Whoever asks again with
//! the same key, for seven days and across restarts, gets the same answer with the same proof, and
//! nothing happens.

pub mod outbox;
mod transition;

use axum::Router;
use axum::routing::post;
use semel::Semel;
use sqlx::PgPool;

pub use transition::{SCOPE, TTL};

/// What the handler has.
#[derive(Clone)]
pub struct App {
    /// Makes things happen once.
    pub semel: Semel,
    /// The application's own tables, in the same database as Semel's.
    pub pool: PgPool,
}

impl App {
    /// Opens the database at `url`, and makes the tables.
    ///
    /// # Errors
    /// Where the database can't be used.
    pub async fn open(url: &str) -> anyhow::Result<Self> {
        // Expired records are swept every five minutes from now on.
        let semel = Semel::open(url).await?;
        let pool = PgPool::connect(url).await?;
        // One at a time: `IF NOT EXISTS` doesn't keep two from making the same.
        let mut transaction = pool.begin().await?;
        sqlx::raw_sql("SELECT pg_advisory_xact_lock(20261115)")
            .execute(&mut *transaction)
            .await?;
        sqlx::raw_sql(include_str!("../tables.sql"))
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(Self { semel, pool })
    }

    /// The routes.
    pub fn router(self) -> Router {
        Router::new()
            .route("/v1/contract/transition", post(transition::transition))
            .with_state(self)
    }
}
