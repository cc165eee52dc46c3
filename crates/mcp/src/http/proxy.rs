//! Reverse proxy between HTTP callers and an HTTP server. Requests pass one by one, with their
//! sessions, streams and tokens; only tool calls and tool lists are parsed.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{self, ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use parking_lot::Mutex;
use semel::core::Fingerprint;
use semel::core::hex::hex;
use semel::http::{CredentialRules, has_credentials};

use super::client::{
    HttpUpstream, ResumeLimit, Stream, StreamMessage, is_event_stream, read_whole,
};
use super::upstream::is_response_to;
use super::{IDEMPOTENCY_KEY, METHOD, NAME, SESSION};
use crate::answer::Reply;
use crate::call::{Call, Caller};
use crate::gateway::{Gateway, Lookup};
use crate::message::{self, Id, Kind, MAX_BYTES, Message};
use crate::tools::{Catalog, STATUS_TOOL, ToolFacts};

/// How long the server may take to answer a request of the gateway's own.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
const MAX_PAGES: usize = 100;
/// The largest number of servers behind one address whose tools are remembered.
const MAX_SERVERS: usize = 64;

/// Headers that belong to one connection (RFC 9110, 7.6.1).
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// A proxy in front of a server behind HTTP.
pub(crate) struct Proxy {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) upstream: HttpUpstream,
    pub(crate) principal: Option<HeaderName>,
    /// Whether the gateway's own credential is sent to every path, not only to the server's own.
    pub(crate) any_path: bool,
    /// The tool list of each server behind the address, by [`Caller::path`].
    catalogs: Mutex<HashMap<String, Arc<Catalog>>>,
}

impl Proxy {
    pub(crate) fn new(
        gateway: Arc<Gateway>,
        upstream: HttpUpstream,
        principal: Option<HeaderName>,
    ) -> Self {
        // The server that the gateway stands for always has an entry.
        let own = HashMap::from([(String::new(), Arc::default())]);
        Self {
            gateway,
            upstream,
            principal,
            any_path: false,
            catalogs: Mutex::new(own),
        }
    }

    /// The server that a request is for, in the form of [`Caller::path`]. Several servers may share
    /// one address.
    fn path(&self, uri: &Uri) -> String {
        let of = |uri: &Uri| {
            let path = uri.path().trim_end_matches('/');
            format!("{path}?{}", uri.query().unwrap_or_default())
        };
        let path = of(uri);
        match path == of(&self.upstream.uri) {
            true => String::new(),
            false => path,
        }
    }

    fn catalog(&self, path: &str) -> Arc<Catalog> {
        let mut catalogs = self.catalogs.lock();
        if let Some(catalog) = catalogs.get(path) {
            return Arc::clone(catalog);
        }
        // Callers choose the paths, so the number of remembered lists is bounded.
        let catalog = Arc::<Catalog>::default();
        if catalogs.len() < MAX_SERVERS {
            catalogs.insert(path.to_owned(), Arc::clone(&catalog));
        }
        catalog
    }

    pub(crate) async fn handle(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        if self.upstream.has_own_credential() && !self.is_own_path(&parts.uri) {
            return error_response(
                StatusCode::NOT_FOUND,
                "this gateway sends its credential to one path only; \
                 --any-path sends it to every path",
            );
        }
        // Reads the caller before headers are removed, because a client can name any header in
        // `Connection`.
        let caller = identify_caller(&self.gateway, self.principal.as_ref(), &parts.headers);
        strip_hop_by_hop(&mut parts.headers);
        if parts.method != Method::POST {
            return self.pass(&parts, body).await;
        }
        let Ok(body) = Limited::new(body, MAX_BYTES).collect().await else {
            return error_response(StatusCode::PAYLOAD_TOO_LARGE, "the message is too large");
        };
        parts.headers.remove(CONTENT_LENGTH);
        // The gateway parses the answer, so it must not be compressed.
        parts.headers.remove(ACCEPT_ENCODING);
        let message = Message::new(body.to_bytes());
        match (&message.kind, message.method()) {
            (Kind::Request { id, .. }, Some("tools/list")) => {
                let id = id.clone();
                self.list(&parts, &message, &id).await
            }
            (Kind::Request { .. }, Some("tools/call")) => match caller {
                Ok(caller) => self.call(parts, message, caller).await,
                Err(refused) => refused,
            },
            (Kind::Batch, _) if self.gateway.settings.enforces() && batch_has_call(&message) => {
                error_response(
                    StatusCode::BAD_REQUEST,
                    "tool calls are taken one at a time",
                )
            }
            _ => self.pass(&parts, message.text.into()).await,
        }
    }

