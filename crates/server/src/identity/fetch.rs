//! Fetches a JWKS from its URL: at intervals, and when a token names an unknown key.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use semel::core::Env;

use super::keys::Keys;
use super::tokens::TokenVerifier;
use crate::config::Algorithm;
use crate::tls::{self, TlsError};

/// The maximum size of a JWKS.
const MAX_BYTES: usize = 1024 * 1024;
/// How long a fetch may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// The minimum pause between two fetches, so that made-up key ids cannot flood the provider.
const MIN_PAUSE: Duration = Duration::from_secs(10);

type JwksClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Starts the task that fetches the keys as long as `tokens` is in use.
pub(super) fn start(tokens: &Arc<TokenVerifier>, env: &Env) -> Result<(), TlsError> {
    let jwt = tokens.settings();
    let Some(url) = jwt.jwks_url.clone() else {
        return Ok(());
    };
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls::with_native_roots()?)
        .https_or_http()
        .enable_http1()
        .build();
    let client: JwksClient = Client::builder(TokioExecutor::new()).build(connector);
    let (algorithm, every) = (jwt.algorithm, jwt.jwks_every.0);
    let (tokens, clock) = (Arc::downgrade(tokens), Arc::clone(&env.clock));
    let task = async move {
        loop {
            let fetched = clock
                .timeout(FETCH_TIMEOUT, fetch(&client, &url, algorithm))
                .await;
            let fetched = fetched.unwrap_or_else(|_| Err("no response in time".to_owned()));
            let Some(tokens) = Weak::upgrade(&tokens) else {
                return;
            };
            let wait = match fetched {
                Ok(keys) => {
                    tokens.fetched.store(Arc::new(keys));
                    every
                }
                // The last fetched keys stay in use.
                Err(why) => {
                    tracing::warn!(why, "jwt.jwks_url: the keys can't be fetched");
                    MIN_PAUSE
                }
            };
            clock.sleep(MIN_PAUSE.min(wait)).await;
            tokio::select! {
                () = clock.sleep(wait.saturating_sub(MIN_PAUSE)) => {}
                () = tokens.unknown.notified() => {}
            }
        }
    };
    env.spawn.spawn(Box::pin(task));
    Ok(())
}

async fn fetch(client: &JwksClient, url: &str, algorithm: Algorithm) -> Result<Keys, String> {
    let request = http::Request::get(url).header("accept", "application/json");
    let request = request
        .body(Full::default())
        .map_err(|error| error.to_string())?;
    let answer = client.request(request).await;
    let answer = answer.map_err(|error| error.to_string())?;
    if !answer.status().is_success() {
        return Err(format!("the server answered {}", answer.status().as_u16()));
    }
    let body = Limited::new(answer.into_body(), MAX_BYTES).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    Keys::from_jwks(&body, algorithm)
}
