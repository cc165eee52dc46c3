//! A tonic server under the layer, and calls to it.

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

use crate::support::{Runs, pause};

pub(super) type Text = ProstCodec<String, String>;

/// Charges what it is told to; what it is told decides how it ends.
#[derive(Clone, Default)]
pub(super) struct Charges(Runs);

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

pub(super) struct Rig {
    pub(super) semel: Semel,
    pub(super) runs: Runs,
    channel: Channel,
}

impl Rig {
    pub(super) async fn new(route: Route) -> Self {
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

    pub(super) async fn grpc(&self) -> tonic::client::Grpc<Channel> {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready().await.expect("a connection");
        grpc
    }

    pub(super) async fn charge(&self, key: &str, what: &str) -> Result<Response<String>, Status> {
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

pub(super) fn keyed<T>(message: T, key: &str) -> Request<T> {
    let mut request = Request::new(message);
    if !key.is_empty() {
        let key = key.parse().expect("a value");
        request.metadata_mut().insert("idempotency-key", key);
    }
    request
}

pub(super) fn is_replay(metadata: &MetadataMap) -> bool {
    metadata
        .get("idempotent-replayed")
        .is_some_and(|value| value == "true")
}

pub(super) fn code(status: &Status) -> &str {
    let code = status.metadata().get("idempotency-code");
    code.map_or("", |code| code.to_str().expect("text"))
}