    async fn call(
        self: Arc<Self>,
        parts: Parts,
        message: Message,
        caller: Caller,
    ) -> Response<Body> {
        let Some(call) = Call::read(&message) else {
            return self.pass(&parts, message.text.into()).await;
        };
        let caller = Caller {
            path: self.path(&parts.uri),
            ..caller
        };
        let catalog = self.catalog(&caller.path);
        self.gateway.report_rewording(&call, &caller, &catalog);
        let own_status = catalog.get(STATUS_TOOL).is_some();
        if call.tool == STATUS_TOOL && self.gateway.settings.enforces() && !own_status {
            return json_response(self.gateway.status(&call, &caller).await);
        }
        if !self.gateway.may_need_key(&call) {
            return self.pass(&parts, message.text.into()).await;
        }
        self.protect(parts, message, call, caller).await
    }

    /// Whether a request is for the server that the gateway stands for.
    fn is_own_path(&self, uri: &Uri) -> bool {
        self.any_path
            || uri.path().trim_end_matches('/') == self.upstream.uri.path().trim_end_matches('/')
    }

    /// The URL to forward to: the server's address with the requested path.
    pub(crate) fn target(&self, parts: &Parts) -> Uri {
        let mut target = self.upstream.uri.clone().into_parts();
        target.path_and_query = parts.uri.path_and_query().cloned();
        Uri::from_parts(target).unwrap_or_else(|_| self.upstream.uri.clone())
    }

    /// Forwards a request and its response unchanged.
    pub(crate) async fn pass(&self, parts: &Parts, body: Body) -> Response<Body> {
        match self.send(parts, body).await {
            Ok(mut response) => {
                strip_hop_by_hop(response.headers_mut());
                response.map(Body::new)
            }
            Err(unreachable) => unreachable,
        }
    }

    async fn send(&self, parts: &Parts, body: Body) -> Result<Response<Incoming>, Response<Body>> {
        let target = self.target(parts);
        let headers = parts.headers.clone();
        let sent = self
            .upstream
            .send(parts.method.clone(), &target, headers, body);
        sent.await.map_err(|error| {
            tracing::warn!("the server can't be reached: {error}");
            error_response(StatusCode::BAD_GATEWAY, "the server can't be reached")
        })
    }

    /// Forwards a list request, and adds the key argument to the page.
    async fn list(&self, parts: &Parts, message: &Message, id: &Id) -> Response<Body> {
        let response = match self.send(parts, message.text.clone().into()).await {
            Ok(response) => response,
            Err(unreachable) => return unreachable,
        };
        let catalog = self.catalog(&self.path(&parts.uri));
        let (mut head, body) = response.into_parts();
        strip_hop_by_hop(&mut head.headers);
        if !is_event_stream(&head.headers) {
            let Some(text) = read_whole(body).await else {
                return error_response(StatusCode::BAD_GATEWAY, "the server's answer broke off");
            };
            let (page, _) = catalog.read_page(&text, &self.gateway.settings);
            head.headers.remove(CONTENT_LENGTH);
            return Response::from_parts(head, page.into());
        }
        let target = self.target(parts);
        let (headers, resume_limit) =
            (parts.headers.clone(), ResumeLimit::for_calls(&self.gateway));
        let mut stream = Stream::new(&self.upstream, &target, headers, body, resume_limit);
        let mut events = Vec::new();
        while let Some(mut said) = stream.next().await {
            let is_end = is_response_to(&said.text, id);
            if is_end {
                said.text = catalog.read_page(&said.text, &self.gateway.settings).0;
            }
            events.extend_from_slice(&said.encode());
            if is_end {
                break;
            }
        }
        head.headers.remove(CONTENT_LENGTH);
        Response::from_parts(head, events.into())
    }

