use axum::Router;
use semel::{Mode, Semel};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::*;
use crate::settings::Settings;

/// What a server was asked: path and method.
type Asked = Arc<Mutex<Vec<(String, String)>>>;

/// Lists nothing, and answers calls with the path that they came to.
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
    json(said.to_string().into())
}

/// A proxy in front of a server, and what that was asked.
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
    let upstream = Upstream::new(url, HeaderMap::new()).unwrap();
    Arc::new(Proxy::new(gateway, upstream, None))
}

/// Calls a tool. → the status, and the message.
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

#[tokio::test]
async fn servers_behind_one_address_have_keys_and_tools_of_their_own() {
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
    // Each was asked for its list once, though it gave none.
    let lists = asked.lock();
    let lists: Vec<&str> = lists
        .iter()
        .filter(|(_, method)| method == "tools/list")
        .map(|(path, _)| path.as_str())
        .collect();
    assert_eq!(lists, ["/mcp", "/other", "/mcp?account=2"]);
}

#[test]
fn callers_do_not_choose_how_much_is_remembered() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let proxy = runtime.block_on(before("http://127.0.0.1:1/mcp", Settings::new("test")));
    for number in 0..2 * MOST_SERVERS {
        proxy.catalog(&format!("/{number}?"));
    }
    assert_eq!(proxy.catalogs.lock().len(), MOST_SERVERS);
    assert!(proxy.catalogs.lock().contains_key(""));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_as_without_us_where_calls_are_only_observed() {
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
