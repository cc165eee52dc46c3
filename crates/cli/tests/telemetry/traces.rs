//! Traces, as an OTLP receiver gets them.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message as _;

use super::support::{Rig, pause, send};

/// A receiver of spans, and what it was sent.
#[derive(Clone, Default)]
struct Receiver {
    raw: Arc<Mutex<Vec<Bytes>>>,
}

impl Receiver {
    async fn start(&self) -> SocketAddr {
        let raw = Arc::clone(&self.raw);
        let take = move |body: Bytes| async move { raw.lock().push(body) };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        let router = Router::new().route("/v1/traces", post(take));
        tokio::spawn(async move { axum::serve(listener, router).await });
        address
    }

    fn spans(&self) -> Vec<Span> {
        let raw = self.raw.lock();
        raw.iter()
            .map(|body| ExportTraceServiceRequest::decode(&body[..]).expect("OTLP"))
            .flat_map(|request| request.resource_spans)
            .flat_map(|spans| spans.scope_spans)
            .flat_map(|spans| spans.spans)
            .collect()
    }
}

fn attribute(span: &Span, name: &str) -> String {
    let found = span
        .attributes
        .iter()
        .find(|attribute| attribute.key == name);
    match found
        .and_then(|found| found.value.clone())
        .and_then(|value| value.value)
    {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("{name} is {other:?} of {span:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const KEY: &str = "order-which-nobody-may-read-0815";

async fn ask(rig: &Rig, with_trace: bool) -> (u16, String) {
    let mut request = Request::post(format!("http://{}/traced", rig.address))
        .header("content-type", "application/json")
        .header("idempotency-key", KEY);
    if with_trace {
        request = request.header("traceparent", format!("00-{TRACE}-{PARENT}-01"));
    }
    send(request.body(Full::from("{}")).expect("a request")).await
}

#[tokio::test]
#[ignore = "needs servers"]
async fn retries_are_found_together_by_the_keys_hash() {
    let receiver = Receiver::default();
    let address = receiver.start().await;
    let rig = Rig::start(&format!("traces.otlp_endpoint = \"http://{address}\"\n")).await;
    let (status, handed_on) = ask(&rig, true).await;
    assert_eq!(status, 200);
    assert_eq!(ask(&rig, false).await, (200, handed_on.clone()), "a replay");
    let mut spans = receiver.spans();
    for _ in 0..1500 {
        if spans.len() >= 2 {
            break;
        }
        pause().await;
        spans = receiver.spans();
    }
    let [first, second] = &spans[..] else {
        panic!("{spans:?}");
    };
    assert_eq!(hex(&first.trace_id), TRACE);
    assert_eq!(hex(&first.parent_span_id), PARENT);
    assert_ne!(hex(&second.trace_id), TRACE, "a trace of its own");
    let ours = hex(&first.span_id);
    assert_eq!(
        handed_on,
        format!("00-{TRACE}-{ours}-01"),
        "the service is below our span"
    );
    let hash = attribute(first, "semel.key_hash");
    assert_eq!(hash.len(), 64);
    assert_eq!(attribute(second, "semel.key_hash"), hash);
    assert_eq!(attribute(first, "semel.outcome"), "ran");
    assert_eq!(attribute(first, "semel.attempt"), "1");
    assert_eq!(attribute(second, "semel.outcome"), "replayed");
    assert_eq!(attribute(second, "http.response.status_code"), "200");
    for body in receiver.raw.lock().iter() {
        let text = String::from_utf8_lossy(body);
        assert!(!text.contains(KEY) && !text.contains(&KEY[8..]));
    }
}

#[tokio::test]
#[ignore = "needs servers"]
async fn without_an_endpoint_the_clients_trace_passes_as_it_is() {
    let rig = Rig::start("").await;
    let (_, handed_on) = ask(&rig, true).await;
    assert_eq!(handed_on, format!("00-{TRACE}-{PARENT}-01"));
}
