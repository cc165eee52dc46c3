//! [`IdempotencyLayer`] and its [`Builder`].

use std::sync::Arc;

use semel_core::KeyRules;
use semel_core::engine::Engine;
use semel_core::policy::Policy;
use tower_layer::Layer;

use crate::error::BuildError;
use crate::pattern::Pattern;
use crate::reading::{Readings, readings, soften};
use crate::route::Route;
use crate::rules::Rules;
use crate::service::Idempotency;

/// The tower layer: requests with a key run once, and every caller gets the same answer.
///
/// Put it inside (after) whatever authenticates, and outside (before) whatever acts. Cheap to clone.
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
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) key_rules: KeyRules,
    pub(crate) documentation: Option<String>,
    routes: Vec<Arc<Rules>>,
    defaults: Arc<Rules>,
}

impl Shared {
    /// The rules for a path; several where services may read it in ways for which different rules hold.
    pub(crate) fn rules(&self, path: &str) -> Found<'_> {
        let exact = self.find(|pattern| pattern.matches(path));
        if self.routes.is_empty() {
            return Found::One(&self.defaults);
        }
        let soft = || {
            let path = soften(path);
            self.find(|pattern| pattern.matches_soft(&path))
        };
        let first = exact.or_else(soft).unwrap_or(&self.defaults);
        let mut found = vec![first];
        match readings(path) {
            Readings::Plain => {}
            Readings::TooLong => found.extend(self.routes.iter().chain([&self.defaults])),
            Readings::Odd(readings) => found.extend(readings.iter().map(|reading| {
                let rules = self.find(|pattern| pattern.matches_soft(reading));
                rules.unwrap_or(&self.defaults)
            })),
        }
        match found.iter().all(|rules| Arc::ptr_eq(rules, first)) {
            true => Found::One(first),
            false => Found::Several(found),
        }
    }

    /// The first route whose path fits.
    fn find(&self, fits: impl Fn(&Pattern) -> bool) -> Option<&Arc<Rules>> {
        let mut routes = self.routes.iter();
        routes.find(|rules| rules.path.as_ref().is_some_and(&fits))
    }
}

/// The rules that hold for a path.
pub(crate) enum Found<'a> {
    One(&'a Arc<Rules>),
    /// As it stands, and as it may be read otherwise.
    Several(Vec<&'a Arc<Rules>>),
}

impl IdempotencyLayer {
    /// A layer with default settings: POST and PATCH with an `Idempotency-Key`, as the IETF draft says.
    ///
    /// # Panics
    /// Never: the defaults are within every bound.
    #[must_use]
    pub fn new(engine: Engine) -> Self {
        let built = Self::builder(engine).build();
        built.expect("the defaults are within every bound")
    }

    /// Starts with default settings, to change some.
    pub fn builder(engine: Engine) -> Builder {
        Builder {
            engine,
            environment: String::new(),
            policy: Policy::default(),
            key_rules: KeyRules::default(),
            documentation: None,
            defaults: Route::new(),
            routes: Vec::new(),
        }
    }

    /// The engine behind it: [`Engine::idle`] is what a server waits for before it ends.
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
    type Service = Idempotency<S>;

    fn layer(&self, inner: S) -> Idempotency<S> {
        Idempotency::new(inner, Arc::clone(&self.shared))
    }
}

/// Settings of an [`IdempotencyLayer`].
#[must_use = "a builder does nothing until `build`"]
pub struct Builder {
    engine: Engine,
    environment: String,
    policy: Policy,
    key_rules: KeyRules,
    documentation: Option<String>,
    defaults: Route,
    routes: Vec<(String, Route)>,
}

impl Builder {
    /// The environment: keys of different ones never meet. Empty.
    pub fn environment(mut self, environment: &str) -> Self {
        environment.clone_into(&mut self.environment);
        self
    }

    /// The policy of routes that don't have their own.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// What a key may look like.
    pub fn key_rules(mut self, rules: KeyRules) -> Self {
        self.key_rules = rules;
        self
    }

    /// A page that explains the API's use of keys: problems link to it.
    pub fn documentation(mut self, page: &str) -> Self {
        self.documentation = Some(page.to_owned());
        self
    }

    /// How requests are treated that no route fits.
    pub fn defaults(mut self, route: Route) -> Self {
        self.defaults = route;
        self
    }

    /// How requests to `path` are treated. `{name}` stands for any one segment, `{*rest}` at the end for
    /// any number. The first that fits counts.
    pub fn route(mut self, path: &str, route: Route) -> Self {
        self.routes.push((path.to_owned(), route));
        self
    }

    /// Checks everything, and says in the log what is covered.
    ///
    /// # Errors
    /// [`BuildError`] says what is wrong and what to do.
    pub fn build(mut self) -> Result<IdempotencyLayer, BuildError> {
        let make = |route: Route, path| Rules::make(route, path, &self.environment, &self.policy);
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
        let shared = Shared {
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
