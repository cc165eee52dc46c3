//! Where a server is, and how to connect to it.

use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::sentinel::SentinelClient;
use redis::{AsyncConnectionConfig, Client, RedisError};

use super::login::{is_refused, passing_refusal};

/// How long connecting may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// How long a reply may take; longer than any wait for replicas.
const REPLY_WITHIN: Duration = Duration::from_secs(4);

/// Where the server is.
pub(super) enum Finder {
    /// Always at the same address.
    Fixed(Client),
    /// The master that the sentinels name, asked for every connection.
    Sentinel(tokio::sync::Mutex<SentinelClient>),
}

impl Finder {
    pub(super) async fn client(&self) -> Result<Client, RedisError> {
        match self {
            Self::Fixed(client) => Ok(client.clone()),
            Self::Sentinel(sentinels) => sentinels.lock().await.async_get_client().await,
        }
    }

    /// Boxed: rarely polled, and too large to be part of every command's future.
    pub(super) fn connect(&self) -> BoxFuture<'_, Result<MultiplexedConnection, RedisError>> {
        Box::pin(async {
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(CONNECT_WITHIN))
                .set_response_timeout(Some(REPLY_WITHIN));
            let client = self.client().await?;
            let connected = client
                .get_multiplexed_async_connection_with_config(&config)
                .await;
            match connected {
                Err(error) if is_refused(&error) => {
                    Err(passing_refusal(&client, &config).await.unwrap_or(error))
                }
                connected => connected,
            }
        })
    }
}
