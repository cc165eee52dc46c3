use axum::Router;
use semel::{Mode, Semel};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::*;
use crate::settings::Settings;

/// The requests of a server: path and method.
type Asked = Arc<Mutex<Vec<(String, String)>>>;

/// A server that lists no tools, and answers calls with their path.
async fn answer(asked: Asked, request: Request<Body>) -> Response<Body> {
    let path = request.uri().to_string();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let message: Value = serde_json::from_slice(&body).unwrap();
    let method = message["method"].as_str().unwrap().to_owned();
    asked.lock().push((path.clone(), method.clone()));
    let said = match method.as_str() {
        "tools/list" => json!({"id": message["id"], "error": {"code": -32603, "message": "no"}}),
        _ => json!({"id": message["id"], "result": {"content": [], "path": path}}),
    };
    json_response(said.to_string().into())
}

/// A proxy in front of a server, and the requests of that server.
async fn proxy(settings: Settings) -> (Arc<Proxy>, Asked) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let asked = Asked::default();
    let seen = Arc::clone(&asked);
    let handle = move |request: Request<Body>| answer(Arc::clone(&seen), request);
    let router = Router::new().fallback(handle);
    tokio::spawn(async move { axum::serve(listener, router).await });
    (before(&url, settings).await, asked)
}

async fn before(url: &str, settings: Settings) -> Arc<Proxy> {
    let semel = Semel::open("memory://").await.unwrap();
    let gateway = Gateway::new(semel, settings).unwrap();
    let upstream = HttpUpstream::new(url, HeaderMap::new()).unwrap();
    Arc::new(Proxy::new(gateway, upstream, None))
}

