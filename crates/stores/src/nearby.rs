//! Whether a server is on this machine: what goes to another one is encrypted, and the server is who it should be.

use std::net::IpAddr;

/// Whether a host's name or address, or a socket's path, leads to this machine.
pub(crate) fn is_here(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.is_empty()
        || host.starts_with('/')
        || host.eq_ignore_ascii_case("localhost")
        || address
            .parse::<IpAddr>()
            .is_ok_and(|ip| ip.to_canonical().is_loopback())
}
