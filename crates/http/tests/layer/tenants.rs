//! Whose key it is: tenants, principals, credentials; and settings that are refused at start.

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::post as on_post;
use semel::Semel;
use semel::http::{BuildError, CredentialRules, Route};

use crate::support::*;

/// Answers with who asked, and which run it is.
fn whoami(runs: &Runs) -> Router {
    let runs = runs.clone();
    let handler = move |headers: HeaderMap| async move {
        let name = |header: &str| {
            let value = headers
                .get(header)
                .map(|value| value.to_str().unwrap_or(""));
            value.unwrap_or("").to_owned()
        };
        format!(
            "{}{} {}",
            name("x-who"),
            name("authorization"),
            runs.begin()
        )
    };
    Router::new().route("/", on_post(handler))
}

fn who(parts: &axum::http::request::Parts) -> Option<String> {
    Some(parts.headers.get("x-who")?.to_str().ok()?.to_owned())
}

#[tokio::test]
async fn tenants_and_principals_have_separate_keys() {
    let tenants = Route::new().multi_tenant().tenant(who);
    let principals = Route::new().principal(who);
    for route in [tenants, principals] {
        let runs = Runs::default();
        let rig = Rig::with(route, whoami(&runs)).await;
        let ask = |name: &'static str| rig.send(with(post("/", "k", "{}"), "x-who", name));
        assert_eq!(ask("acme").await.text(), "acme 1");
        assert_eq!(ask("globex").await.text(), "globex 2");
        let again = ask("acme").await;
        assert_eq!((again.text(), again.is_replay()), ("acme 1", true));
    }
}

#[tokio::test]
async fn multi_tenant_route_refuses_requests_without_a_tenant() {
    let runs = Runs::default();
    let rig = Rig::with(Route::new().multi_tenant().tenant(who), whoami(&runs)).await;
    for request in [
        post("/", "k", "{}"),
        with(post("/", "k", "{}"), "x-who", ""),
    ] {
        let answer = rig.send(request).await;
        assert_eq!(
            answer.problem(),
            (400, "idempotency_tenant_required".to_owned())
        );
    }
    let long = with(post("/", "k", "{}"), "x-who", &"x".repeat(200));
    assert_eq!(rig.send(long).await.problem().0, 400);
    assert_eq!(runs.begun(), 0);
}

#[tokio::test]
async fn other_credentials_are_refused_without_a_principal() {
    let runs = Runs::default();
    let rig = Rig::new(whoami(&runs)).await;
    let ask = |name: &'static str| rig.send(with(post("/", "k", "{}"), "authorization", name));
    assert_eq!(ask("alice").await.text(), "alice 1");
    assert_eq!(
        ask("bob").await.problem(),
        (422, "idempotency_conflict".to_owned())
    );
    assert!(ask("alice").await.is_replay());
}

#[tokio::test]
async fn other_credentials_are_refused_if_no_principal_is_found() {
    let runs = Runs::default();
    let rig = Rig::with(Route::new().principal(who), whoami(&runs)).await;
    let ask = |name: &'static str| rig.send(with(post("/", "k", "{}"), "x-api-key", name));
    assert_eq!(ask("alice").await.status, 200);
    assert_eq!(
        ask("bob").await.problem(),
        (422, "idempotency_conflict".to_owned())
    );
    assert!(ask("alice").await.is_replay());
    assert_eq!(runs.begun(), 1);
}

/// One of each kind of credential, with two values.
const CREDENTIALS: [(&str, &str, &str); 7] = [
    ("cookie", "sid=alice", "sid=mallory"),
    ("proxy-authorization", "Basic YQ==", "Basic Yg=="),
    ("apikey", "alice", "mallory"),
    ("x-auth-token", "alice", "mallory"),
    ("private-token", "alice", "mallory"),
    ("cf-access-jwt-assertion", "alice", "mallory"),
    ("x-forwarded-client-cert", "Hash=a", "Hash=b"),
];

#[tokio::test]
async fn every_credential_counts_without_a_principal() {
    for (name, ours, theirs) in CREDENTIALS {
        let runs = Runs::default();
        let rig = Rig::new(whoami(&runs)).await;
        let ask = |value: &'static str| rig.send(with(post("/", "k", "{}"), name, value));
        assert_eq!(ask(ours).await.status, 200, "{name}");
        let conflict = (422, "idempotency_conflict".to_owned());
        assert_eq!(ask(theirs).await.problem(), conflict, "{name}");
        assert_eq!(
            rig.send(post("/", "k", "{}")).await.problem(),
            conflict,
            "{name}"
        );
        assert!(ask(ours).await.is_replay(), "{name}");
        assert_eq!(
            runs.begun(),
            1,
            "a refreshed token runs nothing again: {name}"
        );
    }
}

#[tokio::test]
async fn only_named_cookies_count() {
    let runs = Runs::default();
    let route =
        Route::new().credentials(CredentialRules::default().with_cookies(vec!["sid".to_owned()]));
    let rig = Rig::with(route, whoami(&runs)).await;
    let ask = |value: &'static str| rig.send(with(post("/", "k", "{}"), "cookie", value));
    assert_eq!(ask("_ga=1; sid=alice").await.status, 200);
    assert!(ask("sid=alice; _ga=2").await.is_replay());
    assert_eq!(ask("sid=mallory; _ga=1").await.problem().0, 422);
}

