//! The lifetime of a connection: idle timeout, maximum age, maximum resets, graceful shutdown.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use hyper_util::server::graceful::GracefulConnection;
use tokio_util::sync::CancellationToken;

use super::Bounds;
use super::activity::ConnectionActivity;

/// How many requests of an HTTP/2 connection a client may reset at once before their responses. A
/// reset frees the stream at once, but not what the service has begun, so resets evade the limit of
/// concurrent streams (rapid reset). Then the client is asked to reconnect; after twice as many,
/// the connection ends.
const MAX_RESETS: u32 = 128;

/// How long a connection over the limit may stay.
pub(super) const OVER_LIMIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves a connection over the limit for a short time.
pub(super) async fn serve_briefly(connection: impl Future) {
    let _ = tokio::time::timeout(OVER_LIMIT_TIMEOUT, connection).await;
}

/// Serves a connection until it ends. Starts a graceful shutdown when it is idle, too old or
/// stopped, or when its client resets too many requests.
pub(super) async fn serve_connection<C>(
    connection: C,
    activity: &ConnectionActivity,
    bounds: Bounds,
    stop: &CancellationToken,
) where
    C: GracefulConnection,
    C::Error: std::fmt::Display,
{
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Ok(ended),
        () = wait_for_shutdown(activity, bounds, stop) => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection => Ok(ended),
                why = wait_for_cut_off(activity, bounds) => Err(why),
            }
        }
        // hyper's timeout starts with the first byte. This one covers clients that send nothing.
        () = activity.first_request_overdue(bounds.head_timeout) => {
            Err("a client sent no request in time")
        }
    };
    log_end(&ended);
}

fn log_end(ended: &Result<Result<(), impl std::fmt::Display>, &str>) {
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection ended with an error"),
        Err(why) => tracing::debug!("{why}"),
    }
}

/// Completes when a connection should shut down.
async fn wait_for_shutdown(
    activity: &ConnectionActivity,
    bounds: Bounds,
    stop: &CancellationToken,
) {
    tokio::select! {
        () = activity.idle(bounds.head_timeout) => {}
        () = activity.resets_exceed(MAX_RESETS) => {}
        _ = tokio::time::timeout(bounds.age, pending::<()>()) => {}
        () = stop.cancelled() => {}
    }
}

/// Completes with a reason when an HTTP/2 connection that shuts down must end at once.
async fn wait_for_cut_off(activity: &ConnectionActivity, bounds: Bounds) -> &'static str {
    tokio::select! {
        // The end of a response may be unread.
        () = activity.idle(bounds.write_timeout) => "a client did not end its connection in time",
        () = activity.resets_exceed(2 * MAX_RESETS) => "a client reset too many requests",
    }
}
