//! Requests that change the protocol to WebSocket. To no other: a service that changes to HTTP/2, say, would get requests
//! that nobody here has seen.

use http::header;
use http::{HeaderValue, Response};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_util::task::TaskTracker;

use crate::listener::Place;

/// A client that wants to change the protocol.
pub(super) struct Wanted {
    pub(super) protocol: HeaderValue,
    pub(super) client: OnUpgrade,
    /// Its place among the connections, which it keeps.
    pub(super) place: Option<Place>,
}

/// Joins the two connections, from here on without a look at what passes.
pub(super) fn join(response: &mut Response<Incoming>, wanted: Wanted, tunnels: &TaskTracker) {
    let service = hyper::upgrade::on(response);
    tunnels.spawn(async move {
        let _place = wanted.place;
        let joined = tokio::try_join!(wanted.client, service);
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
