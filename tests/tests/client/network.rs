//! A bad network: passes requests on, and spoils some.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;

use crate::service::pause;

type Broken = std::io::Error;
type Reply = http::Response<BoxBody<Bytes, Broken>>;

/// What may happen to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    /// It never arrives.
    Lost,
    /// It arrives; its answer doesn't.
    AnswerLost,
    /// Its answer ends in the middle.
    AnswerCut,
    /// It arrives twice.
    Doubled,
    /// Its answer takes its time.
    Delayed,
}

#[derive(Default)]
struct Seen {
    keys: Mutex<BTreeMap<String, BTreeSet<String>>>,
    troubles: Mutex<BTreeMap<Trouble, usize>>,
    requests: AtomicUsize,
}

pub(crate) struct Network {
    pub(crate) address: SocketAddr,
    seen: Arc<Seen>,
}

impl Network {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Seen::default());
        let (shared, onward) = (Arc::clone(&seen), reqwest::Client::new());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, onward) = (Arc::clone(&shared), onward.clone());
                let pass = service_fn(move |request| {
                    pass(request, server, onward.clone(), Arc::clone(&seen))
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), pass);
                tokio::spawn(connection);
            }
        });
        Self { address, seen }
    }

    /// The keys that each body came with.
    pub(crate) fn keys(&self) -> BTreeMap<String, BTreeSet<String>> {
        self.seen.keys.lock().clone()
    }

    pub(crate) fn troubles(&self) -> BTreeMap<Trouble, usize> {
        self.seen.troubles.lock().clone()
    }

    pub(crate) fn requests(&self) -> usize {
        self.seen.requests.load(Ordering::Relaxed)
    }
}

/// An error here closes the connection without a word.
async fn pass(
    request: http::Request<Incoming>,
    server: SocketAddr,
    onward: reqwest::Client,
    seen: Arc<Seen>,
) -> Result<Reply, Broken> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(Broken::other)?.to_bytes();
    let key = head
        .headers
        .get("idempotency-key")
        .map(|key| key.to_str().unwrap_or_default());
    let key = key.unwrap_or_default().to_owned();
    let text = String::from_utf8_lossy(&body).into_owned();
    seen.keys.lock().entry(text).or_default().insert(key);
    seen.requests.fetch_add(1, Ordering::Relaxed);
    let trouble = trouble();
    if let Some(trouble) = trouble {
        *seen.troubles.lock().entry(trouble).or_default() += 1;
    }
    if trouble == Some(Trouble::Lost) {
        return Err(Broken::other("lost"));
    }
    let send = || {
        let url = format!("http://{server}{}", head.uri);
        let mut headers = head.headers.clone();
        headers.remove("host");
        let request = onward.request(head.method.clone(), url).headers(headers);
        request.body(body.clone()).send()
    };
    let answer = match trouble {
        Some(Trouble::Doubled) => tokio::join!(send(), send()).1,
        _ => send().await,
    };
    let answer = answer.map_err(Broken::other)?;
    let (status, headers) = (answer.status(), answer.headers().clone());
    let body = answer.bytes().await.map_err(Broken::other)?;
    match trouble {
        Some(Trouble::AnswerLost) => return Err(Broken::other("lost")),
        Some(Trouble::Delayed) => pause(120).await,
        _ => {}
    }
    let body = match trouble {
        Some(Trouble::AnswerCut) => cut(&body),
        _ => Full::new(body)
            .map_err(|never: Infallible| match never {})
            .boxed(),
    };
    let mut reply = http::Response::new(body);
    *reply.status_mut() = status;
    *reply.headers_mut() = headers;
    Ok(reply)
}

/// Half of it, and then an end that none was announced for.
fn cut(body: &Bytes) -> BoxBody<Bytes, Broken> {
    let half = body.slice(..body.len() / 2);
    let frames = [Ok(Frame::data(half)), Err(Broken::other("cut"))];
    StreamBody::new(stream::iter(frames)).boxed()
}

/// Every third request has some trouble.
fn trouble() -> Option<Trouble> {
    use Trouble::{AnswerCut, AnswerLost, Delayed, Doubled, Lost};
    let all = [Lost, AnswerLost, AnswerCut, Doubled, Delayed];
    let chance = semel::tokio_env().entropy.next_u128();
    all.get(usize::try_from(chance % 15).unwrap_or(usize::MAX))
        .copied()
}