/// Calls a tool. Returns the status and the message.
async fn call(proxy: &Arc<Proxy>, path: &str, key: &str) -> (StatusCode, Value) {
    let params = json!({"name": "pay", "arguments": {"idempotencyKey": key}});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let mut request = Request::new(Body::from(message.to_string()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = path.parse().unwrap();
    let response = Arc::clone(proxy).handle(request).await;
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

/// Calls a tool with these headers. Returns the status and the message.
async fn call_as(
    proxy: &Arc<Proxy>,
    path: &str,
    headers: &[(&'static str, &str)],
) -> (StatusCode, Value) {
    let params = json!({"name": "pay", "arguments": {"idempotencyKey": "k"}});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let mut request = Request::new(Body::from(message.to_string()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = path.parse().unwrap();
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    let response = Arc::clone(proxy).handle(request).await;
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

fn calls(asked: &Asked) -> usize {
    let asked = asked.lock();
    let calls = asked.iter().filter(|(_, method)| method == "tools/call");
    calls.count()
}

#[tokio::test]
async fn reusing_a_key_with_other_credentials_is_refused() {
    for name in [
        "authorization",
        "x-api-key",
        "cookie",
        "proxy-authorization",
    ] {
        let (proxy, asked) = proxy(Settings::new("test")).await;
        let (_, first) = call_as(&proxy, "/mcp", &[(name, "alice")]).await;
        assert_eq!(first["result"]["path"], "/mcp", "{name}: {first}");
        let (_, again) = call_as(&proxy, "/mcp", &[(name, "alice")]).await;
        assert_eq!(again["result"]["_meta"]["semel/replayed"], true, "{name}");
        for headers in [&[(name, "mallory")][..], &[]] {
            let (_, other) = call_as(&proxy, "/mcp", headers).await;
            assert_ne!(other["result"]["path"], "/mcp", "{name}: {other}");
        }
        assert_eq!(
            calls(&asked),
            1,
            "a refreshed token runs nothing again: {name}"
        );
    }
}

#[tokio::test]
async fn principal_header_must_occur_exactly_once() {
    let (proxy, asked) = proxy(Settings::new("test")).await;
    let mut proxy = Arc::into_inner(proxy).unwrap();
    proxy.principal = Some(HeaderName::from_static("x-user"));
    let proxy = Arc::new(proxy);
    for headers in [
        &[("authorization", "alice")][..],
        &[("x-user", "")],
        &[("x-user", "alice"), ("x-user", "mallory")],
    ] {
        let (status, said) = call_as(&proxy, "/mcp", headers).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{said}");
    }
    assert_eq!(calls(&asked), 0);
    // The header counts even if `Connection` names it.
    for headers in [
        &[("x-user", "alice"), ("authorization", "1")][..],
        &[
            ("x-user", "alice"),
            ("authorization", "2"),
            ("connection", "x-user"),
        ],
    ] {
        let (_, said) = call_as(&proxy, "/mcp", headers).await;
        assert_eq!(said["result"]["path"], "/mcp", "{said}");
    }
    assert_eq!(calls(&asked), 1);
    call_as(&proxy, "/mcp", &[("x-user", "bob")]).await;
    assert_eq!(calls(&asked), 2);
}

#[tokio::test]
async fn own_credential_is_sent_to_the_servers_own_path_only() {
    let (proxy, asked) = proxy(Settings::new("test")).await;
    let mut proxy = Arc::into_inner(proxy).unwrap();
    let token = HeaderValue::from_static("Bearer T0P");
    proxy.upstream.headers.insert(header::AUTHORIZATION, token);
    let mut proxy = Arc::new(proxy);
    let (status, _) = call_as(&proxy, "/internal/anything", &[]).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(calls(&asked), 0);
    call_as(&proxy, "/mcp/", &[]).await;
    assert_eq!(calls(&asked), 1);
    Arc::get_mut(&mut proxy).unwrap().any_path = true;
    call_as(&proxy, "/internal/anything", &[]).await;
    assert_eq!(calls(&asked), 2);
}

#[tokio::test]
async fn servers_behind_one_address_have_separate_keys_and_tools() {
    let (proxy, asked) = proxy(Settings::new("test")).await;
    for (path, is_replay) in [
        ("/mcp", false),
        ("/other", false),
        ("/mcp?account=2", false),
        ("/mcp/", true),
        ("/other", true),
        ("/mcp?account=2", true),
    ] {
        let (_, said) = call(&proxy, path, "k").await;
        let result = &said["result"];
        assert_eq!(result["path"], path.trim_end_matches('/'), "{said}");
        let replayed = result["_meta"]["semel/replayed"] == true;
        assert_eq!(replayed, is_replay, "{path}: {said}");
    }
    // Each server was asked for its list once, although it gave none.
    let lists = asked.lock();
    let lists: Vec<&str> = lists
        .iter()
        .filter(|(_, method)| method == "tools/list")
        .map(|(path, _)| path.as_str())
        .collect();
    assert_eq!(lists, ["/mcp", "/other", "/mcp?account=2"]);
}

#[test]
fn number_of_remembered_catalogs_is_bounded() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let proxy = runtime.block_on(before("http://127.0.0.1:1/mcp", Settings::new("test")));
    for number in 0..2 * MAX_SERVERS {
        proxy.catalog(&format!("/{number}?"));
    }
    assert_eq!(proxy.catalogs.lock().len(), MAX_SERVERS);
    assert!(proxy.catalogs.lock().contains_key(""));
}

#[tokio::test]
async fn observe_mode_passes_an_unreachable_server_through() {
    let port = semel_testkit::private::free_port();
    let url = format!("http://127.0.0.1:{port}/mcp");
    let mut settings = Settings::new("test");
    let enforcing = before(&url, settings.clone()).await;
    let (status, said) = call(&enforcing, "/mcp", "k").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        said["result"]["_meta"]["semel/code"],
        "idempotency_not_sent"
    );
    settings.policy.mode = Mode::Observe;
    let observing = before(&url, settings).await;
    let (status, _) = call(&observing, "/mcp", "k").await;
    assert_eq!(status, StatusCode::BAD_GATEWAY);
}
