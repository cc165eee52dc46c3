//! [`Rules`]: a checked [`Route`], as the layer uses it for each request.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::header::HeaderName;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request};
use semel_core::engine::Engine;
use semel_core::event::Step;
use semel_core::policy::{Mode, OnBusy, Policy};
use semel_core::{Clock, CrashPolicy, DataSubject, Key, KeyForm, KeyRules, Namespace};

use crate::announce::{self, KeyTerms};
use crate::credentials::{CountedCredential, CredentialRules};
use crate::error::BuildError;
use crate::hooks::AuthorizeReplay;
use crate::key::KeySource;
use crate::pattern::Pattern;
use crate::payload::{METHOD_OVERRIDES, Payload};
use crate::problem::Refusal;
use crate::profile::{Profile, ProfileTerms};
use crate::repeatable::{self, REPEATABILITY_FIRST_SENT, REPEATABILITY_REQUEST_ID};
use crate::route::{BodyLimits, KEPT_HEADERS, RequestVerifier, Route, TextExtractor, may_keep};
use crate::scope::ScopeTemplate;

/// The scope of routes without a name.
const SCOPE: &str = "http";

pub(crate) struct Rules {
    pub(crate) path: Option<Pattern>,
    pub(crate) terms: &'static ProfileTerms,
    pub(crate) policy: Arc<Policy>,
    pub(crate) methods: Vec<Method>,
    pub(crate) key: KeySource,
    pub(crate) requires_key: bool,
    pub(crate) key_age: Option<Duration>,
    /// What clients are told about keys.
    pub(crate) key_terms: KeyTerms,
    /// [`Self::key_terms`] as a header.
    pub(crate) key_header: Option<HeaderValue>,
    pub(crate) announces: bool,
    key_form: KeyForm,
    pub(crate) payload: Payload,
    pub(crate) keep: Vec<HeaderName>,
    pub(crate) keeps_body: bool,
    pub(crate) redact: Vec<Cow<'static, str>>,
    pub(crate) limits: BodyLimits,
    pub(crate) longest_ttl: Option<Duration>,
    pub(crate) streams: bool,
    pub(crate) replays_as_ok: bool,
    pub(crate) verify: Option<RequestVerifier>,
    pub(crate) replay_guard: Option<Arc<dyn AuthorizeReplay>>,
    pub(crate) extensions: http::Extensions,
    pub(crate) operation: Option<Arc<str>>,
    environment: String,
    scope: Option<String>,
    /// The scope of each request, if it takes parts of the path.
    scope_template: Option<ScopeTemplate>,
    /// The namespace, unless a request changes it; also used for reports.
    namespace: Namespace,
    multi_tenant: bool,
    tenant: Option<TextExtractor>,
    principal: Option<TextExtractor>,
    data_subject: Option<TextExtractor>,
    credentials: CredentialRules,
    ignores_credentials: bool,
}