/// Answers with this status and place, unless a cookie comes along.
fn sign_in(runs: &Runs, status: u16, place: &'static str) -> Router {
    let runs = runs.clone();
    let handler = move |headers: HeaderMap| async move {
        runs.begin();
        let status = match headers.contains_key("cookie") {
            true => 200,
            false => status,
        };
        let status = axum::http::StatusCode::from_u16(status).expect("a status");
        (status, [("location", place)])
    };
    Router::new().route("/", on_post(handler))
}

#[tokio::test]
async fn sign_in_response_is_not_stored_without_credentials() {
    for (status, place) in [(302, "/login?next=/"), (401, ""), (403, ""), (407, "")] {
        let runs = Runs::default();
        let rig = Rig::new(sign_in(&runs, status, place)).await;
        assert_eq!(rig.send(post("/", "k", "{}")).await.status, status);
        let signed_in = rig
            .send(with(post("/", "k", "{}"), "cookie", "sid=alice"))
            .await;
        assert_eq!(
            (signed_in.status.as_u16(), signed_in.is_replay()),
            (200, false)
        );
        assert_eq!(runs.begun(), 2, "{status}");
    }
}

#[tokio::test]
async fn other_responses_are_stored_without_credentials() {
    for (status, place) in [(200, ""), (302, "/orders/7"), (303, "/login"), (404, "")] {
        let runs = Runs::default();
        let rig = Rig::new(sign_in(&runs, status, place)).await;
        for replayed in [false, true] {
            let answer = rig.send(post("/", "k", "{}")).await;
            assert_eq!(
                (answer.status.as_u16(), answer.is_replay()),
                (status, replayed)
            );
        }
        assert_eq!(runs.begun(), 1, "{status}");
    }
}

#[tokio::test]
async fn a_principal_may_refresh_its_token_between_tries() {
    let runs = Runs::default();
    let rig = Rig::with(Route::new().principal(who), whoami(&runs)).await;
    for token in ["t1", "t2"] {
        let request = with(post("/", "k", "{}"), "x-who", "alice");
        rig.send(with(request, "authorization", token)).await;
    }
    assert_eq!(runs.begun(), 1);
}

#[tokio::test]
async fn wrong_settings_are_refused_at_start() {
    let semel = Semel::open("memory://").await.unwrap();
    let build = |route: Route| semel.http_builder().defaults(route).build().map(drop);
    let no_tenant = build(Route::new().multi_tenant());
    assert_eq!(
        no_tenant,
        Err(BuildError::NoTenant {
            route: "*".to_owned()
        })
    );
    for header in [
        "set-cookie",
        "Authorization",
        "connection",
        "date",
        "access-control-allow-origin",
        "no header",
    ] {
        assert!(
            matches!(
                build(Route::new().keep_header(header)),
                Err(BuildError::Header { .. })
            ),
            "{header}"
        );
    }
    assert!(matches!(
        build(Route::new().scope("")),
        Err(BuildError::Scope { .. })
    ));
    let short = Route::new().retention(std::time::Duration::from_secs(1));
    assert!(matches!(build(short), Err(BuildError::Policy { .. })));
    for scope in ["{intake}", "intake:{other}", "intake:{intake"] {
        let builder = semel.http_builder();
        let route = Route::new().scope(scope);
        let built = builder.route("/intakes/{intake}/submit", route).build();
        let error = built.map(drop).unwrap_err();
        let named = error.to_string().contains("/intakes/{intake}/submit");
        assert!(
            matches!(error, BuildError::ScopeParameter { .. }) && named,
            "{error}"
        );
    }
    let path = semel.http_builder().route("charges", Route::new()).build();
    assert_eq!(path.map(drop), Err(BuildError::Path("charges".to_owned())));
    let routed = semel
        .http_builder()
        .route("/charges", Route::new().multi_tenant())
        .build();
    let error = routed.map(drop).unwrap_err();
    assert!(
        error.to_string().contains(".tenant("),
        "it says what to do: {error}"
    );
}

#[tokio::test]
async fn routes_of_one_layer_have_separate_settings() {
    let semel = Semel::open("memory://").await.unwrap();
    let layer = semel
        .http_builder()
        .route("/strict/{id}", Route::new().require_key())
        .route("/off/{*rest}", Route::new().mode(semel::Mode::Off))
        .build()
        .unwrap();
    let runs = Runs::default();
    let counted = runs.clone();
    let handler = move || async move { counted.begin().to_string() };
    let router = Router::new().fallback(handler);
    let address = serve(router.layer(layer)).await;
    let ask = async |request| {
        Client::connect(address, Protocol::Http1)
            .await
            .send(request)
            .await
    };
    assert_eq!(
        ask(without_key(post("/strict/1", "", "{}"))).await.status,
        400
    );
    assert_eq!(ask(without_key(post("/else", "", "{}"))).await.text(), "1");
    assert_eq!(ask(post("/off/a/b", "k", "{}")).await.text(), "2");
    assert_eq!(ask(post("/off/a/b", "k", "{}")).await.text(), "3");
    assert_eq!(ask(post("/strict/1", "k", "{}")).await.text(), "4");
    assert!(ask(post("/strict/1", "k", "{}")).await.is_replay());
}
