//! Forwarding: what the service receives, and what the client gets.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, post as on_post};

use crate::support::*;

/// A service that returns the request head as JSON.
async fn head(request: Request) -> String {
    let mut found = serde_json::Map::new();
    for (name, value) in request.headers() {
        let text = value.to_str().unwrap_or("?");
        let before = found
            .get(name.as_str())
            .and_then(|value| value.as_str())
            .map(|before| format!("{before}|"));
        found.insert(
            name.to_string(),
            format!("{}{text}", before.unwrap_or_default()).into(),
        );
    }
    found.insert(":uri".to_owned(), request.uri().to_string().into());
    serde_json::Value::Object(found).to_string()
}

fn counting(runs: &Runs) -> Router {
    let runs = runs.clone();
    let handler = move |body: Bytes| async move {
        let run = runs.begin();
        let headers = [
            ("location", format!("/charges/{run}")),
            ("x-other", "not kept".to_owned()),
        ];
        (
            StatusCode::CREATED,
            headers,
            format!("{{\"charge\":{run},\"bytes\":{}}}", body.len()),
        )
    };
    Router::new()
        .route("/charges", on_post(handler))
        .fallback(any(head))
}

async fn a_duplicate_is_a_replay(store: &str) {
    for protocol in BOTH {
        let runs = Runs::default();
        let upstream = service(counting(&runs)).await;
        let sidecar = Sidecar::on(store, &format!("http://{upstream}"), "").await;
        let mut client = sidecar.client(protocol).await;
        let key = format!("k-{}-{protocol:?}", sidecar.address.port());
        let key = format!("{key}-{}", std::process::id());
        let first = client.send(post("/charges", &key, "{\"cents\":100}")).await;
        assert_eq!(
            (first.status, first.text()),
            (StatusCode::CREATED, "{\"charge\":1,\"bytes\":13}")
        );
        assert!(!first.is_replay());
        let again = client
            .send(post("/charges", &key, "{ \"cents\": 100 }"))
            .await;
        assert!(again.is_replay(), "{again:?}");
        assert_eq!(
            (again.status, &again.body),
            (first.status, &first.body),
            "byte for byte"
        );
        for name in ["location", "content-type"] {
            assert_eq!(again.header(name), first.header(name));
        }
        let other = client.send(post("/charges", &key, "{\"cents\":999}")).await;
        assert_eq!(
            other.problem_and_retry(),
            (422, "idempotency_conflict".to_owned(), false)
        );
        assert_eq!(runs.count(), 1, "{protocol:?}");
    }
}

#[tokio::test]
async fn duplicate_is_replayed_from_memory() {
    a_duplicate_is_a_replay("memory://").await;
}

#[tokio::test]
#[ignore = "needs servers"]
async fn duplicate_is_replayed_from_redis() {
    let url = std::env::var("SEMEL_TEST_REDIS_URL")
        .expect("SEMEL_TEST_REDIS_URL: see `cargo xtask services up`");
    a_duplicate_is_a_replay(&url).await;
}

