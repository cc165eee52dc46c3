//! gRPC through tonic, with the same layer.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use semel::Semel;
use semel::http::{IdempotencyLayer, Route};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{self, uri::PathAndQuery};
use tonic::metadata::MetadataMap;
use tonic::server::{ClientStreamingService, NamedService, ServerStreamingService, UnaryService};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::support::{Runs, pause, until};

type Text = ProstCodec<String, String>;

/// Charges what it is told to; what it is told decides how it ends.
#[derive(Clone, Default)]
struct Charges(Runs);

impl NamedService for Charges {
    const NAME: &'static str = "test.Charges";
}

impl Charges {
    async fn charge(self, what: String) -> Result<Response<String>, Status> {
        let n = self.0.begin();
        if what == "slow" {
            pause(200).await;
        }
        self.0.end();
        let status = match what.as_str() {
            "declined" => {
                Status::with_details(Code::FailedPrecondition, "döner", vec![1, 2].into())
            }
            "unavailable" => Status::unavailable("provider"),
            "busy" => Status::resource_exhausted("later"),
            "panic" => panic!("on purpose"),
            _ => {
                let mut response = Response::new(format!("{what} {n}"));
                let id = n.to_string().parse().expect("a value");
                response.metadata_mut().insert("x-charge-id", id);
                return Ok(response);
            }
        };
        Err(status)
    }
}

impl UnaryService<String> for Charges {
    type Response = String;
    type Future = BoxFuture<'static, Result<Response<String>, Status>>;

    fn call(&mut self, request: Request<String>) -> Self::Future {
        Box::pin(self.clone().charge(request.into_inner()))
    }
}

impl ClientStreamingService<String> for Charges {
    type Response = String;
    type Future = BoxFuture<'static, Result<Response<String>, Status>>;

    fn call(&mut self, request: Request<Streaming<String>>) -> Self::Future {
        let charges = self.clone();
        Box::pin(async move {
            let count = request.into_inner().count().await;
            charges.charge(count.to_string()).await
        })
    }
}

impl ServerStreamingService<String> for Charges {
    type Response = String;
    type ResponseStream = BoxStream<'static, Result<String, Status>>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, _: Request<String>) -> Self::Future {
        let n = self.0.begin();
        let parts = (0..3).map(move |part| Ok(format!("part {part} of {n}")));
        Box::pin(async move { Ok(Response::new(stream::iter(parts).boxed())) })
    }
}

impl Service<http::Request<Body>> for Charges {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let charges = self.clone();
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(Text::default());
            Ok(match request.uri().path() {
                "/test.Charges/Upload" => grpc.client_streaming(charges, request).await,
                "/test.Charges/Watch" => grpc.server_streaming(charges, request).await,
                _ => grpc.unary(charges, request).await,
            })
        })
    }
}

struct Rig {
    semel: Semel,
    runs: Runs,
    channel: Channel,
}

impl Rig {
    async fn new(route: Route) -> Self {
        let semel = Semel::open("memory://").await.expect("a store");
        let layer = semel.http_builder().defaults(route).build();
        let charges = Charges::default();
        let runs = charges.0.clone();
        let address = serve(charges, layer.expect("a layer")).await;
        let endpoint = Channel::from_shared(format!("http://{address}")).expect("an address");
        Self {
            semel,
            runs,
            channel: endpoint.connect().await.expect("a connection"),
        }
    }

    async fn grpc(&self) -> tonic::client::Grpc<Channel> {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready().await.expect("a connection");
        grpc
    }

    async fn charge(&self, key: &str, what: &str) -> Result<Response<String>, Status> {
        let request = keyed(what.to_owned(), key);
        let path = PathAndQuery::from_static("/test.Charges/Charge");
        self.grpc()
            .await
            .unary(request, path, Text::default())
            .await
    }
}

async fn serve(charges: Charges, layer: IdempotencyLayer) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let server = tonic::transport::Server::builder()
        .layer(layer)
        .add_service(charges);
    tokio::spawn(server.serve_with_incoming(incoming));
    address
}

fn keyed<T>(message: T, key: &str) -> Request<T> {
    let mut request = Request::new(message);
    if !key.is_empty() {
        let key = key.parse().expect("a value");
        request.metadata_mut().insert("idempotency-key", key);
    }
    request
}

fn is_replay(metadata: &MetadataMap) -> bool {
    metadata
        .get("idempotent-replayed")
        .is_some_and(|value| value == "true")
}

fn code(status: &Status) -> &str {
    let code = status.metadata().get("idempotency-code");
    code.map_or("", |code| code.to_str().expect("text"))
}

#[tokio::test]
async fn a_unary_call_runs_once_and_its_message_is_replayed() {
    let rig = Rig::new(Route::new().keep_header("x-charge-id")).await;
    let first = rig.charge("k", "book").await.unwrap();
    let second = rig.charge("k", "book").await.unwrap();
    assert!(!is_replay(first.metadata()) && is_replay(second.metadata()));
    assert_eq!(
        (first.get_ref(), second.get_ref()),
        (&"book 1".to_owned(), &"book 1".to_owned())
    );
    assert_eq!(second.metadata().get("x-charge-id").unwrap(), "1");
    assert!(second.metadata().get("x-original-request-time").is_some());
    assert_eq!(rig.runs.begun(), 1);
}

