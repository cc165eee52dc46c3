//! A connection, from its first byte to its last: how long it may be idle, and how long it may live.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use hyper_util::server::graceful::GracefulConnection;
use tokio_util::sync::CancellationToken;

use super::Bounds;
use super::watch::Requests;

/// How long a connection beyond the bound may stay.
const BRIEFLY: Duration = Duration::from_secs(2);

/// Serves a connection that came when there were as many as may be.
pub(super) async fn briefly(connection: impl Future) {
    let _ = tokio::time::timeout(BRIEFLY, connection).await;
}

/// Serves a connection until it has ended; asks its client to leave when it is time to.
pub(super) async fn drive<C>(
    connection: C,
    requests: &Requests,
    bounds: Bounds,
    stop: &CancellationToken,
) where
    C: GracefulConnection,
    C::Error: std::fmt::Display,
{
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Ok(ended),
        () = over(requests, bounds, stop) => {
            connection.as_mut().graceful_shutdown();
            Ok(connection.await)
        }
        // hyper's own limit begins with the first byte; a client that sends none is seen here.
        () = requests.overdue(bounds.head_timeout) => Err("a client sent no request in time"),
    };
    log(&ended);
}

fn log(ended: &Result<Result<(), impl std::fmt::Display>, &str>) {
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection ended badly"),
        Err(why) => tracing::debug!("{why}"),
    }
}

/// Completes when a connection should end.
async fn over(requests: &Requests, bounds: Bounds, stop: &CancellationToken) {
    tokio::select! {
        () = requests.idle(bounds.head_timeout) => {}
        _ = tokio::time::timeout(bounds.age, pending::<()>()) => {}
        () = stop.cancelled() => {}
    }
}
