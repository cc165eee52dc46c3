//! Requests through the tower layer on the memory store, and through no layer.

use std::convert::Infallible;

use anyhow::ensure;
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use semel::Semel;
use semel::http::{Body, IDEMPOTENT_REPLAYED};
use tower::{Layer as _, Service, ServiceExt as _, service_fn};

use crate::keys::keys;

const ORDER: &str = r#"{"customer":"cus_81","cents":4200}"#;
const RECEIPT: &str = r#"{"id":"ch_1","customer":"cus_81","charged":4200}"#;

/// What the layer does with a request.
#[derive(Clone, Copy)]
pub(crate) enum Case {
    NewKey,
    Replay,
    NoKey,
}

/// Requests without the layer.
pub(crate) async fn without(times: u64) -> anyhow::Result<()> {
    send(service_fn(charge), times, Case::NewKey, false).await
}

/// Requests through the layer.
pub(crate) async fn with(times: u64, case: Case) -> anyhow::Result<()> {
    let semel = Semel::open("memory://?capacity=1000000").await?;
    let service = semel.http().layer(service_fn(charge));
    let replays = matches!(case, Case::Replay);
    send(service, times, case, replays).await?;
    // Leaks the records, which is no part of the operation.
    std::mem::forget(semel);
    Ok(())
}

async fn charge(request: Request<Body>) -> Result<Response<Body>, Infallible> {
    // A handler reads its payload.
    let read = request.into_body().collect().await;
    let status = match read {
        Ok(_) => StatusCode::CREATED,
        Err(_) => StatusCode::BAD_REQUEST,
    };
    let mut response = Response::new(Body::from(RECEIPT));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    headers.insert(
        header::LOCATION,
        header::HeaderValue::from_static("/charges/ch_1"),
    );
    Ok(response)
}

async fn send<S>(service: S, times: u64, case: Case, replays: bool) -> anyhow::Result<()>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone,
    S::Error: std::error::Error + Send + Sync + 'static,
{
    let keys = match case {
        Case::Replay => keys(|_| 0),
        Case::NewKey | Case::NoKey => keys(|i| i),
    };
    for (number, key) in (0..times).zip(keys) {
        let mut request =
            Request::post("/charges").header(header::CONTENT_TYPE, "application/json");
        if !matches!(case, Case::NoKey) {
            request = request.header("idempotency-key", key);
        }
        let body = Body::new(Full::new(Bytes::from_static(ORDER.as_bytes())));
        let response = service.clone().oneshot(request.body(body)?).await?;
        let replayed = response.headers().contains_key(IDEMPOTENT_REPLAYED);
        ensure!(
            response.status() == StatusCode::CREATED,
            "{}",
            response.status()
        );
        // The first request of a key runs.
        ensure!(
            replayed == (replays && number > 0),
            "not what was to be measured"
        );
        let sent = response.into_body().collect().await;
        ensure!(
            sent.is_ok_and(|body| body.to_bytes() == RECEIPT),
            "another body"
        );
    }
    Ok(())
}
