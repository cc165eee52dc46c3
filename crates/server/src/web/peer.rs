//! [`Peer`]: the client end of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use semel_http::ClientCertificate;

/// The client end of a connection. Every request carries it in its extensions.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The address of the peer.
    pub address: SocketAddr,
    /// Whether the connection is encrypted.
    pub is_tls: bool,
    /// Whether it has presented a certificate that was verified.
    pub has_certificate: bool,
    /// The name in its certificate.
    pub certificate_name: Option<Arc<str>>,
    /// The digest of its certificate.
    pub certificate: Option<ClientCertificate>,
}