#[tokio::test]
#[ignore = "needs servers"]
async fn second_sidecar_on_the_same_store_replays() {
    let url = std::env::var("SEMEL_TEST_REDIS_URL")
        .expect("SEMEL_TEST_REDIS_URL: see `cargo xtask services up`");
    let runs = Runs::default();
    let upstream = service(counting(&runs)).await;
    let upstream = format!("http://{upstream}");
    let one = Sidecar::on(&url, &upstream, "").await;
    let two = Sidecar::on(&url, &upstream, "").await;
    let key = format!("two-{}-{}", std::process::id(), one.address.port());
    let first = one.send(post("/charges", &key, "{}")).await;
    let again = two.send(post("/charges", &key, "{}")).await;
    assert_eq!((first.status, &first.body), (again.status, &again.body));
    assert!(again.is_replay());
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn service_gets_lease_and_forwarding_headers() {
    let upstream = service(counting(&Runs::default())).await;
    let sidecar = Sidecar::new(upstream, "").await;
    for protocol in BOTH {
        let mut client = sidecar.client(protocol).await;
        let mut request = post("/echo?a=1", &format!("\"key-{protocol:?}\""), "{}");
        for (name, value) in [
            ("semel-fence", "1"),
            ("semel-attempt", "99"),
            ("semel-downstream-key", "forged"),
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-proto", "gopher"),
            ("x-forwarded-host", "evil.test"),
            ("accept", "text/plain"),
        ] {
            request = with(request, name, value);
        }
        let sent = client.send(request).await.json();
        assert_eq!(sent[":uri"], "/echo?a=1");
        assert_eq!(
            sent["idempotency-key"],
            format!("\"key-{protocol:?}\""),
            "as the client sent it"
        );
        assert_eq!(sent["semel-attempt"], "1");
        let fence: u64 = sent["semel-fence"].as_str().unwrap().parse().unwrap();
        assert!(fence > 1);
        let downstream = sent["semel-downstream-key"].as_str().unwrap();
        assert!(downstream.len() >= 32 && downstream != "forged");
        assert_eq!(sent["x-forwarded-for"], "127.0.0.1");
        assert_eq!(sent["x-forwarded-proto"], "http");
        assert_eq!(sent["x-forwarded-host"], "shop.test");
        assert_eq!(sent["host"], "shop.test");
        assert_eq!(sent["accept"], "text/plain");
        let via = if protocol == Protocol::Http1 {
            "1.1 semel"
        } else {
            "2 semel"
        };
        assert_eq!(sent["via"], via);
    }
}

#[tokio::test]
async fn trusted_forwarding_headers_are_extended() {
    let upstream = service(counting(&Runs::default())).await;
    let sidecar = Sidecar::new(
        upstream,
        "listener.trust_forwarded = true\nupstream.host = \"upstream\"\n",
    )
    .await;
    let request = with(plain("GET", "/echo", ""), "x-forwarded-for", "10.0.0.1");
    let sent = sidecar
        .send(with(request, "x-forwarded-proto", "https"))
        .await
        .json();
    assert_eq!(sent["x-forwarded-for"], "10.0.0.1, 127.0.0.1");
    assert_eq!(sent["x-forwarded-proto"], "https");
    assert_eq!(sent["host"], upstream.to_string());
    assert_eq!(sent.get("semel-fence"), None, "no key, no lease");
}

#[tokio::test]
async fn hop_by_hop_headers_are_not_forwarded() {
    async fn echo(headers: HeaderMap) -> Response {
        let seen: Vec<&str> = headers.keys().map(|name| name.as_str()).collect();
        let answer = [
            ("connection", "x-inner"),
            ("x-inner", "1"),
            ("keep-alive", "timeout=5"),
            ("x-outer", "1"),
        ];
        (answer, seen.join(",")).into_response()
    }
    let upstream = service(Router::new().fallback(any(echo))).await;
    let sidecar = Sidecar::new(upstream, "").await;
    let mut raw = sidecar.raw().await;
    raw.try_write(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, X-Mine\r\nX-Mine: 1\r\nKeep-Alive: \
         1\r\nTE: gzip\r\nProxy-Authorization: b\r\nX-Yours: 1\r\n\r\n",
    )
    .await;
    let all = raw.rest().await.to_ascii_lowercase();
    let (head, seen) = all.split_once("\r\n\r\n").unwrap();
    for gone in ["x-mine", "keep-alive", "te", "proxy-authorization"] {
        assert!(
            !seen.split(',').any(|name| name.trim() == gone),
            "{gone} in {seen}"
        );
    }
    assert!(seen.contains("x-yours"), "{seen}");
    assert!(
        !head.contains("x-inner") && !head.contains("keep-alive"),
        "{head}"
    );
    assert!(
        head.contains("x-outer: 1") && head.contains("via: 1.1 semel"),
        "{head}"
    );
}

#[tokio::test]
async fn bodies_without_a_key_are_streamed() {
    // The service streams its response before it has the complete request.
    let echo = |request: Request| async { Response::new(request.into_body()) };
    let upstream = service(Router::new().fallback(any(echo))).await;
    let sidecar = Sidecar::new(upstream, "").await;
    for protocol in BOTH {
        let (sender, pieces) = tokio::sync::mpsc::channel::<Bytes>(1);
        let stream = futures_util::stream::unfold(pieces, |mut pieces| async {
            let piece = pieces.recv().await?;
            Some((Ok::<_, std::io::Error>(piece), pieces))
        });
        let mut client = sidecar.client(protocol).await;
        sender.send("first".into()).await.unwrap();
        let response = client
            .begin(plain("POST", "/", Body::from_stream(stream)))
            .await;
        let mut body = response.into_body();
        let next = async |body: &mut hyper::body::Incoming| {
            use http_body_util::BodyExt as _;
            body.frame()
                .await
                .map(|frame| frame.unwrap().into_data().unwrap())
        };
        assert_eq!(next(&mut body).await.unwrap(), "first", "{protocol:?}");
        sender.send("second".into()).await.unwrap();
        assert_eq!(next(&mut body).await.unwrap(), "second");
        drop(sender);
        let end = next(&mut body).await;
        assert!(end.is_none_or(|last| last.is_empty()), "{protocol:?}");
    }
}

#[tokio::test]
async fn empty_and_present_bodies_stay_distinct() {
    async fn told(request: Request) -> String {
        let framed = ["content-length", "transfer-encoding"]
            .map(|name| request.headers().contains_key(name));
        let body = axum::body::to_bytes(request.into_body(), 100)
            .await
            .unwrap();
        format!("{framed:?} {}", String::from_utf8_lossy(&body))
    }
    let upstream = service(Router::new().fallback(any(told))).await;
    let sidecar = Sidecar::new(upstream, "").await;
    for protocol in BOTH {
        let mut client = sidecar.client(protocol).await;
        for method in ["DELETE", "OPTIONS", "GET"] {
            let answer = client.send(plain(method, "/", Body::empty())).await;
            // A length of 0 means no body; chunked would mean a body.
            let is_none = answer.text().ends_with(", false] ");
            assert!(is_none, "{protocol:?} {method}: {}", answer.text());
        }
        for method in ["POST", "GET", "DELETE"] {
            let answer = client.send(plain(method, "/", "known")).await;
            assert_eq!(
                answer.text(),
                "[true, false] known",
                "{protocol:?} {method}"
            );
            let mut request = plain(method, "/", unsized_body("unknown"));
            if protocol == Protocol::Http1 {
                request = with(request, "transfer-encoding", "chunked");
            }
            let answer = client.send(request).await;
            assert_eq!(
                answer.text(),
                "[false, true] unknown",
                "{protocol:?} {method}"
            );
        }
    }
}

#[tokio::test]
async fn cookie_fields_are_joined() {
    let upstream = service(counting(&Runs::default())).await;
    let sidecar = Sidecar::new(upstream, "").await;
    let request = with(plain("GET", "/echo", ""), "cookie", "a=1");
    let request = with(request, "cookie", "b=2; c=3");
    let mut client = sidecar.client(Protocol::Http2).await;
    assert_eq!(client.send(request).await.json()["cookie"], "a=1; b=2; c=3");
}

/// A body of unknown length. In HTTP/1.1 only such a body has trailers.
fn unsized_body(text: &'static str) -> Body {
    Body::from_stream(futures_util::stream::iter([Ok::<_, std::io::Error>(text)]))
}

#[tokio::test]
async fn trailers_are_forwarded_in_both_directions() {
    use http_body_util::BodyExt as _;
    async fn with_trailers(request: Request) -> Response {
        let sent = request.into_body().collect().await.unwrap();
        let came = sent
            .trailers()
            .and_then(|trailers| trailers.get("x-sum"))
            .cloned();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", came.unwrap_or_else(|| "none".parse().unwrap()));
        let body = unsized_body("body").with_trailers(async { Some(Ok(trailers)) });
        let mut response = Response::new(Body::new(body));
        response
            .headers_mut()
            .insert("trailer", "x-sum".parse().unwrap());
        response
    }
    let upstream = service(Router::new().fallback(any(with_trailers))).await;
    for protocol in ["auto", "h2c"] {
        let sidecar =
            Sidecar::new(upstream, &format!("upstream.protocol = \"{protocol}\"\n")).await;
        let mut client = sidecar.client(Protocol::Http2).await;
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "17".parse().unwrap());
        let body = unsized_body("asked").with_trailers(async { Some(Ok(trailers)) });
        let mut request = plain("POST", "/", Body::new(body));
        request
            .headers_mut()
            .insert("te", "trailers".parse().unwrap());
        request
            .headers_mut()
            .insert("trailer", "x-sum".parse().unwrap());
        let answer = client.send(request).await;
        let sum = answer
            .trailers
            .and_then(|trailers| trailers.get("x-sum").cloned());
        assert_eq!(
            sum.as_ref().map(|sum| sum.as_bytes()),
            Some(&b"17"[..]),
            "{protocol}"
        );
    }
}

