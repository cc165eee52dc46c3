//! Keys of tokens that are at a URL: fetched now and then, and when a token names one that isn't known.

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
use super::tokens::Tokens;
use crate::config::Algorithm;
use crate::tls::{self, TlsError};

/// The most bytes of a set of keys.
const MOST_BYTES: usize = 1024 * 1024;
/// How long fetching it may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The shortest pause between two tries: tokens with made-up key ids must not become requests to the provider.
const PAUSE: Duration = Duration::from_secs(10);

type Fetching = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Fetches the keys for as long as `tokens` is used.
pub(super) fn start(tokens: &Arc<Tokens>, env: &Env) -> Result<(), TlsError> {
    let jwt = tokens.settings();
    let Some(url) = jwt.jwks_url.clone() else {
        return Ok(());
    };
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls::with_native_roots()?)
        .https_or_http()
        .enable_http1()
        .build();
    let client: Fetching = Client::builder(TokioExecutor::new()).build(connector);
    let (algorithm, every) = (jwt.algorithm, jwt.jwks_every.0);
    let (tokens, clock) = (Arc::downgrade(tokens), Arc::clone(&env.clock));
    let task = async move {
        loop {
            let fetched = tokio::time::timeout(PATIENCE, fetch(&client, &url, algorithm)).await;
            let fetched = fetched.unwrap_or_else(|_| Err("it took too long".to_owned()));
            let Some(tokens) = Weak::upgrade(&tokens) else {
                return;
            };
            let wait = match fetched {
                Ok(keys) => {
                    tokens.fetched.store(Arc::new(keys));
                    every
                }
                // The keys that were fetched last stay in use.
                Err(why) => {
                    tracing::warn!(why, "jwt.jwks_url: the keys of tokens can't be fetched");
                    PAUSE
                }
            };
            clock.sleep(PAUSE.min(wait)).await;
            tokio::select! {
                () = clock.sleep(wait.saturating_sub(PAUSE)) => {}
                () = tokens.unknown.notified() => {}
            }
        }
    };
    env.spawn.spawn(Box::pin(task));
    Ok(())
}

async fn fetch(client: &Fetching, url: &str, algorithm: Algorithm) -> Result<Keys, String> {
    let request = http::Request::get(url).header("accept", "application/json");
    let request = request
        .body(Full::default())
        .map_err(|error| error.to_string())?;
    let answer = client.request(request).await;
    let answer = answer.map_err(|error| error.to_string())?;
    if !answer.status().is_success() {
        return Err(format!("the server answers {}", answer.status().as_u16()));
    }
    let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    Keys::of_set(&body, algorithm)
}
