//! [`Semel::http`]: the tower layer on this store.

use semel_http::{IdempotencyLayer, LayerBuilder};

use crate::open::Semel;

impl Semel {
    /// The tower layer with default settings: POST and PATCH with an `Idempotency-Key` run once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use axum::{Router, routing::post};
    ///
    /// let semel = semel::Semel::open("memory://").await?;
    /// let app: Router = Router::new()
    ///     .route("/charges", post(|| async { "charged" }))
    ///     .layer(semel.http());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Never: what it is made of was checked when the store was opened.
    #[must_use]
    pub fn http(&self) -> IdempotencyLayer {
        let built = self.http_builder().build();
        built.expect("environment and policy were checked when the store was opened")
    }

    /// The tower layer, to change some of its settings. Starts from this [`Semel`]'s environment,
    /// policy and key rules.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use semel::http::{Profile, Route};
    ///
    /// let semel = semel::Semel::open("memory://").await?;
    /// let layer = semel
    ///     .http_builder()
    ///     .defaults(Route::new().profile(Profile::Stripe))
    ///     .route("/charges/{id}/capture", Route::new().hold().require_key())
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn http_builder(&self) -> LayerBuilder {
        IdempotencyLayer::builder(self.engine().clone())
            .environment(&self.shared.environment)
            .policy((*self.shared.policy).clone())
            .key_rules(self.shared.key_rules.clone())
    }
}

/// The guide's examples, run as tests.
#[cfg(all(doctest, feature = "axum", feature = "webhook"))]
#[doc = include_str!("../../../docs/http.md")]
struct Guide;

/// The tutorial's program, compiled as a test.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../../docs/tutorials/axum.md")]
struct Tutorial;
