//! One keyed call through the proxy: relays events as they come, and the reply once the call has
//! settled.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, Uri};
use tokio::sync::mpsc;

use super::IDEMPOTENCY_KEY;
use super::client::{
    EVENT_STREAM, ResumeLimit, Stream, StreamMessage, is_connect_failure, is_event_stream,
    read_whole,
};
use super::proxy::{Proxy, respond, strip_hop_by_hop};
use super::upstream::is_response_to;
use crate::answer::Reply;
use crate::call::{Call, Caller};
use crate::gateway::{Gateway, OutgoingCall, Plan};
use crate::message::{Id, Message};
use crate::outcome::{HttpReply, Outcome};
use crate::peer::QUEUE;

impl Proxy {
    pub(super) async fn protect(
        self: Arc<Self>,
        parts: Parts,
        message: Message,
        call: Call,
        caller: Caller,
    ) -> Response<Body> {
        let facts = self.look_up_tool(&call, &parts, &caller).await;
        let keyed = match self.gateway.plan(call, facts, &caller) {
            Plan::Pass => return self.pass(&parts, message.text.into()).await,
            Plan::Keyless(text) => return self.pass(&parts, text.into()).await,
            Plan::Answer(reply) => return respond(reply),
            Plan::Run(keyed) => keyed,
        };
        let (id, target) = (keyed.call.id.clone(), self.target(&parts));
        let (event_sender, mut events) = mpsc::channel(QUEUE);
        let lookup = keyed.can_be_verified().then(|| self.lookup(&parts));
        let proxy = Arc::clone(&self);
        let send = move |sending| {
            let forward = Forward {
                proxy,
                target,
                headers: parts.headers,
                id,
                events: event_sender,
            };
            Box::pin(forward.within_limit(sending)) as semel::core::BoxFuture<'static, Outcome>
        };
        let gateway = Arc::clone(&self.gateway);
        let mut run = Box::pin(async move { gateway.run(*keyed, lookup, send).await });
        tokio::select! {
            biased;
            Some(first) = events.recv() => stream_of(first, events, run),
            reply = &mut run => respond(reply),
        }
    }
}

/// Streams the events, and the reply as the last event.
fn stream_of(
    first: Bytes,
    mut events: mpsc::Receiver<Bytes>,
    run: impl Future<Output = Reply> + Send + 'static,
) -> Response<Body> {
    let (out, body) = mpsc::channel::<Bytes>(QUEUE);
    tokio::spawn(async move {
        // If the caller disconnects, the engine still runs the call to its end.
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
            let _ = out.send(StreamMessage { text, event: None }.encode()).await;
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

/// A call that is being forwarded.
struct Forward {
    proxy: Arc<Proxy>,
    target: Uri,
    headers: HeaderMap,
    id: Id,
    events: mpsc::Sender<Bytes>,
}

impl Forward {
    async fn within_limit(self, sending: OutgoingCall) -> Outcome {
        let gateway = Arc::clone(&self.proxy.gateway);
        let open = sending.doubt.clone();
        let limit = gateway.call_limit();
        // Runs on its own task, so that an answer after the limit can still resolve the doubt.
        let mut sent = tokio::spawn(self.send(sending));
        tokio::select! {
            outcome = &mut sent => outcome.unwrap_or(Outcome::Lost),
            () = limit => {
                tokio::spawn(resolve_late(gateway, sent, open));
                Outcome::TimedOut
            }
        }
    }

    async fn send(self, sending: OutgoingCall) -> Outcome {
        let Self {
            proxy,
            target,
            mut headers,
            id,
            events,
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
            Err(error) if is_connect_failure(&error) => {
                return Outcome::NotSent("the server can't be reached");
            }
            Err(_) => return Outcome::Lost,
        };
        let (mut head, body) = response.into_parts();
        if head.status.is_success() && is_event_stream(&head.headers) {
            let resume_limit = ResumeLimit::for_calls(&proxy.gateway);
            let mut stream = Stream::new(&proxy.upstream, &target, headers, body, resume_limit);
            while let Some(said) = stream.next().await {
                if is_response_to(&said.text, &id) {
                    return Outcome::Answered(said.text);
                }
                // The caller may have disconnected.
                let _ = events.send(said.encode()).await;
            }
            return Outcome::Lost;
        }
        let Some(text) = read_whole(body).await else {
            return Outcome::Lost;
        };
        if head.status.is_success() && is_response_to(&text, &id) {
            return Outcome::Answered(text);
        }
        strip_hop_by_hop(&mut head.headers);
        head.headers.remove(CONTENT_LENGTH);
        Outcome::Http(Arc::new(HttpReply {
            status: head.status,
            headers: head.headers,
            body: text,
        }))
    }
}

async fn resolve_late(
    gateway: Arc<Gateway>,
    sent: tokio::task::JoinHandle<Outcome>,
    open: crate::gateway::OpenDoubt,
) {
    if let Ok(Outcome::Answered(message)) = sent.await {
        gateway.resolve_late(&open, &message).await;
    }
}