impl Rules {
    pub(crate) fn make(
        route: Route,
        path: Option<Pattern>,
        environment: &str,
        base: &Policy,
        key_rules: &KeyRules,
    ) -> Result<Self, BuildError> {
        let name = path.as_ref().map_or("*", |path| &*path.text).to_owned();
        if route.multi_tenant && route.tenant.is_none() {
            return Err(BuildError::NoTenant { route: name });
        }
        let scope = route.scope.clone();
        let scope = scope.or_else(|| path.as_ref().map(|path| cut(&path.text).to_owned()));
        let scope_template = match &route.scope {
            Some(scope) => ScopeTemplate::parse(scope, path.as_ref())?,
            None => None,
        };
        let shown = scope.as_deref().unwrap_or(SCOPE);
        let namespace = Namespace::new(environment, "", shown);
        let namespace = namespace.map_err(|source| BuildError::Scope {
            route: name.clone(),
            source,
        })?;
        let terms = route.profile.terms();
        let mut policy = policy(&route, base);
        let key_age = route
            .key_age
            .or(terms.first_sent.then_some(policy.retention));
        if let Some(age) = key_age {
            policy.retention = policy.retention.max(age.saturating_add(TOLERANCE));
        }
        policy.terms().map_err(|source| BuildError::Policy {
            route: name.clone(),
            source,
        })?;
        let keep = kept(&route, &name)?;
        let methods = route.methods.clone();
        let methods = methods.unwrap_or_else(|| terms.methods.to_vec());
        let key_terms = key_terms(&route, &policy, key_rules, &methods, key_age);
        Ok(Self {
            path,
            terms,
            policy: Arc::new(policy),
            methods,
            key: key_source(&route),
            requires_key: key_terms.required,
            key_age,
            key_form: key_terms.form,
            key_header: key_terms.header(),
            key_terms,
            announces: route.announces.unwrap_or(terms.announces),
            payload: payload(route.payload, terms),
            keep,
            keeps_body: !route.drops_body,
            redact: pointers(&route.redact, &name)?,
            limits: route.limits,
            longest_ttl: route.longest_ttl,
            streams: route.streams,
            replays_as_ok: route.replays_as_ok || terms.replays_as_ok,
            verify: route.verify,
            replay_guard: route.replay_guard,
            extensions: route.extensions,
            operation: route.operation.map(Into::into),
            environment: environment.to_owned(),
            scope,
            scope_template,
            namespace,
            multi_tenant: route.multi_tenant,
            tenant: route.tenant,
            principal: route.principal,
            data_subject: route.data_subject,
            credentials: route.credentials,
            ignores_credentials: route.ignores_credentials,
        })
    }

    /// Whether the layer handles a request. Signatures are checked in every mode, because modes are
    /// about keys (P39).
    pub(crate) fn covers<B>(&self, request: &Request<B>) -> bool {
        let looks = self.policy.mode != Mode::Off || self.verify.is_some();
        looks && (self.methods.contains(request.method()) || self.is_overridden(request.headers()))
    }

    /// Whether a header overrides the method with a covered one, as some services allow.
    fn is_overridden(&self, headers: &HeaderMap) -> bool {
        METHOD_OVERRIDES.iter().any(|name| {
            let mut values = headers.get_all(name).iter();
            values.any(|value| {
                let value = value.as_bytes().trim_ascii();
                let mut methods = self.methods.iter();
                methods.any(|method| value.eq_ignore_ascii_case(method.as_str().as_bytes()))
            })
        })
    }

    /// Whether it may refuse requests.
    pub(crate) fn is_enforced(&self) -> bool {
        self.policy.mode == Mode::Enforce || self.verify.is_some()
    }

    /// Reports a step of a request without a usable key.
    pub(crate) fn report(&self, engine: &Engine, step: Step) {
        engine.report(&self.namespace, self.operation.as_deref(), step);
    }

    /// The authenticated caller, if the route knows it.
    pub(crate) fn principal(&self, parts: &Parts) -> Option<String> {
        self.principal.as_ref().and_then(|find| find(parts))
    }

    /// Whose data the response will have, if the request says so.
    pub(crate) fn data_subject(&self, parts: &Parts) -> Result<Option<DataSubject>, Refusal> {
        let name = self.data_subject.as_ref().and_then(|find| find(parts));
        name.map(|name| DataSubject::new(&name).map_err(Refusal::from))
            .transpose()
    }

