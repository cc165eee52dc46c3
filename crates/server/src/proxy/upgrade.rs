//! Requests that change the protocol: WebSocket, and whatever else `Upgrade` names.

use http::header;
use http::{HeaderValue, Response};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_util::task::TaskTracker;

/// Joins the two connections, from here on without a look at what passes.
pub(super) fn join(response: &mut Response<Incoming>, client: OnUpgrade, tunnels: &TaskTracker) {
    let service = hyper::upgrade::on(response);
    tunnels.spawn(async move {
        let joined = tokio::try_join!(client, service);
        let Ok((client, service)) = joined else {
            tracing::debug!("a change of protocol was agreed on and then not made");
            return;
        };
        let (mut client, mut service) = (TokioIo::new(client), TokioIo::new(service));
        // Either end may break at any time; that is how such connections end.
        let _ = tokio::io::copy_bidirectional(&mut client, &mut service).await;
    });
}

/// The head of the answer, with what was taken out as belonging to one connection.
pub(super) fn agree(headers: &mut http::HeaderMap, protocol: Option<HeaderValue>) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(protocol) = protocol {
        headers.insert(header::UPGRADE, protocol);
    }
}
