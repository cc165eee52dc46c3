//! A check at start whether the upstream services can be reached.

#![expect(clippy::disallowed_methods, reason = "a limit of real sockets")]

use std::time::Duration;

use crate::config::without_password;

/// How long connecting may take before a warning.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Warns of unreachable services. They may still be starting, so this does not prevent a start.
pub(super) async fn warn_of_unreachable(urls: Vec<String>) {
    for url in urls {
        let Some((host, port)) = host_and_port(&url) else {
            continue;
        };
        let connecting = tokio::net::TcpStream::connect((host.as_str(), port));
        let shown = without_password(&url);
        match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(
                "the service at {shown} is not reachable yet ({error}); requests get 502 until it \
                 is: is it running, and is the port right?"
            ),
            Err(_) => tracing::warn!(
                "the service at {shown} does not answer yet; requests get 502 until it does"
            ),
        }
    }
}

fn host_and_port(url: &str) -> Option<(String, u16)> {
    let uri: http::Uri = url.parse().ok()?;
    let port = uri
        .port_u16()
        .unwrap_or(if uri.scheme_str() == Some("https") {
            443
        } else {
            80
        });
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    Some((host.to_owned(), port))
}
