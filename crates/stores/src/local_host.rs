//! Detects servers on this machine. Connections to other machines are encrypted, and verify the
//! server.

use std::net::IpAddr;

/// Whether a host name, an address or a socket path is on this machine.
pub(crate) fn is_local(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.is_empty()
        || host.starts_with('/')
        || host.eq_ignore_ascii_case("localhost")
        || address
            .parse::<IpAddr>()
            .is_ok_and(|ip| ip.to_canonical().is_loopback())
}
