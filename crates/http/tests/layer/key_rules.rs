//! What clients are told about keys, and keys in other places and forms.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::routing::{get, options};

use semel::http::{KeySource, Profile, Route};
use semel::{KeyForm, Mode, Semel};

use crate::support::*;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn lifetime(answer: &Answer) -> Option<&str> {
    answer.header("idempotency-key-lifetime")
}

#[tokio::test]
async fn lifetime_is_announced_to_requests_with_a_key() {
    for protocol in BOTH {
        let route = Route::new().retention(DAY).announce(true);
        let rig = Rig::with(route, counting(&Runs::default())).await;
        let mut client = rig.client(protocol).await;
        for is_replay in [false, true] {
            let answer = client.send(post("/", "k", "{}")).await;
            assert_eq!(answer.is_replay(), is_replay);
            assert_eq!(lifetime(&answer), Some("PT24H"));
        }
        let conflict = client.send(post("/", "k", "[]")).await;
        assert_eq!(
            (conflict.problem().0, lifetime(&conflict)),
            (422, Some("PT24H"))
        );
        let plain = client.send(without_key(post("/", "", "{}"))).await;
        assert_eq!(lifetime(&plain), None);
    }
}

#[tokio::test]
async fn lifetime_is_as_long_as_a_retry_gets_the_response() {
    let hour = Duration::from_secs(3600);
    let announced = || Route::new().retention(DAY).announce(true);
    let told = async |route: Route, ttl: &str| {
        let rig = Rig::with(route, counting(&Runs::default())).await;
        let key = semel_httpclient::uuid_v7(now(), 1);
        let request = with(post("/", &key, "{}"), "x-idempotency-ttl", ttl);
        let answer = rig.send(request).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        lifetime(&answer).map(str::to_owned)
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        told(announced(), "60000").await,
        text("PT24H"),
        "no permission"
    );
    assert_eq!(
        told(announced().caller_ttl(hour), "60000").await,
        text("PT1M")
    );
    assert_eq!(
        told(announced().answer_retention(hour), "1").await,
        text("PT1H")
    );
    assert_eq!(told(announced().key_age(hour), "1").await, text("PT1H"));
    assert_eq!(told(announced().mode(Mode::Observe), "1").await, None);
    assert_eq!(told(Route::new().retention(DAY), "1").await, None);
}

#[tokio::test]
async fn options_tells_every_rule_and_keeps_the_services_answer() {
    let app = || {
        let answer = || async { (StatusCode::ACCEPTED, [("allow", "POST")], "mine") };
        Router::new().route("/", options(answer))
    };
    let ask = || {
        Request::options("/")
            .header("host", "test")
            .body(Body::empty())
    };
    let route = Route::new().retention(DAY).announce(true).require_key();
    let route = route.key_form(KeyForm::UuidV7).key_age(DAY);
    let rig = Rig::with(route, app()).await;
    let answer = rig.send(ask().unwrap()).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (202, "mine"));
    assert_eq!(answer.header("allow"), Some("POST"));
    assert_eq!(lifetime(&answer), Some("PT24H"));
    let rules = answer.header("idempotency-key-rules");
    let wanted = "in=header, name=\"Idempotency-Key\", required, form=uuidv7, max-length=255, \
                  characters=\"A-Z a-z 0-9 _ - . :\", lifetime=\"PT24H\", max-age=\"PT24H\", \
                  methods=(\"POST\" \"PATCH\")";
    assert_eq!(rules, Some(wanted));
    let silent = Rig::with(Route::new(), app())
        .await
        .send(ask().unwrap())
        .await;
    assert_eq!(lifetime(&silent), None);
    assert_eq!(silent.header("idempotency-key-rules"), None);
}

#[tokio::test]
async fn refusal_tells_every_rule() {
    let route = Route::new().require_key().retention(DAY);
    let rig = Rig::with(route, counting(&Runs::default())).await;
    for request in [without_key(post("/", "", "{}")), post("/", "a b", "{}")] {
        let answer = rig.send(request).await;
        assert_eq!(answer.problem().0, 400);
        let wanted = serde_json::json!({
            "in": "header",
            "name": "Idempotency-Key",
            "required": true,
            "form": "any",
            "maxLength": 255,
            "characters": "A-Z a-z 0-9 _ - . :",
            "lifetime": "PT24H",
        });
        assert_eq!(answer.json()["keyRules"], wanted);
    }
    rig.send(post("/", "k", "{}")).await;
    let conflict = rig.send(post("/", "k", "[]")).await;
    assert_eq!(conflict.json().get("keyRules"), None);
}