    /// The namespace of the request's key.
    pub(crate) fn namespace(
        &self,
        parts: &Parts,
        principal: Option<&str>,
    ) -> Result<Namespace, Refusal> {
        let tenant = self.tenant.as_ref().and_then(|find| find(parts));
        if self.multi_tenant && tenant.as_ref().is_none_or(String::is_empty) {
            return Err(Refusal::TenantRequired);
        }
        let own: Option<Cow<'_, str>> = match (&self.scope_template, &self.scope) {
            (Some(template), _) => Some(template.fill(parts.uri.path())?.into()),
            (None, None) => matched_path(parts).map(Into::into),
            (None, Some(_)) => None,
        };
        if tenant.is_none() && principal.is_none() && own.is_none() {
            return Ok(self.namespace.clone());
        }
        let scope = own.as_deref().unwrap_or_else(|| self.namespace.scope());
        let tenant = tenant.unwrap_or_default();
        Ok(Namespace::with_principal(
            &self.environment,
            &tenant,
            cut(scope),
            principal.unwrap_or_default(),
        )?)
    }

    /// The credentials that count as payload, if no principal is known. `None` if there is a
    /// principal, or credentials are ignored.
    pub(crate) fn credentials<'a>(
        &'a self,
        namespace: &Namespace,
        parts: &'a Parts,
    ) -> Option<Vec<CountedCredential<'a>>> {
        let known = self.ignores_credentials || namespace.has_principal();
        (!known).then(|| self.credentials.counted(parts))
    }

    /// Checks the form and the age of a key (P52).
    pub(crate) fn check_key(
        &self,
        key: &Key,
        parts: &Parts,
        clock: &dyn Clock,
    ) -> Result<(), Refusal> {
        let form = self.key_form;
        if !form.fits(key) {
            return Err(Refusal::KeyForm { form });
        }
        let Some(age) = self.key_age else {
            return Ok(());
        };
        let made = match self.terms.first_sent {
            true => repeatable::first_sent(&parts.headers)?,
            false => key.created_at().ok_or(Refusal::KeyUntimed)?,
        };
        let now = clock.wall();
        if made.since(now) > TOLERANCE {
            Err(Refusal::KeyAhead)
        } else if now.since(made) > age {
            Err(Refusal::KeyTooOld)
        } else {
            Ok(())
        }
    }

    /// Whether a request says when it was first sent, which only requests with a key do.
    pub(crate) fn claims_first_sent(&self, headers: &HeaderMap) -> bool {
        self.terms.first_sent && headers.contains_key(REPEATABILITY_FIRST_SENT)
    }

    /// Whether clients are told about keys, and keys have an effect.
    pub(crate) fn is_announced(&self) -> bool {
        self.announces && self.policy.mode == Mode::Enforce
    }

    /// For how long a client may retry with the key of a request.
    pub(crate) fn lifetime(&self, policy: &Policy) -> Duration {
        announce::lifetime(policy, self.key_age)
    }

    /// Whether a request asks for the configuration of an Iceberg catalog, which announces the
    /// lifetime of keys.
    pub(crate) fn is_catalog_config<B>(&self, request: &Request<B>) -> bool {
        self.terms.profile == Profile::Iceberg
            && self.is_announced()
            && request.method() == Method::GET
            && request.uri().path().ends_with("/v1/config")
    }

    /// The policy for one request. Its caller may choose the retention if the route allows it.
    pub(crate) fn policy_for(&self, parts: &Parts) -> Result<Arc<Policy>, Refusal> {
        let wish = parts.headers.get(X_IDEMPOTENCY_TTL);
        let (Some(longest), Some(wish)) = (self.longest_ttl, wish) else {
            return Ok(Arc::clone(&self.policy));
        };
        let millis = HeaderValue::to_str(wish)
            .ok()
            .and_then(|text| text.parse().ok());
        let millis = millis.filter(|millis| *millis > 0).ok_or(Refusal::Ttl)?;
        let mut policy = Policy::clone(&self.policy);
        // At least the lease: a record must not expire while its owner runs. Nor while its key is
        // young enough (P52).
        let young = self.key_age.map(|age| age.saturating_add(TOLERANCE));
        let least = policy.lease.max(young.unwrap_or_default());
        policy.retention = Duration::from_millis(millis).min(longest).max(least);
        Ok(Arc::new(policy))
    }

    /// A line for the log at start. `alone` means that no route has a path.
    pub(crate) fn describe(&self, alone: bool) -> String {
        let others = if alone {
            "every path"
        } else {
            "every other path"
        };
        let methods: Vec<&str> = self.methods.iter().map(Method::as_str).collect();
        format!(
            "{}: {} with key in {:?} ({}), profile {}, {}{}",
            self.path.as_ref().map_or(others, |path| &*path.text),
            methods.join(", "),
            self.key,
            if self.requires_key {
                "required"
            } else {
                "optional"
            },
            self.terms.name,
            match self.policy.mode {
                Mode::Observe => "observed only",
                Mode::Off => "off",
                _ => "enforced",
            },
            match (
                self.policy.crash,
                self.principal.is_some() || self.ignores_credentials,
            ) {
                (CrashPolicy::Hold, true) => ", hold",
                (CrashPolicy::Hold, false) => ", hold, credentials count as payload",
                (CrashPolicy::Takeover, true) => "",
                (CrashPolicy::Takeover, false) => ", credentials count as payload",
            },
        )
    }
}