    /// Looks up a tool, and asks the server for its list as this caller if the tool is unknown.
    pub(crate) async fn look_up_tool(
        &self,
        call: &Call,
        parts: &Parts,
        caller: &Caller,
    ) -> Option<ToolFacts> {
        let catalog = self.catalog(&caller.path);
        let whose = match caller.principal.as_str() {
            "" => &caller.credentials,
            principal => principal,
        };
        let is_done = || catalog.needs_no_listing(&call.tool, whose, self.gateway.now());
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            if is_done() {
                break;
            }
            let page = self.request_page(call, parts, cursor.as_deref());
            let page = self.gateway.clock().timeout(REQUEST_LIMIT, page).await;
            let page = page.ok().flatten();
            cursor = page.and_then(|page| catalog.read_page(&page, &self.gateway.settings).1);
            if cursor.is_none() {
                break;
            }
        }
        if !is_done() {
            catalog.mark_failed(whose, self.gateway.now());
        }
        catalog.get(&call.tool)
    }

    /// Requests a page of the server's list. Returns the response message.
    async fn request_page(
        &self,
        call: &Call,
        parts: &Parts,
        cursor: Option<&str>,
    ) -> Option<Bytes> {
        let id = Id(OWN_ID.into());
        let request = OwnRequest {
            method: "tools/list",
            name: None,
            body: call.list_request(&id, cursor),
        };
        self.ask_server(parts, request).await
    }

    /// Sends a request of the gateway's own as the caller of `parts`. Returns the response message.
    pub(crate) async fn ask_server(&self, parts: &Parts, request: OwnRequest) -> Option<Bytes> {
        let target = self.target(parts);
        let mut headers = parts.headers.clone();
        headers.remove(IDEMPOTENCY_KEY);
        if headers.contains_key(METHOD) {
            headers.insert(METHOD, HeaderValue::from_static(request.method));
            headers.remove(NAME);
            let name = request.name.as_deref().map(HeaderValue::from_str);
            headers.extend(name.and_then(Result::ok).map(|name| (NAME, name)));
        }
        let body = request.body.into();
        let sent = self
            .upstream
            .send(Method::POST, &target, headers.clone(), body);
        let response = sent
            .await
            .ok()
            .filter(|response| response.status().is_success())?;
        if !is_event_stream(response.headers()) {
            return read_whole(response.into_body()).await;
        }
        let id = Id(OWN_ID.into());
        let (body, resume_limit) = (response.into_body(), ResumeLimit::for_calls(&self.gateway));
        let mut stream = Stream::new(&self.upstream, &target, headers, body, resume_limit);
        loop {
            let StreamMessage { text, .. } = stream.next().await?;
            if is_response_to(&text, &id) {
                return Some(text);
            }
        }
    }

    /// Makes the lookups for a call that came with `parts`.
    pub(crate) fn lookup(self: &Arc<Self>, parts: &Parts) -> Lookup {
        let (proxy, parts) = (Arc::clone(self), Arc::new(parts.clone()));
        Arc::new(move |lookup| {
            let (proxy, parts) = (Arc::clone(&proxy), Arc::clone(&parts));
            Box::pin(async move {
                let request = OwnRequest {
                    method: "tools/call",
                    name: Some(lookup.rule.tool.clone()),
                    body: lookup.message(&Id(OWN_ID.into())),
                };
                let asked = proxy.ask_server(&parts, request);
                let clock = proxy.gateway.clock();
                Ok(clock.timeout(REQUEST_LIMIT, asked).await.ok().flatten())
            })
        })
    }
}

