//! A small payments API on PostgreSQL that is safe to retry, in three ways.
//!
//! | route | how | once means |
//! |---|---|---|
//! | `POST /charges` | the HTTP layer: no line in the handler | the provider is asked once, and recognises a second run by the derived key |
//! | `POST /refunds` | `operation(…).run(…)` in the handler | the same, for a part of a handler |
//! | `POST /transfers` | `operation(…).run_in(…)` | exactly once: the record is in the same transaction |

mod charges;
mod problem;
pub mod provider;
mod refunds;
mod transfers;

use axum::Router;
use axum::routing::{get, post};
use semel::Semel;
use sqlx::PgPool;

/// What every handler has.
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
        let semel = Semel::open(url).await?;
        let pool = PgPool::connect(url).await?;
        sqlx::raw_sql(include_str!("../tables.sql"))
            .execute(&pool)
            .await?;
        Ok(Self { semel, pool })
    }

    /// The routes.
    pub fn router(self) -> Router {
        // One line makes every POST under it safe to retry.
        let charges = Router::new()
            .route("/charges", post(charges::create))
            .layer(self.semel.http());
        Router::new()
            .merge(charges)
            .route("/refunds", post(refunds::create))
            .route("/transfers", post(transfers::create))
            .route("/accounts", get(transfers::accounts))
            .with_state(self)
    }
}
