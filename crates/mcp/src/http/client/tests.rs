use axum::Router;
use axum::extract::State;
use axum::routing::get;
use parking_lot::Mutex;
use semel_testkit::private::free_port;
use tokio::net::TcpListener;

use super::*;

/// The server's answer to a request of this number: a status and the events of the stream.
type Script = fn(usize) -> (StatusCode, &'static str);

struct Served {
    script: Script,
    /// The `Last-Event-ID` of each request.
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

/// Starts a server that follows a script and records its requests.
async fn served(script: Script) -> (HttpUpstream, Arc<Served>) {
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
    (HttpUpstream::new(&url, HeaderMap::new()).unwrap(), served)
}

fn resume_limit(limit: Option<Duration>) -> ResumeLimit {
    ResumeLimit::new(semel::tokio_env().clock, limit)
}

/// All messages of a request's stream.
async fn said(upstream: &HttpUpstream, limit: Duration) -> Vec<Bytes> {
    let uri = upstream.uri.clone();
    let asked = upstream.send(Method::GET, &uri, HeaderMap::new(), Body::empty());
    let body = asked.await.unwrap().into_body();
    let resume_limit = resume_limit(Some(limit));
    let mut stream = Stream::new(upstream, &uri, HeaderMap::new(), body, resume_limit);
    let mut said = Vec::new();
    while let Some(StreamMessage { text, .. }) = stream.next().await {
        said.push(text);
    }
    said
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn stream_resumes_until_the_call_limit() {
    // The server closes the stream repeatedly, is unavailable for a while, and then has the answer.
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
async fn stream_ends_at_the_call_limit() {
    let (upstream, served) = served(|number| match number {
        0 => (StatusCode::OK, "id: a\nretry: 1\n\n"),
        _ => (StatusCode::BAD_GATEWAY, ""),
    })
    .await;
    assert!(said(&upstream, Duration::from_millis(200)).await.is_empty());
    assert!(served.asked().len() > 2);
}

#[tokio::test]
async fn stream_without_event_ids_cannot_resume() {
    let (upstream, served) = served(|_| (StatusCode::OK, "data: a\n\n")).await;
    assert_eq!(said(&upstream, LONG).await, ["a"]);
    assert_eq!(served.asked().len(), 1);
}

#[tokio::test]
async fn unsolicited_stream_reopens_until_the_server_refuses() {
    let (upstream, served) = served(|number| match number {
        0 => (StatusCode::BAD_GATEWAY, ""),
        1 => (StatusCode::OK, "retry: 1\ndata: a\n\n"),
        2 => (StatusCode::OK, "data: b\n\n"),
        _ => (StatusCode::METHOD_NOT_ALLOWED, ""),
    })
    .await;
    let uri = upstream.uri.clone();
    let mut stream = Stream::unsolicited(&upstream, &uri, HeaderMap::new(), resume_limit(None));
    let mut said = Vec::new();
    while let Some(StreamMessage { text, .. }) = stream.next().await {
        said.push(text);
    }
    assert_eq!(said, ["a", "b"]);
    assert_eq!(served.asked(), [const { None }; 4]);
}

#[tokio::test]
async fn unreachable_server_is_retried() {
    let port = free_port();
    let upstream =
        HttpUpstream::new(&format!("http://127.0.0.1:{port}/"), HeaderMap::new()).unwrap();
    let uri = upstream.uri.clone();
    let opened = upstream.open(&uri, HeaderMap::new(), None).await;
    assert!(matches!(opened, StreamOpening::NotNow));
}
