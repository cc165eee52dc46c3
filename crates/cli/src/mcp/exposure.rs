//! Refuses a gateway that would serve other machines without authentication, or tokens without
//! encryption.

use std::net::SocketAddr;

use super::Mcp;
use crate::exit::{self, Exit};

/// Checks the addresses that other machines can reach. `lends_credential`: the gateway sends a
/// credential of its own.
pub(super) fn check(mcp: &Mcp, lends_credential: bool) -> Result<(), Exit> {
    let refusal = check_listener(mcp, lends_credential).or_else(|| check_admin(mcp));
    refusal.map_or(Ok(()), |message| Err(Exit::failed(exit::CONFIG, message)))
}

fn check_listener(mcp: &Mcp, lends_credential: bool) -> Option<&'static str> {
    if !mcp.listen.is_some_and(is_remote) {
        return None;
    }
    if mcp.listen_token_file.is_some() {
        let is_encrypted = mcp.listen_cert_file.is_some() || mcp.insecure_tokens;
        return (!is_encrypted).then_some(
            "tokens of clients on other machines would be unencrypted\n    fix: --listen-cert-file and \
             --listen-key-file, or --insecure-tokens if something else encrypts the connection",
        );
    }
    if lends_credential {
        return Some(
            "everybody who reaches this address would use the credential of --header\n    fix: \
             --listen-token-file FILE, or --listen 127.0.0.1:PORT",
        );
    }
    if mcp.principal_header.is_some() {
        return Some(
            "everybody who reaches this address could name any caller in --principal-header\n    fix: \
             --listen-token-file FILE, with a token that the proxy in front sends, or --listen 127.0.0.1:PORT",
        );
    }
    mcp.target.upstream.is_none().then_some(
        "a server command does not authenticate its callers\n    fix: --listen-token-file FILE, or \
         --listen 127.0.0.1:PORT",
    )
}

fn check_admin(mcp: &Mcp) -> Option<&'static str> {
    let is_open = mcp.args.admin.is_some_and(is_remote) && !mcp.insecure_tokens;
    is_open.then_some(
        "--admin: the tokens of operators on other machines would be unencrypted\n    fix: --admin \
         127.0.0.1:PORT, or --insecure-tokens if something else encrypts the connection",
    )
}

fn is_remote(address: SocketAddr) -> bool {
    !address.ip().is_loopback()
}
