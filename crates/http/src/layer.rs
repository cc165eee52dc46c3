//! [`IdempotencyLayer`] and its [`LayerBuilder`].

use std::sync::Arc;

use semel_core::KeyRules;
use semel_core::engine::Engine;
use semel_core::policy::Policy;
use tower_layer::Layer;

use crate::error::BuildError;
use crate::openapi;
use crate::pattern::Pattern;
use crate::route::Route;
use crate::routing::LayerState;
use crate::rules::Rules;
use crate::service::IdempotencyService;

/// The tower layer: a request with a key runs once, and every caller gets the same response.
///
/// Put it inside of authentication and outside of the handler. Cloning is cheap.
///
/// ```
/// use semel_core::engine::Engine;
/// use semel_http::{IdempotencyLayer, Profile, Route};
///
/// # fn build(engine: Engine) -> Result<(), semel_http::BuildError> {
/// let by_default = IdempotencyLayer::new(engine.clone());
/// let chosen = IdempotencyLayer::builder(engine)
///     .defaults(Route::new().require_key())
///     .route("/charges/{id}/capture", Route::new().hold())
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct IdempotencyLayer {
    pub(crate) shared: Arc<LayerState>,
}

impl IdempotencyLayer {
    /// A layer with default settings: POST and PATCH with an `Idempotency-Key`, as the IETF draft
    /// says.
    ///
    /// # Panics
    /// Never: the defaults are within every bound.
    #[must_use]
    pub fn new(engine: Engine) -> Self {
        let built = Self::builder(engine).build();
        built.expect("the defaults are within every bound")
    }

    /// Starts with default settings.
    pub fn builder(engine: Engine) -> LayerBuilder {
        LayerBuilder {
            engine,
            environment: String::new(),
            policy: Policy::default(),
            key_rules: KeyRules::default(),
            documentation: None,
            defaults: Route::new(),
            routes: Vec::new(),
        }
    }

    /// An OpenAPI document of what the routes say about keys: parameters, problems and lifetimes.
    /// Merge it into the document of the API.
    #[must_use]
    pub fn openapi(&self) -> serde_json::Value {
        let routes = self.shared.routes.iter().map(|rules| &**rules);
        openapi::fragment(routes, &self.shared.defaults)
    }

    /// The engine. Before a server ends, it waits for [`Engine::idle`].
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
    }
}

impl std::fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IdempotencyLayer({:?})", self.shared.engine)
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> IdempotencyService<S> {
        IdempotencyService::new(inner, Arc::clone(&self.shared))
    }
}

/// What [`IdempotencyLayer::openapi`] gives, for routes without a layer.
///
/// # Errors
/// [`BuildError`] says what is wrong with a route.
pub fn key_openapi(
    key_rules: &KeyRules,
    defaults: Route,
    routes: impl IntoIterator<Item = (String, Route)>,
) -> Result<serde_json::Value, BuildError> {
    let base = Policy::default();
    let make = |route: Route, path| Rules::make(route, path, "", &base, key_rules);
    let mut made = Vec::new();
    for (path, route) in routes {
        made.push(make(route, Some(Pattern::new(&path)?))?);
    }
    Ok(openapi::fragment(made.iter(), &make(defaults, None)?))
}

/// Builds an [`IdempotencyLayer`].
#[must_use = "a builder does nothing until `build`"]
pub struct LayerBuilder {
    engine: Engine,
    environment: String,
    policy: Policy,
    key_rules: KeyRules,
    documentation: Option<String>,
    defaults: Route,
    routes: Vec<(String, Route)>,
}

impl LayerBuilder {
    /// Sets the environment. Each environment has its own keys. Empty by default.
    pub fn environment(mut self, environment: &str) -> Self {
        environment.clone_into(&mut self.environment);
        self
    }

    /// Sets the policy of routes without their own.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the syntax of keys.
    pub fn key_rules(mut self, rules: KeyRules) -> Self {
        self.key_rules = rules;
        self
    }

    /// Sets a page about the API's use of keys, which problems link to.
    pub fn documentation(mut self, page: &str) -> Self {
        self.documentation = Some(page.to_owned());
        self
    }

    /// Sets how requests outside of all routes are treated.
    pub fn defaults(mut self, route: Route) -> Self {
        self.defaults = route;
        self
    }

    /// Sets how requests to `path` are treated. `{name}` matches one segment, `{*rest}` at the end
    /// matches any number. The first matching route wins.
    pub fn route(mut self, path: &str, route: Route) -> Self {
        self.routes.push((path.to_owned(), route));
        self
    }

    /// Checks the settings, and logs what is covered.
    ///
    /// # Errors
    /// [`BuildError`] says what is wrong and how to fix it.
    pub fn build(mut self) -> Result<IdempotencyLayer, BuildError> {
        let make = |route: Route, path| {
            Rules::make(
                route,
                path,
                &self.environment,
                &self.policy,
                &self.key_rules,
            )
        };
        let mut routes = Vec::new();
        for (path, route) in std::mem::take(&mut self.routes) {
            routes.push(make(route, Some(Pattern::new(&path)?))?);
        }
        let defaults = make(std::mem::take(&mut self.defaults), None)?;
        let store = self.engine.store().capabilities().name;
        let alone = routes.is_empty();
        for rules in routes.iter().chain([&defaults]) {
            let covered = rules.describe(alone);
            tracing::info!(store, "idempotency layer covers {covered}");
        }
        let shared = LayerState {
            engine: self.engine,
            key_rules: self.key_rules,
            documentation: self.documentation,
            routes: routes.into_iter().map(Arc::new).collect(),
            defaults: Arc::new(defaults),
        };
        Ok(IdempotencyLayer {
            shared: Arc::new(shared),
        })
    }
}
