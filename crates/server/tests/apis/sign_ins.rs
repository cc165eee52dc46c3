//! Failed sign-ins at the admin API.

use axum::Extension;
use semel_server::admin::{self, AdminConfig, AdminState};
use semel_server::operators::Credential;
use semel_server::web::Peer;
use serde_json::Value;

use crate::support::{ADMIN, Reply, Server, call, serve};

const WRONG: &str = "a-token-that-nobody-has";

/// An admin API whose callers all have this address. Those with the same state share its counts.
async fn admin_for(state: &AdminState, address: &str) -> String {
    let peer = Peer {
        address: format!("{address}:4000").parse().expect("an address"),
        is_tls: false,
        has_certificate: false,
        certificate_name: None,
        certificate: None,
    };
    serve(admin::router(state.clone()).layer(Extension(peer))).await
}

fn state_of(server: &Server) -> AdminState {
    let credential = Credential::token(ADMIN).expect("a token");
    let (semel, trail) = (server.semel.clone(), server.trail.clone());
    AdminState::new(semel, trail, credential, AdminConfig::default())
}

async fn sign_in(admin: &str, token: &str) -> Reply {
    call(admin, "GET", "/admin/v1/records", Some(token), "").await
}

async fn failures_of(server: &Server) -> Vec<Value> {
    let mut entries = server.audited().await;
    entries.retain(|entry| entry["type"] == "admin.sign_in.failed");
    entries
}

/// Guesses until the address is refused, and returns the number of guesses and the refusal.
async fn guess(admin: &str) -> (usize, Reply) {
    for guesses in 0..50 {
        let reply = sign_in(admin, WRONG).await;
        if reply.status != 401 {
            return (guesses, reply);
        }
    }
    panic!("50 guesses were answered");
}

#[tokio::test]
async fn failed_sign_ins_are_audited_without_their_token() {
    let server = Server::start("memory://").await;
    let admin = admin_for(&state_of(&server), "192.0.2.7").await;
    assert_eq!(sign_in(&admin, ADMIN).await.status, 200);
    let anonymous = call(&admin, "GET", "/admin/v1/records", None, "").await;
    assert_eq!(anonymous.status, 401);
    assert_eq!(failures_of(&server).await.len(), 0, "nobody has failed yet");
    assert_eq!(sign_in(&admin, WRONG).await.status, 401);
    let failures = failures_of(&server).await;
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(failures[0]["detail"]["address"], "192.0.2.7");
    assert!(!failures[0].to_string().contains(WRONG), "{failures:?}");
}

#[tokio::test]
async fn address_with_many_failed_sign_ins_must_wait() {
    let server = Server::start("memory://").await;
    let state = state_of(&server);
    let admin = admin_for(&state, "192.0.2.7").await;
    let (guesses, refused) = guess(&admin).await;
    assert_eq!((guesses, refused.status), (10, 429), "{}", refused.text);
    assert_eq!(refused.code(), "rate_limited");
    let wait: u64 = refused.headers["retry-after"]
        .to_str()
        .expect("text")
        .parse()
        .expect("seconds");
    // Some time is added, so that callers do not come back at once.
    assert!((1..=120).contains(&wait), "{wait}");
    // A right guess would not be answered either.
    assert_eq!(sign_in(&admin, ADMIN).await.status, 429);
    let elsewhere = admin_for(&state, "192.0.2.8").await;
    assert_eq!(sign_in(&elsewhere, ADMIN).await.status, 200);
    assert_eq!(failures_of(&server).await.len(), 10, "the trail is no sink");
}

/// Another program on the operator's machine cannot lock the operator out.
#[tokio::test]
async fn operator_who_was_signed_in_is_not_locked_out() {
    let server = Server::start("memory://").await;
    let admin = admin_for(&state_of(&server), "127.0.0.1").await;
    assert_eq!(sign_in(&admin, ADMIN).await.status, 200);
    guess(&admin).await;
    assert_eq!(sign_in(&admin, ADMIN).await.status, 200);
    assert_eq!(sign_in(&admin, WRONG).await.status, 429);
}
