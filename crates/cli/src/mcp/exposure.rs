//! What a gateway that other machines can reach must not do.

use std::net::SocketAddr;

use super::Mcp;
use crate::exit::{self, Exit};

/// Refuses settings under which other machines could use what is the gateway's or its callers' alone.
pub(super) fn check(mcp: &Mcp, lends_credential: bool) -> Result<(), Exit> {
    let refused = mcp.listen.and_then(|listen| {
        let guarded = mcp.listen_token_file.is_some();
        let in_the_clear = mcp.listen_cert_file.is_none() && !mcp.insecure_tokens;
        match is_remote(listen) {
            false => None,
            true if guarded && in_the_clear => Some(
                "tokens of clients on other machines would be unencrypted\n    fix: --listen-cert-file and \
                 --listen-key-file, or --insecure-tokens if something else encrypts the connection",
            ),
            true if guarded => None,
            true if lends_credential => Some(
                "everybody who reaches this address would use the credential of --header\n    fix: \
                 --listen-token-file FILE, or --listen 127.0.0.1:PORT",
            ),
            true if mcp.principal_header.is_some() => Some(
                "everybody who reaches this address could name any caller in --principal-header\n    fix: \
                 --listen-token-file FILE, with a token that the proxy in front sends, or --listen 127.0.0.1:PORT",
            ),
            true if mcp.target.upstream.is_none() => Some(
                "a server command does not authenticate its callers\n    fix: --listen-token-file FILE, or \
                 --listen 127.0.0.1:PORT",
            ),
            true => None,
        }
    });
    let admin = mcp.args.admin.is_some_and(is_remote) && !mcp.insecure_tokens;
    let refused = refused.or(admin.then_some(
        "--admin: the tokens of operators on other machines would be unencrypted\n    fix: --admin \
         127.0.0.1:PORT, or --insecure-tokens if something else encrypts the connection",
    ));
    match refused {
        Some(message) => Err(Exit::failed(exit::CONFIG, message)),
        None => Ok(()),
    }
}

fn is_remote(address: SocketAddr) -> bool {
    !address.ip().is_loopback()
}
