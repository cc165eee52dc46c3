use axum::Router;
use axum::extract::State;
use axum::routing::get;
use parking_lot::Mutex;
use semel_testkit::private::free_port;
use tokio::net::TcpListener;

use super::*;

/// What a server says to the request of that number: a status, and the events of its stream.
type Script = fn(usize) -> (StatusCode, &'static str);

struct Served {
    script: Script,
    /// After which event each request asks.
    asked: Mutex<Vec<Option<String>>>,
}

impl Served {
    fn asked(&self) -> Vec<Option<String>> {
        self.asked.lock().clone()
    }
}

async fn answer(State(served): State<Arc<Served>>, headers: HeaderMap) -> Response<Body> {
    let last = headers.get(LAST_EVENT).and_then(|last| last.to_str().ok());
    let number = {
        let mut asked = served.asked.lock();
        asked.push(last.map(str::to_owned));
        asked.len() - 1
    };
    let (status, events) = (served.script)(number);
    let mut response = Response::new(Body::from(events));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(EVENT_STREAM);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// A server that follows a script, and how often it was asked.
async fn served(script: Script) -> (Upstream, Arc<Served>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let served = Arc::new(Served {
        script,
        asked: Mutex::default(),
    });
    let router = Router::new()
        .route("/mcp", get(answer))
        .with_state(Arc::clone(&served));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (Upstream::new(&url, HeaderMap::new()).unwrap(), served)
}

fn patience(limit: Option<Duration>) -> Patience {
    Patience::new(semel::tokio_env().clock, limit)
}

/// What a request's stream says, up to its end.
async fn said(upstream: &Upstream, limit: Duration) -> Vec<Bytes> {
    let uri = upstream.uri.clone();
    let asked = upstream.send(Method::GET, &uri, HeaderMap::new(), Body::empty());
    let body = asked.await.unwrap().into_body();
    let patience = patience(Some(limit));
    let mut stream = Stream::new(upstream, &uri, HeaderMap::new(), body, patience);
    let mut said = Vec::new();
    while let Some(Said { text, .. }) = stream.next().await {
        said.push(text);
    }
    said
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_stream_is_taken_up_again_for_as_long_as_its_call_may_take() {
    // A server that lets its callers ask again and again, is away for a while, and then has the answer.
    let (upstream, served) = served(|number| match number {
        0 => (StatusCode::OK, "id: a\nretry: 1\n\n"),
        1..10 => (StatusCode::OK, "id: b\n\n"),
        10..15 => (StatusCode::SERVICE_UNAVAILABLE, ""),
        15 => (StatusCode::OK, "id: c\ndata: done\n\n"),
        _ => (StatusCode::NOT_FOUND, ""),
    })
    .await;
    assert_eq!(said(&upstream, LONG).await, ["done"]);
    let asked = served.asked();
    let asked: Vec<&str> = asked.iter().flatten().map(String::as_str).collect();
    let expected = [&["a"][..], &["b"; 14], &["c"]].concat();
    assert_eq!(asked, expected, "after the last event that came");
}

#[tokio::test]
async fn a_stream_is_given_up_at_the_end_of_its_calls_time() {
    let (upstream, served) = served(|number| match number {
        0 => (StatusCode::OK, "id: a\nretry: 1\n\n"),
        _ => (StatusCode::BAD_GATEWAY, ""),
    })
    .await;
    assert!(said(&upstream, Duration::from_millis(200)).await.is_empty());
    assert!(served.asked().len() > 2);
}

#[tokio::test]
async fn a_stream_whose_events_have_no_names_can_not_be_taken_up() {
    let (upstream, served) = served(|_| (StatusCode::OK, "data: a\n\n")).await;
    assert_eq!(said(&upstream, LONG).await, ["a"]);
    assert_eq!(served.asked().len(), 1);
}

#[tokio::test]
async fn what_is_said_unasked_is_listened_to_again_until_the_server_has_no_such_stream() {
    let (upstream, served) = served(|number| match number {
        0 => (StatusCode::BAD_GATEWAY, ""),
        1 => (StatusCode::OK, "retry: 1\ndata: a\n\n"),
        2 => (StatusCode::OK, "data: b\n\n"),
        _ => (StatusCode::METHOD_NOT_ALLOWED, ""),
    })
    .await;
    let uri = upstream.uri.clone();
    let mut stream = Stream::standing(&upstream, &uri, HeaderMap::new(), patience(None));
    let mut said = Vec::new();
    while let Some(Said { text, .. }) = stream.next().await {
        said.push(text);
    }
    assert_eq!(said, ["a", "b"]);
    assert_eq!(served.asked(), [const { None }; 4]);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_asked_again() {
    let port = free_port();
    let upstream = Upstream::new(&format!("http://127.0.0.1:{port}/"), HeaderMap::new()).unwrap();
    let uri = upstream.uri.clone();
    let opened = upstream.open(&uri, HeaderMap::new(), None).await;
    assert!(matches!(opened, Opened::NotNow));
}