/// The ID of the gateway's own requests.
const OWN_ID: &str = "\"semel:own\"";

/// A request of the gateway's own.
pub(crate) struct OwnRequest {
    method: &'static str,
    /// The name of the tool, if it is a call.
    name: Option<String>,
    body: Bytes,
}

/// Whether a batch contains a tool call.
pub(crate) fn batch_has_call(batch: &Message) -> bool {
    let messages: Vec<Box<serde_json::value::RawValue>> =
        serde_json::from_slice(&batch.text).unwrap_or_default();
    let mut messages = messages
        .iter()
        .map(|raw| Message::new(Bytes::copy_from_slice(raw.get().as_bytes())));
    messages.any(|message| message.method() == Some("tools/call"))
}

/// Identifies the caller: by the principal header, which must occur exactly once, or else by a
/// digest of the credentials.
#[expect(
    clippy::result_large_err,
    reason = "a refusal is the answer itself, made once"
)]
pub(crate) fn identify_caller(
    gateway: &Gateway,
    principal: Option<&HeaderName>,
    headers: &HeaderMap,
) -> Result<Caller, Response<Body>> {
    let digest = |kind: &[u8], values: &[&[u8]]| {
        let secret = gateway.semel.engine().secret();
        let parts = Fingerprint::builder(secret).part(kind);
        let parts = values.iter().fold(parts, |parts, value| parts.part(value));
        hex(parts.finish().as_bytes())
    };
    let session = headers.get(SESSION).and_then(|value| value.to_str().ok());
    let mut caller = Caller {
        session: session.unwrap_or_default().to_owned(),
        conversation: gateway.settings.conversation.read_header(headers),
        is_remote: true,
        ..Caller::default()
    };
    if let Some(name) = principal {
        let mut lines = headers.get_all(name).iter();
        match (lines.next(), lines.next()) {
            (Some(one), None) if !one.is_empty() => {
                caller.principal = digest(b"mcp-principal", &[one.as_bytes()]);
                return Ok(caller);
            }
            _ => {
                let why = "the header that says who calls is not there exactly once";
                return Err(error_response(StatusCode::FORBIDDEN, why));
            }
        }
    }
    let credentials = CredentialRules::default();
    let counted = credentials.from_headers(headers);
    if has_credentials(&counted) {
        let many: Vec<[u8; 8]> = counted
            .iter()
            .map(|(_, values)| (values.len() as u64).to_le_bytes())
            .collect();
        let mut parts: Vec<&[u8]> = Vec::new();
        for ((name, values), many) in counted.iter().zip(&many) {
            parts.extend([name.as_bytes(), &many[..]]);
            parts.extend(values.iter().map(|value| &**value));
        }
        caller.credentials = digest(b"mcp-credentials", &parts);
    }
    Ok(caller)
}

/// Removes hop-by-hop headers.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

pub(crate) fn error_response(status: StatusCode, text: &str) -> Response<Body> {
    let id = Id("null".into());
    let mut response = json_response(message::error(&id, -32600, text));
    *response.status_mut() = status;
    response
}

pub(crate) fn json_response(message: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(message));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Writes a reply as a complete response.
pub(crate) fn respond(reply: Reply) -> Response<Body> {
    match reply {
        Reply::Message(message) => json_response(message),
        Reply::Http(reply) => {
            let mut response = Response::new(Body::from(reply.body.clone()));
            *response.status_mut() = reply.status;
            *response.headers_mut() = reply.headers.clone();
            response
        }
        Reply::Silence => error_response(StatusCode::REQUEST_TIMEOUT, "the call was cancelled"),
        Reply::NoServer => error_response(StatusCode::BAD_GATEWAY, "the server can't be reached"),
    }
}