/// A client can't send a fence to the service, not even in a trailer.
#[tokio::test]
async fn semel_trailers_of_clients_are_removed() {
    use http_body_util::BodyExt as _;
    async fn name_trailers(request: Request) -> String {
        let sent = request.into_body().collect().await.unwrap();
        let names = |trailers: &HeaderMap| trailers.keys().map(ToString::to_string).collect();
        sent.trailers().map_or(Vec::new(), names).join(" ")
    }
    let upstream = service(Router::new().fallback(any(name_trailers))).await;
    for protocol in ["auto", "h2c"] {
        let sidecar =
            Sidecar::new(upstream, &format!("upstream.protocol = \"{protocol}\"\n")).await;
        let mut client = sidecar.client(Protocol::Http2).await;
        for key in [None, Some("\"with-trailers\"")] {
            let mut trailers = HeaderMap::new();
            trailers.insert("x-sum", "17".parse().unwrap());
            trailers.insert("semel-fence", "9".parse().unwrap());
            let body = unsized_body("asked").with_trailers(async { Some(Ok(trailers)) });
            let mut request = plain("POST", "/", Body::new(body));
            let headers = request.headers_mut();
            headers.insert("te", "trailers".parse().unwrap());
            headers.insert("trailer", "x-sum, semel-fence".parse().unwrap());
            if let Some(key) = key {
                headers.insert("idempotency-key", key.parse().unwrap());
            }
            let answer = client.send(request).await;
            assert!(!answer.text().contains("semel"), "{protocol}, {key:?}");
        }
    }
}

