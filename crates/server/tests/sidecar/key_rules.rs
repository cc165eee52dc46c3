//! Settings about keys, through a real sidecar: places, forms, ages, and what clients are told.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::any;
use semel_httpclient::uuid_v7;
use semel_server::config::{Sources, load};

use crate::support::*;

async fn start(settings: &str) -> (Runs, Sidecar) {
    let runs = Runs::default();
    let handler = |State(runs): State<Runs>| async move { runs.begin().to_string() };
    let routes = Router::new().fallback(any(handler));
    let upstream = service(routes.with_state(runs.clone())).await;
    (runs, Sidecar::new(upstream, settings).await)
}

fn now() -> u64 {
    semel::tokio_env().clock.wall().as_micros() / 1000
}

#[tokio::test]
async fn rules_are_announced_to_whoever_asks() {
    let settings = "[defaults]\nretention = \"2h\"\nannounce = true\nrequire_key = true\n";
    let (runs, sidecar) = start(settings).await;
    let options = sidecar
        .send(plain("OPTIONS", "/charges", Body::empty()))
        .await;
    assert_eq!(options.text(), "1", "the service answers");
    let rules = options.header("idempotency-key-rules").unwrap();
    assert!(
        rules.contains("name=\"Idempotency-Key\", required,"),
        "{rules}"
    );
    assert_eq!(options.header("idempotency-key-lifetime"), Some("PT2H"));
    let refused = sidecar.send(plain("POST", "/charges", "{}")).await;
    assert_eq!(refused.json()["keyRules"]["lifetime"], "PT2H");
    let charged = sidecar.send(post("/charges", "k-1", "{}")).await;
    assert_eq!(charged.header("idempotency-key-lifetime"), Some("PT2H"));
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn an_old_key_is_refused() {
    let (runs, sidecar) = start("[defaults]\nkey_age = \"24h\"\n").await;
    let day = 24 * 3_600_000;
    let old = sidecar.send(post("/charges", &uuid_v7(now() - day - 60_000, 1), "{}"));
    let told = (412, "idempotency_key_too_old".to_owned(), false);
    assert_eq!(old.await.problem_and_retry(), told);
    assert_eq!(runs.count(), 0);
    let young = uuid_v7(now() - day + 60_000, 1);
    for is_replay in [false, true] {
        let answer = sidecar.send(post("/charges", &young, "{}")).await;
        assert_eq!((answer.text(), answer.is_replay()), ("1", is_replay));
    }
}

/// AIP-155: `request_id` is a field of the request message, which HTTP has in the body or the
/// query.
#[tokio::test]
async fn request_id_is_read_from_the_body_or_the_query() {
    let settings = "[[routes]]\npath = \"/v1/books:batch\"\nkey_pointer = \"/request_id\"\n\
                    key_form = \"uuid\"\n\
                    [[routes]]\npath = \"/v1/books\"\nkey_query = \"requestId\"\n\
                    key_form = \"uuid\"\n";
    let (runs, sidecar) = start(settings).await;
    let id = "9b2b8b0e-79b0-4cc3-98c4-dc0c0c07398f";
    let json = |path: &str, body: String| {
        with(
            plain("POST", path, body),
            "content-type",
            "application/json",
        )
    };
    let message = format!("{{\"book\":{{}},\"request_id\":\"{id}\"}}");
    for is_replay in [false, true] {
        let answer = sidecar.send(json("/v1/books:batch", message.clone())).await;
        assert_eq!((answer.text(), answer.is_replay()), ("1", is_replay));
    }
    let path = format!("/v1/books?bookId=7&requestId={id}");
    for is_replay in [false, true] {
        let answer = sidecar.send(json(&path, "{}".to_owned())).await;
        assert_eq!((answer.text(), answer.is_replay()), ("2", is_replay));
    }
    let short = sidecar
        .send(json("/v1/books?requestId=7", "{}".to_owned()))
        .await;
    assert_eq!(short.problem(), (400, "idempotency_key_invalid".to_owned()));
    // Request ids are optional.
    assert_eq!(
        sidecar
            .send(json("/v1/books", "{}".to_owned()))
            .await
            .text(),
        "3"
    );
    assert_eq!(runs.count(), 3);
}

#[tokio::test]
async fn openapi_document_has_what_the_settings_say() {
    let (_, sidecar) = start(
        "[[routes]]\npath = \"/charges/{id}\"\nkey_header = \"x-order-id\"\nkey_age = \"1h\"\n",
    )
    .await;
    let sources = Sources {
        file: Some(sidecar.file),
        ..Sources::default()
    };
    let loaded = load(&sources).unwrap_or_else(|findings| panic!("{findings}"));
    let document = semel_server::key_openapi(&loaded.config).unwrap();
    let operation = &document["paths"]["/charges/{id}"]["patch"];
    assert_eq!(operation["parameters"][0]["name"], "X-Order-ID");
    assert_eq!(operation["x-idempotency-key"]["maxAge"], "PT1H");
    assert!(operation["responses"]["412"].is_object());
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let findings = |settings: &str| {
        let file = semel_testkit::private::new_folder("keys").join("semel.toml");
        let upstream = "store.url = \"memory://\"\nupstream.urls = [\"http://127.0.0.1:1\"]\n";
        std::fs::write(&file, format!("{upstream}[defaults]\n{settings}")).unwrap();
        let sources = Sources {
            file: Some(file),
            ..Sources::default()
        };
        load(&sources)
            .map(|_| ())
            .map_err(|found| found.to_string())
    };
    for (settings, part) in [
        (
            "key_header = \"x-a\"\nkey_query = \"a\"\n",
            "keep one of key_header and key_query",
        ),
        (
            "key_pointer = \"/a\"\nkey_field = \"a\"\n",
            "keep one of key_field and key_pointer",
        ),
        ("key_pointer = \"a\"\n", "JSON pointer"),
        (
            "key_age = \"1h\"\nkey_form = \"uuid\"\n",
            "their age can't be checked",
        ),
        ("key_age = \"1s\"\n", "write at least"),
        ("key_form = \"ulidd\"\n", "did you mean \"ulid\"?"),
    ] {
        let told = findings(settings).unwrap_err();
        assert!(told.contains(part), "{settings}: {told}");
    }
    for settings in [
        "key_age = \"1h\"\n",
        "key_age = \"1h\"\nkey_form = \"ulid\"\n",
        "profile = \"repeatable\"\nkey_age = \"5m\"\n",
        "profile = \"iceberg\"\nkey_age = \"30m\"\n",
    ] {
        assert_eq!(findings(settings), Ok(()), "{settings}");
    }
}
