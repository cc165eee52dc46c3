//! Scopes that take parts of the path.

use axum::Router;
use semel::Semel;
use semel::http::Route;

use crate::support::*;

/// A service that acts on every path; keys belong to the intake in it.
async fn intakes(runs: &Runs) -> std::net::SocketAddr {
    let semel = Semel::open("memory://").await.expect("a store");
    let own = |route: Route| route.scope("intake:closed").mode(semel::Mode::Off);
    let layer = semel
        .http_builder()
        .route("/intakes/closed/{*rest}", own(Route::new()))
        .route(
            "/intakes/{intake}/{*rest}",
            Route::new().scope("intake:{intake}"),
        )
        .build()
        .expect("a layer");
    let runs = runs.clone();
    let handler = move || async move { runs.begin().to_string() };
    serve(Router::new().fallback(handler).layer(layer)).await
}

#[tokio::test]
async fn scope_from_the_path_separates_keys() {
    let runs = Runs::default();
    let address = intakes(&runs).await;
    let ask = async |path: &str| {
        let mut client = Client::connect(address, Protocol::Http1).await;
        client.send(post(path, "k", "{}")).await
    };
    assert_eq!(ask("/intakes/a/submit").await.text(), "1");
    assert_eq!(ask("/intakes/b/submit").await.text(), "2");
    for (path, first) in [("/intakes/a/submit", "1"), ("/intakes/b/submit", "2")] {
        let again = ask(path).await;
        assert_eq!((again.text(), again.is_replay()), (first, true));
    }
    // Within an intake a key is one key, also for another operation, and for another form of the
    // path.
    for path in ["/intakes/a/fields", "/Intakes/%61/submit"] {
        assert_eq!(
            ask(path).await.problem(),
            (422, "idempotency_conflict".to_owned()),
            "{path}"
        );
    }
    // An intake with a route of its own has settings of its own.
    assert_eq!(ask("/intakes/closed/submit").await.text(), "3");
    assert_eq!(ask("/intakes/closed/submit").await.text(), "4");
    assert_eq!(runs.begun(), 4);
}

#[tokio::test]
async fn part_of_the_path_that_can_not_be_a_scope_is_refused() {
    let runs = Runs::default();
    let address = intakes(&runs).await;
    let ask = async |request| {
        let mut client = Client::connect(address, Protocol::Http1).await;
        client.send(request).await
    };
    let long = format!("/intakes/{}/submit", "a".repeat(65));
    for (path, code) in [
        (long.as_str(), "request_invalid"),
        ("/intakes/a%20b/submit", "request_invalid"),
        ("/intakes/caf%C3%A9/submit", "request_invalid"),
        ("/intakes/a;v=1/submit", "idempotency_path_ambiguous"),
        ("/intakes/a%2Fb/submit", "idempotency_path_ambiguous"),
    ] {
        let refused = ask(post(path, "k", "{}")).await.problem();
        assert_eq!(refused, (400, code.to_owned()), "{path}");
    }
    assert_eq!(runs.begun(), 0);
    // Without a key there is nothing to separate.
    let answer = ask(without_key(post(&long, "", "{}"))).await;
    assert_eq!(answer.text(), "1");
}