#[tokio::test]
async fn base_path_and_replicas_are_used() {
    let (one, two) = (Runs::default(), Runs::default());
    let counted = |runs: &Runs| {
        let runs = runs.clone();
        let answer = move |request: Request| async move {
            runs.begin();
            request.uri().to_string()
        };
        Router::new().fallback(any(answer))
    };
    let urls = [service(counted(&one)).await, service(counted(&two)).await];
    let upstream = format!("http://{}/api/\", \"http://{}", urls[0], urls[1]);
    let sidecar = Sidecar::on("memory://", &upstream, "").await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(
            sidecar
                .send(plain("GET", "/x?y=1", ""))
                .await
                .text()
                .to_owned(),
        );
    }
    seen.sort();
    assert_eq!(seen, ["/api/x?y=1", "/api/x?y=1", "/x?y=1", "/x?y=1"]);
    assert_eq!((one.count(), two.count()), (2, 2));
}

#[tokio::test]
async fn service_can_report_the_outcome() {
    let runs = Runs::default();
    let counted = runs.clone();
    let handler = move |headers: HeaderMap| async move {
        counted.begin();
        let outcome = headers.get("x-say").cloned().unwrap();
        ([("semel-outcome", outcome)], "said")
    };
    let upstream = service(Router::new().fallback(any(handler))).await;
    let sidecar = Sidecar::new(upstream, "").await;
    let ask = |key: &'static str, say: &'static str| {
        sidecar.send(with(post("/", key, "{}"), "x-say", say))
    };
    for _ in 0..2 {
        let answer = ask("free", "no-effect").await;
        assert_eq!(
            (answer.status.as_u16(), answer.header("semel-outcome")),
            (200, None)
        );
    }
    assert_eq!(runs.count(), 2, "nothing happened, so it ran again");
    assert_eq!(ask("doubt", "unknown").await.status, 200);
    assert_eq!(
        ask("doubt", "unknown").await.problem_and_retry().1,
        "idempotency_in_doubt"
    );
    assert_eq!(runs.count(), 3);
}

/// `..` must not lead from the path of the service's URL to its other paths.
#[tokio::test]
async fn request_never_leaves_the_path_of_the_upstream_url() {
    let runs = Runs::default();
    let handler = {
        let runs = runs.clone();
        move |uri: axum::http::Uri| async move {
            runs.begin();
            uri.to_string()
        }
    };
    let upstream = service(Router::new().fallback(any(handler))).await;
    let url = format!("http://{upstream}/public");
    let sidecar = Sidecar::on("memory://", &url, "").await;
    for path in [
        "/../internal",
        "/a/../../internal",
        "/%2e%2e/internal",
        "/.%2E/internal",
        "/a/..",
    ] {
        for request in [plain("GET", path, ""), post(path, "k-1", "{}")] {
            let answer = sidecar.send(request).await;
            assert_eq!(answer.status, 400, "{path}: {}", answer.text());
        }
    }
    assert_eq!(runs.count(), 0);
    let answer = sidecar.send(plain("GET", "/a..b/c?d=../e", "")).await;
    assert_eq!(answer.text(), "/public/a..b/c?d=../e");
}