#[tokio::test]
async fn keys_of_another_form_are_refused() {
    const V4: &str = "9b2b8b0e-79b0-4cc3-98c4-dc0c0c07398f";
    const V7: &str = "017F22E2-79B0-7CC3-98C4-DC0C0C07398F";
    const ULID: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    for (form, good) in [
        (KeyForm::Any, &["k-1", V4, V7, ULID][..]),
        (KeyForm::Uuid, &[V4, V7]),
        (KeyForm::UuidV7, &[V7]),
        (KeyForm::Ulid, &[ULID]),
    ] {
        let runs = Runs::default();
        let rig = Rig::with(Route::new().key_form(form), counting(&runs)).await;
        for key in ["k-1", V4, V7, ULID] {
            let answer = rig.send(post("/", key, "{}")).await;
            if good.contains(&key) {
                assert_eq!(answer.status, 200, "{key}");
            } else {
                let told = (400, "idempotency_key_invalid".to_owned());
                assert_eq!(answer.problem(), told, "{key}");
                assert_eq!(answer.json()["keyRules"]["form"], form.name());
                assert!(!answer.text().contains(key));
            }
        }
        assert_eq!(runs.begun(), good.len());
    }
}

#[tokio::test]
async fn a_key_can_be_found_by_json_pointer() {
    let runs = Runs::default();
    let source = KeySource::pointer("/variables/idempotencyKey");
    let rig = Rig::with(Route::new().key(source), counting(&runs)).await;
    let ask = |body: &'static str| rig.send(without_key(post("/", "", body)));
    let first = r#"{"variables":{"idempotencyKey":"k","n":1}}"#;
    assert_eq!(ask(first).await.text(), "1");
    let spaced = r#"{ "variables" : {"n":1,"idempotencyKey":"k"}}"#;
    assert!(ask(spaced).await.is_replay());
    let other = ask(r#"{"variables":{"idempotencyKey":"k","n":2}}"#).await;
    assert_eq!(other.problem().0, 422);
    for body in [
        r#"{"idempotencyKey":"k"}"#,
        r#"{"variables":null}"#,
        r#"{"variables":{"idempotencyKey":null}}"#,
        "[]",
        "",
    ] {
        assert!(!ask(body).await.is_replay(), "{body}");
    }
    assert_eq!(runs.begun(), 6);
    for (body, code) in [
        (
            r#"{"variables":{"idempotencyKey":7}}"#,
            "idempotency_key_invalid",
        ),
        (
            r#"{"variables":{"idempotencyKey":""}}"#,
            "idempotency_key_invalid",
        ),
        (
            r#"{"variables":{"idempotencyKey":"a","idempotencyKey":"b"}}"#,
            "idempotency_payload_invalid",
        ),
        ("{", "idempotency_payload_invalid"),
    ] {
        assert_eq!(ask(body).await.problem(), (400, code.to_owned()), "{body}");
    }
    assert_eq!(runs.begun(), 6);
}

#[tokio::test]
async fn a_key_can_be_a_parameter_of_the_query() {
    let runs = Runs::default();
    let route = Route::new()
        .key(KeySource::query("requestId"))
        .require_key();
    let rig = Rig::with(route, counting(&runs)).await;
    let ask = |path: &'static str| rig.send(without_key(post(path, "", "{}")));
    assert_eq!(ask("/books?bookId=7&requestId=k").await.text(), "1");
    assert!(ask("/books?bookId=7&requestId=k").await.is_replay());
    assert_eq!(ask("/books?bookId=8&requestId=k").await.problem().0, 422);
    assert_eq!(ask("/books?requestId=k&requestId=l").await.problem().0, 400);
    let missing = ask("/books").await;
    assert_eq!(
        missing.problem(),
        (400, "idempotency_key_required".to_owned())
    );
    assert_eq!(missing.json()["keyRules"]["in"], "query");
    assert_eq!(missing.json()["keyRules"]["name"], "requestId");
    assert_eq!(runs.begun(), 1);
}

/// A catalog whose configuration says which encodings it was asked for.
fn catalog(config: &'static str) -> Router {
    let answer = move |headers: HeaderMap| async move {
        let asked = headers.contains_key("accept-encoding");
        let length = config.len().to_string();
        let sent = [
            ("content-type", "application/json".to_owned()),
            ("etag", "\"1\"".to_owned()),
            ("x-asked", asked.to_string()),
            ("content-length", length),
        ];
        (sent, config)
    };
    let routes = Router::new().route("/v1/config", get(answer));
    routes.route("/v1/namespaces", get(answer))
}

async fn read_config(profile: Profile, path: &str, config: &'static str) -> Answer {
    let route = Route::new().profile(profile).retention(DAY);
    let rig = Rig::with(route, catalog(config)).await;
    let ask = Request::get(path).header("host", "test");
    let ask = ask.header("accept-encoding", "gzip");
    rig.send(ask.body(Body::empty()).expect("a request")).await
}

#[tokio::test]
async fn configuration_of_an_iceberg_catalog_announces_the_lifetime() {
    const CONFIG: &str = r#"{"defaults":{"a":"b"},"overrides":{}}"#;
    let told = read_config(Profile::Iceberg, "/v1/config?warehouse=w", CONFIG).await;
    let wanted = serde_json::json!({
        "defaults": {"a": "b"}, "overrides": {}, "idempotency-key-lifetime": "PT24H"
    });
    assert_eq!(told.json(), wanted);
    assert_eq!(
        (told.header("x-asked"), told.header("etag")),
        (Some("false"), None)
    );
    for (profile, path, config) in [
        (Profile::Iceberg, "/v1/namespaces", CONFIG),
        (Profile::Ietf, "/v1/config", CONFIG),
        (
            Profile::Iceberg,
            "/v1/config",
            r#"{"idempotency-key-lifetime":"PT5M"}"#,
        ),
        (Profile::Iceberg, "/v1/config", "not json"),
    ] {
        let told = read_config(profile, path, config).await;
        assert_eq!((told.text(), told.header("etag")), (config, Some("\"1\"")));
    }
}

#[tokio::test]
async fn openapi_document_has_the_rules_of_each_route() {
    let semel = Semel::open("memory://").await.unwrap();
    let strict = Route::new()
        .profile(Profile::Iceberg)
        .require_key()
        .key_age(DAY);
    let layer = semel
        .http_builder()
        .route("/v1/{*rest}", strict)
        .route(
            "/graphql",
            Route::new().key(KeySource::pointer("/variables/key")),
        )
        .route("/free", Route::new().mode(Mode::Off))
        .build();
    let document = layer.unwrap().openapi();
    assert_eq!(document["openapi"], "3.1.0");
    let at = |pointer: &str| document.pointer(pointer).cloned().unwrap_or_default();
    let parameter = at("/paths/~1v1~1{rest}/delete/parameters/0");
    assert_eq!(parameter["name"], "Idempotency-Key");
    assert_eq!(parameter["required"], true);
    assert_eq!(parameter["schema"]["format"], "uuid");
    for status in ["400", "412", "422", "429", "503", "default"] {
        let response = at(&format!("/paths/~1v1~1{{rest}}/post/responses/{status}"));
        assert!(response["description"].is_string(), "{status}");
    }
    assert_eq!(at("/paths/~1v1~1{rest}/patch"), serde_json::Value::Null);
    let graphql = at("/paths/~1graphql/post");
    assert_eq!(graphql["parameters"], serde_json::Value::Null);
    assert_eq!(graphql["x-idempotency-key"]["name"], "/variables/key");
    assert_eq!(at("/paths/~1free"), serde_json::Value::Null);
    let shared = at("/components/parameters/IdempotencyKey");
    assert_eq!(
        (&shared["in"], &shared["required"]),
        (&"header".into(), &false.into())
    );
}
