//! The way to the server: one shared connection that comes back by itself.

use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use semel_core::StoreResult;

use super::error::store_error;
use super::script::Script;

#[derive(Clone)]
pub(super) struct Link {
    manager: ConnectionManager,
}

impl Link {
    pub(super) async fn open(client: Client) -> StoreResult<Self> {
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(2)))
            .set_response_timeout(Some(Duration::from_secs(4)))
            .set_number_of_retries(2)
            .set_max_delay(Duration::from_millis(500));
        let manager = ConnectionManager::new_with_config(client, config).await;
        Ok(Self {
            manager: manager.map_err(store_error)?,
        })
    }

    /// Sends one command. Dropping the future leaves the connection in order: replies are matched by
    /// the task that owns it, not by whoever asked.
    pub(super) async fn query(&self, cmd: &Cmd) -> StoreResult<Value> {
        self.send(cmd).await.map_err(store_error)
    }

    /// Calls a script by its SHA-1; a server that has forgotten it is given the text.
    pub(super) async fn run(
        &self,
        script: &Script,
        key: &[u8],
        arguments: &[&[u8]],
    ) -> StoreResult<Value> {
        match self.send(&script.by_sha1(key, arguments)).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.query(&script.by_text(key, arguments)).await
            }
            answer => answer.map_err(store_error),
        }
    }

    async fn send(&self, cmd: &Cmd) -> Result<Value, RedisError> {
        match self.manager.clone().send_packed_command(cmd).await? {
            Value::ServerError(error) => Err(error.into()),
            value => Ok(value),
        }
    }
}