#[tokio::test]
async fn a_final_status_is_replayed_with_message_and_details() {
    let rig = Rig::new(Route::new()).await;
    let first = rig.charge("k", "declined").await.unwrap_err();
    let second = rig.charge("k", "declined").await.unwrap_err();
    assert!(is_replay(second.metadata()));
    for status in [&first, &second] {
        assert_eq!(
            (status.code(), status.message()),
            (Code::FailedPrecondition, "döner")
        );
        assert_eq!(status.details(), [1, 2]);
    }
    assert_eq!(rig.runs.begun(), 1);
}

#[tokio::test]
async fn statuses_that_say_not_now_free_the_key() {
    for (what, hold) in [
        ("unavailable", false),
        ("busy", false),
        ("busy", true),
        ("panic", false),
    ] {
        let route = if hold {
            Route::new().hold()
        } else {
            Route::new()
        };
        let rig = Rig::new(route).await;
        for _ in 0..2 {
            assert!(rig.charge("k", what).await.is_err());
        }
        assert_eq!(rig.runs.begun(), 2, "{what}");
    }
    let rig = Rig::new(Route::new().hold()).await;
    assert_eq!(
        rig.charge("k", "unavailable").await.unwrap_err().code(),
        Code::Unavailable
    );
    let doubt = rig.charge("k", "unavailable").await.unwrap_err();
    assert_eq!(
        (doubt.code(), code(&doubt)),
        (Code::FailedPrecondition, "idempotency_in_doubt")
    );
    assert_eq!(rig.runs.begun(), 1);
}

#[tokio::test]
async fn another_message_under_the_key_is_refused_and_a_key_that_is_none_too() {
    let rig = Rig::new(Route::new()).await;
    rig.charge("k", "book").await.unwrap();
    let conflict = rig.charge("k", "car").await.unwrap_err();
    assert_eq!(
        (conflict.code(), code(&conflict)),
        (Code::FailedPrecondition, "idempotency_conflict")
    );
    let pushback = conflict.metadata().get("grpc-retry-pushback-ms").unwrap();
    assert_eq!(pushback, "-1", "retrying won't help");
    let invalid = rig.charge("no key", "book").await.unwrap_err();
    assert_eq!(invalid.code(), Code::InvalidArgument);
    assert_eq!(rig.runs.begun(), 1);
}

#[tokio::test]
async fn a_call_without_a_key_passes_and_a_required_one_is_asked_for() {
    let rig = Rig::new(Route::new()).await;
    for _ in 0..2 {
        rig.charge("", "book").await.unwrap();
    }
    assert_eq!(rig.runs.begun(), 2);
    let rig = Rig::new(Route::new().require_key()).await;
    let refused = rig.charge("", "book").await.unwrap_err();
    assert_eq!(
        (refused.code(), code(&refused)),
        (Code::InvalidArgument, "idempotency_key_required")
    );
}

#[tokio::test]
async fn concurrent_calls_get_one_answer_and_a_cancelled_one_goes_on() {
    let rig = Rig::new(Route::new()).await;
    let (a, b) = tokio::join!(rig.charge("k", "slow"), rig.charge("k", "slow"));
    assert_eq!(a.unwrap().into_inner(), b.unwrap().into_inner());
    assert_eq!(rig.runs.begun(), 1);
    let cancelled = tokio::time::timeout(
        std::time::Duration::from_millis(50),
        rig.charge("l", "slow"),
    );
    assert!(cancelled.await.is_err());
    until("it ends", || rig.runs.ended() == 2).await;
    assert!(is_replay(rig.charge("l", "slow").await.unwrap().metadata()));
    assert_eq!(rig.semel.engine().running(), 0);
}

#[tokio::test]
async fn streams_pass_without_a_key_and_a_key_on_a_stream_of_requests_is_refused() {
    let rig = Rig::new(Route::new()).await;
    let upload = async |key: &str| {
        let messages = stream::iter(["a".to_owned(), "b".to_owned()]);
        let path = PathAndQuery::from_static("/test.Charges/Upload");
        let mut grpc = rig.grpc().await;
        grpc.client_streaming(keyed(messages, key), path, Text::default())
            .await
    };
    assert_eq!(upload("").await.unwrap().into_inner(), "2 1");
    let refused = upload("k").await.unwrap_err();
    assert_eq!(
        (refused.code(), code(&refused)),
        (Code::Unimplemented, "idempotency_unary_only")
    );
    assert_eq!(rig.runs.begun(), 1);
}

#[tokio::test]
async fn a_stream_of_answers_that_fits_is_replayed_whole() {
    let rig = Rig::new(Route::new()).await;
    for _ in 0..2 {
        let path = PathAndQuery::from_static("/test.Charges/Watch");
        let mut grpc = rig.grpc().await;
        let request = keyed("x".to_owned(), "k");
        let answer = grpc
            .server_streaming(request, path, Text::default())
            .await
            .unwrap();
        let parts: Vec<String> = answer
            .into_inner()
            .map(|part| part.unwrap())
            .collect()
            .await;
        assert_eq!(parts, ["part 0 of 1", "part 1 of 1", "part 2 of 1"]);
    }
    assert_eq!(rig.runs.begun(), 1);
}

#[tokio::test]
async fn a_message_too_large_to_keep_is_said_not_run_again() {
    let policy = semel::Policy {
        max_answer_bytes: 10,
        ..semel::Policy::default()
    };
    let rig = Rig::new(Route::new().policy(policy)).await;
    let what = "a book with a long title";
    assert!(rig.charge("k", what).await.is_ok());
    let told = rig.charge("k", what).await.unwrap_err();
    assert_eq!(
        (told.code(), code(&told)),
        (Code::DataLoss, "idempotency_body_not_kept")
    );
    assert!(is_replay(told.metadata()));
    assert_eq!(rig.runs.begun(), 1);
}
