//! The server's routers, driven in memory: time stands still, and nothing is waited for.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use axum::Router;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as _;
use semel::Semel;
use semel_core::{BoxFuture, Env, Spawn};
use semel_core::env::SystemEntropy;
use serde_json::Value;
use tower_service::Service as _;

use super::{Still, ready};

thread_local! {
    static TASKS: RefCell<Vec<BoxFuture<'static, ()>>> = const { RefCell::new(Vec::new()) };
}

/// What runs beside a request gets its turn when the request does.
struct Beside;

impl Spawn for Beside {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        TASKS.with_borrow_mut(|tasks| tasks.push(task));
    }
}

fn turn(context: &mut Context<'_>) {
    let mut tasks = TASKS.take();
    tasks.retain_mut(|task| task.as_mut().poll(context).is_pending());
    TASKS.with_borrow_mut(|since| since.extend(tasks));
}

pub fn env() -> Env {
    Env::new(Arc::new(Still), Arc::new(Beside), Arc::new(SystemEntropy))
}

pub fn semel() -> Semel {
    drop(TASKS.take());
    let open = Semel::builder().env(env()).open("memory://?capacity=64");
    ready(open).expect("memory")
}

/// Sends it; nothing where the answer is waited for.
pub fn send(router: &Router, request: &Request<Bytes>) -> Option<Response<Vec<u8>>> {
    let mut context = Context::from_waker(Waker::noop());
    let body = axum::body::Body::from(request.body().clone());
    let mut asked = request.clone().map(|_| body);
    // Whoever may call by loopback names it.
    asked.headers_mut().insert("host", http::HeaderValue::from_static("127.0.0.1"));
    let mut answer = Box::pin(router.clone().call(asked));
    let answer = (0..8).find_map(|_| match answer.as_mut().poll(&mut context) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => {
            turn(&mut context);
            None
        }
    });
    let (head, mut body) = answer?.expect("a router never fails").into_parts();
    let mut all = Vec::new();
    while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut context) {
        all.extend(frame.into_data().unwrap_or_default());
    }
    let answer = Response::from_parts(head, all);
    check(request, &answer);
    Some(answer)
}

/// Never an error of ours; a refusal is a problem document that repeats nothing of what was sent.
fn check(request: &Request<Bytes>, answer: &Response<Vec<u8>>) {
    let status = answer.status().as_u16();
    assert!(status < 500, "{status}: {}", String::from_utf8_lossy(answer.body()));
    if status < 400 || request.method() == http::Method::HEAD {
        return;
    }
    let told: Value = serde_json::from_slice(answer.body()).expect("a problem is JSON");
    assert_eq!(told["status"], status);
    assert!(told["code"].is_string() && told["detail"].is_string());
    assert!(!told.to_string().contains("hunter2"), "{told}");
}

/// Requests, with a line of dashes between them; `$ID` is what was given for it.
pub fn next(rest: &mut &[u8], id: &str) -> Option<Request<Bytes>> {
    let end = rest.windows(5).position(|five| five == b"\n---\n");
    let (one, more) = end.map_or((*rest, &rest[..0]), |at| (&rest[..at], &rest[at + 5..]));
    *rest = more;
    let text = String::from_utf8_lossy(one).replacen("$ID", id, 1);
    super::parse(text.as_bytes())
}
