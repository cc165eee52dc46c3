//! One call through the proxy: what the server says meanwhile as it comes, its answer once it is settled.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, Uri};
use tokio::sync::mpsc;

use super::IDEMPOTENCY_KEY;
use super::client::{EVENT_STREAM, Said, Stream, is_event_stream, never_sent, whole};
use super::proxy::{Proxy, respond, strip};
use super::upstream::answers_id;
use crate::answer::Reply;
use crate::call::{Call, Caller};
use crate::gateway::{Gateway, Plan, Sending};
use crate::message::{Id, Message};
use crate::outcome::{HttpReply, Outcome};
use crate::session::QUEUE;

impl Proxy {
    pub(super) async fn protect(
        self: Arc<Self>,
        parts: Parts,
        message: Message,
        call: Call,
        caller: Caller,
    ) -> Response<Body> {
        let known = self.known(&call, &parts, &caller).await;
        let job = match self.gateway.plan(call, known, &caller) {
            Plan::Pass => return self.pass(&parts, message.text.into()).await,
            Plan::Keyless(text) => return self.pass(&parts, text.into()).await,
            Plan::Answer(reply) => return respond(reply),
            Plan::Run(job) => job,
        };
        let (id, target) = (job.call.id.clone(), self.target(&parts));
        let (tell, mut events) = mpsc::channel(QUEUE);
        let proxy = Arc::clone(&self);
        let send = move |sending| {
            let forward = Forward {
                proxy,
                target,
                headers: parts.headers,
                id,
                tell,
            };
            Box::pin(forward.within_limit(sending)) as semel::core::BoxFuture<'static, Outcome>
        };
        let gateway = Arc::clone(&self.gateway);
        let mut run = Box::pin(async move { gateway.run(*job, send).await });
        tokio::select! {
            biased;
            Some(first) = events.recv() => stream_of(first, events, run),
            reply = &mut run => respond(reply),
        }
    }
}

/// The events as they come, and the reply as the last one.
fn stream_of(
    first: Bytes,
    mut events: mpsc::Receiver<Bytes>,
    run: impl Future<Output = Reply> + Send + 'static,
) -> Response<Body> {
    let (out, body) = mpsc::channel::<Bytes>(QUEUE);
    tokio::spawn(async move {
        // A caller that has gone takes nothing with it: the engine sees the call through.
        let mut is_there = out.send(first).await.is_ok();
        let mut run = Box::pin(run);
        let reply = loop {
            tokio::select! {
                biased;
                Some(event) = events.recv() => is_there = is_there && out.send(event).await.is_ok(),
                reply = &mut run => break reply,
            }
        };
        if let Reply::Message(text) = reply {
            let _ = out.send(Said { text, event: None }.encode()).await;
        }
    });
    let body = stream::unfold(body, |mut body| async move {
        let event = body.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(event), body))
    });
    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// A call on its way to the server.
struct Forward {
    proxy: Arc<Proxy>,
    target: Uri,
    headers: HeaderMap,
    id: Id,
    tell: mpsc::Sender<Bytes>,
}

impl Forward {
    async fn within_limit(self, sending: Sending) -> Outcome {
        let gateway = Arc::clone(&self.proxy.gateway);
        let open = sending.open.clone();
        let limit = gateway.call_limit();
        // On a task of its own: should the answer come after the limit, it ends the doubt.
        let mut sent = tokio::spawn(self.send(sending));
        tokio::select! {
            outcome = &mut sent => outcome.unwrap_or(Outcome::Lost),
            () = limit => {
                tokio::spawn(ended_late(gateway, sent, open));
                Outcome::TimedOut
            }
        }
    }

    async fn send(self, sending: Sending) -> Outcome {
        let Self {
            proxy,
            target,
            mut headers,
            id,
            tell,
        } = self;
        let downstream = sending
            .downstream
            .and_then(|key| HeaderValue::from_str(&key).ok());
        if let Some(key) = downstream {
            headers.insert(IDEMPOTENCY_KEY, key);
        }
        let body = sending.message.into();
        let sent = proxy
            .upstream
            .send(Method::POST, &target, headers.clone(), body)
            .await;
        let response = match sent {
            Ok(response) => response,
            Err(error) if never_sent(&error) => {
                return Outcome::NotSent("the server can't be reached");
            }
            Err(_) => return Outcome::Lost,
        };
        let (mut head, body) = response.into_parts();
        if head.status.is_success() && is_event_stream(&head.headers) {
            let patience = proxy.gateway.patience();
            let mut stream = Stream::new(&proxy.upstream, &target, headers, body, patience);
            while let Some(said) = stream.next().await {
                if answers_id(&said.text, &id) {
                    return Outcome::Answered(said.text);
                }
                // A caller that has gone hears nothing of it.
                let _ = tell.send(said.encode()).await;
            }
            return Outcome::Lost;
        }
        let Some(text) = whole(body).await else {
            return Outcome::Lost;
        };
        if head.status.is_success() && answers_id(&text, &id) {
            return Outcome::Answered(text);
        }
        strip(&mut head.headers);
        head.headers.remove(CONTENT_LENGTH);
        Outcome::Http(Arc::new(HttpReply {
            status: head.status,
            headers: head.headers,
            body: text,
        }))
    }
}

async fn ended_late(
    gateway: Arc<Gateway>,
    sent: tokio::task::JoinHandle<Outcome>,
    open: crate::gateway::Open,
) {
    if let Ok(Outcome::Answered(message)) = sent.await {
        gateway.late(&open, &message).await;
    }
}