/// How far ahead the clock of a client may be (P52).
const TOLERANCE: Duration = Duration::from_secs(5 * 60);

/// The retention that a caller asks for, in milliseconds.
pub const X_IDEMPOTENCY_TTL: HeaderName = HeaderName::from_static("x-idempotency-ttl");

fn policy(route: &Route, base: &Policy) -> Policy {
    let mut policy = route.policy.clone().unwrap_or_else(|| {
        let mut policy = base.clone();
        if !route.profile.terms().waits {
            policy.on_busy = OnBusy::Refuse;
        }
        policy
    });
    policy.crash = route.crash.unwrap_or(policy.crash);
    policy.retention = route.retention.unwrap_or(policy.retention);
    policy.answer_retention = route.answer_retention.or(policy.answer_retention);
    policy.mode = route.mode.unwrap_or(policy.mode);
    policy
}

fn key_source(route: &Route) -> KeySource {
    match &route.key {
        KeySource::Header if route.profile.terms().first_sent => {
            KeySource::Named(REPEATABILITY_REQUEST_ID)
        }
        source => source.clone(),
    }
}

fn key_terms(
    route: &Route,
    policy: &Policy,
    rules: &KeyRules,
    methods: &[Method],
    age: Option<Duration>,
) -> KeyTerms {
    let terms = route.profile.terms();
    let (place, names) = KeyTerms::place(&key_source(route));
    KeyTerms {
        place,
        names,
        required: route.requires_key.unwrap_or(terms.requires_key),
        rules: rules.clone(),
        form: route.key_form.unwrap_or(terms.key_form),
        age,
        lifetime: announce::lifetime(policy, age),
        methods: methods.iter().map(ToString::to_string).collect(),
    }
}

/// A retry of a repeatable request has the same time as the first attempt.
fn payload(mut payload: Payload, terms: &ProfileTerms) -> Payload {
    if terms.first_sent {
        payload.headers.push(REPEATABILITY_FIRST_SENT);
    }
    payload
}

fn pointers(texts: &[String], name: &str) -> Result<Vec<Cow<'static, str>>, BuildError> {
    let pointer = |text: &String| match text.starts_with('/') {
        true => Ok(text.clone().into()),
        false => Err(BuildError::Pointer {
            route: name.to_owned(),
            pointer: text.clone(),
        }),
    };
    texts.iter().map(pointer).collect()
}

/// Headers that are about the exact bytes of a body.
const OF_BYTES: [&str; 3] = ["etag", "content-digest", "repr-digest"];

fn kept(route: &Route, name: &str) -> Result<Vec<HeaderName>, BuildError> {
    let mut keep = KEPT_HEADERS.to_vec();
    for text in &route.keep {
        match HeaderName::from_bytes(text.as_bytes()) {
            Ok(header) if may_keep(&header) => keep.push(header),
            _ => {
                return Err(BuildError::Header {
                    route: name.to_owned(),
                    header: text.clone(),
                });
            }
        }
    }
    let redacts = !route.redact.is_empty();
    keep.retain(|header| {
        let is_dropped = |name: &String| name.eq_ignore_ascii_case(header.as_str());
        let is_stale = redacts && OF_BYTES.contains(&header.as_str());
        !is_stale && !route.drop.iter().any(is_dropped)
    });
    Ok(keep)
}

/// Truncates a path to the maximum length of a scope. The fingerprint covers the whole path.
fn cut(text: &str) -> &str {
    let most = text.len().min(semel_core::namespace::MAX_PART_BYTES);
    let end = (0..=most).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

#[cfg(feature = "axum")]
fn matched_path(parts: &Parts) -> Option<&str> {
    let matched = parts.extensions.get::<axum::extract::MatchedPath>();
    matched.map(axum::extract::MatchedPath::as_str)
}

#[cfg(not(feature = "axum"))]
const fn matched_path(_: &Parts) -> Option<&str> {
    None
}
