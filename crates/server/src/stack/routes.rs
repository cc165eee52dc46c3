//! Conversion of the settings to the routes, key rules and engine settings of the library.

use std::sync::Arc;

use http::Method;
use http::header::HeaderName;
use http::request::Parts;
use semel::KeyRules;
use semel::http::{BodyLimits, BuildError, CredentialRules, KeySource, Payload, Route};
use tokio::sync::Semaphore;

use crate::config::{self, Config, Limits as ProcessLimits, LostAnswer, RouteSettings};
use crate::identity::IdentityFinders;
use crate::proxy::{LostAnswerPolicy, RouteConcurrency, UpstreamClient};
use crate::replay_auth;

/// The rules for keys.
pub(crate) fn key_rules(config: &Config) -> KeyRules {
    KeyRules::default()
        .with_max_bytes(config.keys.max_bytes)
        .with_extra(config.keys.extra.clone())
}

fn credentials(config: &Config) -> CredentialRules {
    let names = config.credentials.headers.iter();
    CredentialRules::default()
        .with_headers(names.filter_map(|name| header_name(name)).collect())
        .with_cookies(config.credentials.cookies.clone())
}

/// What the routes say about keys, as an OpenAPI document.
///
/// # Errors
/// [`BuildError`] if a route is invalid.
pub fn key_openapi(config: &Config) -> Result<serde_json::Value, BuildError> {
    let entries = config.routes.iter();
    let routes = entries.map(|entry| (entry.path.clone(), key_route(&entry.settings)));
    semel::http::key_openapi(&key_rules(config), key_route(&config.defaults), routes)
}

/// The part of a route that is about keys.
fn key_route(settings: &RouteSettings) -> Route {
    let mut route = Route::new()
        .profile(settings.http_profile())
        .policy(settings.policy())
        .key(key_source(settings));
    if let Some(names) = &settings.methods {
        route = route.methods(methods(names));
    }
    if let Some(required) = settings.require_key {
        route = route.key_is_required(required);
    }
    if let Some(shape) = settings.key_form {
        route = route.key_form(shape.into());
    }
    if let Some(age) = settings.key_age {
        route = route.key_age(age.0);
    }
    if let Some(announces) = settings.announce {
        route = route.announce(announces);
    }
    if let Some(longest) = settings.caller_retention {
        route = route.caller_ttl(longest.0);
    }
    route
}

/// Builds a route of the idempotency layer.
pub(super) fn build_route(
    settings: &RouteSettings,
    finders: &IdentityFinders,
    client: &UpstreamClient,
    config: &Config,
) -> Route {
    let mut route = key_route(settings)
        .credentials(credentials(config))
        .payload(payload(&settings.fingerprint))
        .limits(
            BodyLimits::default()
                .with_request_bytes(settings.max_body.bytes())
                .with_request_time(settings.body_time.0)
                .with_gather_time(settings.gather_time.0),
        )
        .extension(LostAnswerPolicy {
            doubts: settings.lost_answer == LostAnswer::Doubt,
            observes: settings.mode == config::Mode::Observe,
        });
    if let Some(most) = settings.max_running {
        route = route.extension(RouteConcurrency(Arc::new(Semaphore::new(most))));
    }
    let url = settings.replay_auth_url.as_deref();
    if let Some(guard) = replay_auth::build(url, client) {
        route = route.authorize_replays(guard);
    }
    if let Some(scope) = &settings.scope {
        route = route.scope(scope);
    }
    if let Some(operation) = &settings.operation {
        route = route.operation(operation);
    }
    if settings.streams {
        route = route.streams();
    }
    route = route.keep_body(settings.keep_body);
    for name in &settings.drop_headers {
        route = route.drop_header(name);
    }
    for pointer in &settings.redact {
        route = route.redact(pointer);
    }
    for name in &settings.keep_headers {
        route = route.keep_header(name);
    }
    if let Some(tenant) = finders.tenant.clone().filter(|_| settings.has_tenants) {
        route = route.multi_tenant().tenant(move |parts| tenant(parts));
    }
    let subject = config.store.encryption.subject_header.as_deref();
    if let Some(name) = subject.and_then(header_name) {
        route = route.data_subject(move |parts| subject_of(parts, &name));
    }
    if let Some(principal) = finders.principal.clone() {
        route = route.principal(move |parts| principal(parts));
    }
    route
}

/// The value of the header. One that isn't text, or is there twice, is an empty one, which is
/// refused.
fn subject_of(parts: &Parts, name: &HeaderName) -> Option<String> {
    let mut values = parts.headers.get_all(name).iter();
    let first = values.next()?;
    let text = std::str::from_utf8(first.as_bytes()).unwrap_or_default();
    let is_alone = values.next().is_none();
    Some(if is_alone {
        text.to_owned()
    } else {
        String::new()
    })
}

fn methods(names: &[String]) -> Vec<Method> {
    let method = |name: &String| Method::from_bytes(name.as_bytes()).ok();
    names.iter().filter_map(method).collect()
}

fn header_name(text: &str) -> Option<HeaderName> {
    HeaderName::from_bytes(text.as_bytes()).ok()
}

fn key_source(settings: &RouteSettings) -> KeySource {
    let named = settings.key_header.as_deref().and_then(header_name);
    if let Some(field) = &settings.key_field {
        KeySource::field(field.clone())
    } else if let Some(pointer) = &settings.key_pointer {
        KeySource::pointer(pointer.clone())
    } else if let Some(name) = &settings.key_query {
        KeySource::query(name.clone())
    } else {
        named.map_or(KeySource::Header, KeySource::Named)
    }
}

fn payload(fingerprint: &config::Fingerprint) -> Payload {
    use semel::http::BodyComparison;
    let paths = |paths: &[String]| paths.iter().cloned().map(Into::into).collect();
    Payload::default()
        .with_method(fingerprint.method)
        .with_authority(fingerprint.authority)
        .with_path(fingerprint.path)
        .with_query(fingerprint.query)
        .with_content_type(fingerprint.content_type)
        .with_headers(
            fingerprint
                .headers
                .iter()
                .filter_map(|name| header_name(name))
                .collect(),
        )
        .with_body(match fingerprint.body {
            config::Compare::Nothing => BodyComparison::Nothing,
            config::Compare::Bytes => BodyComparison::Bytes,
            config::Compare::Meaning if !fingerprint.include.is_empty() => {
                BodyComparison::Only(paths(&fingerprint.include))
            }
            config::Compare::Meaning if !fingerprint.exclude.is_empty() => {
                BodyComparison::Except(paths(&fingerprint.exclude))
            }
            config::Compare::Meaning => BodyComparison::Meaning,
        })
}

/// The settings of the engine.
pub(crate) fn engine_config(config: &Config) -> semel::EngineConfig {
    let (engine, limits) = (&config.engine, &config.limits);
    semel::EngineConfig::default()
        .with_max_waiters(limits.waiting)
        .with_max_waiters_per_tenant(ProcessLimits::compute_share(
            limits.tenant_share,
            limits.waiting,
        ))
        .with_call_limit(engine.store_timeout.0)
        .with_breaker(
            semel::BreakerConfig::default()
                .with_failures(engine.breaker_failures)
                .with_first_try(engine.breaker_first_try.0)
                .with_open_for(engine.breaker_open_for.0),
        )
        .with_cache(
            semel::CacheConfig::default()
                .with_max_bytes(engine.cache_size.0)
                .with_max_age(engine.cache_age.0),
        )
}
