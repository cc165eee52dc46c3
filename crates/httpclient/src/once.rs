//! One request on a connection of its own.

use std::convert::Infallible;
use std::future::pending;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderValue, Request, Uri};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::answer::Answer;
use crate::{BodyError, any_body};

/// A request to a whole URL, with a body of JSON.
///
/// # Panics
/// Where the URL is none.
#[must_use]
pub fn json(method: &str, url: &str, body: &(impl ToString + ?Sized)) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(url);
    let request = request.header(CONTENT_TYPE, "application/json");
    let request = request.body(Full::from(body.to_string()));
    request.expect("a URL")
}

/// Sends a request to the server that its URL names, and reads its whole answer.
///
/// # Panics
/// Where there is none.
pub async fn send<B>(request: Request<B>) -> Answer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    let answer = try_send(request).await;
    answer.unwrap_or_else(|error| panic!("no answer: {error}"))
}

/// Like [`send`], where there may be no answer. Whoever drops it hangs up.
///
/// # Errors
/// Where there is no whole answer.
pub async fn try_send<B>(mut request: Request<B>) -> Result<Answer, BodyError>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    let uri = request.uri().clone();
    let server = uri.authority().ok_or("the URL names no server")?.as_str();
    let host = HeaderValue::from_str(server)?;
    request.headers_mut().entry(HOST).or_insert(host);
    *request.uri_mut() = uri
        .path_and_query()
        .map_or_else(Uri::default, |path| path.clone().into());
    let stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async {
        let response = sender.send_request(request.map(any_body)).await?;
        Ok(Answer::read(response).await?)
    };
    // On this task: whoever gives up takes the connection along.
    let connection = async {
        let _ = connection.await;
        pending::<Infallible>().await
    };
    tokio::select! {
        answer = exchange => answer,
        never = connection => match never {},
    }
}
