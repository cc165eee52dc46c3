//! A pool of connections for `WAIT` and `WAITAOF`, for durability levels above the server's own.
//!
//! A connection that waits answers nothing else, so these are not shared: each command takes one
//! and returns it.

use std::sync::Arc;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tokio::sync::Semaphore;

use super::error::Failure;
use super::finder::Finder;

/// The most connections that wait at once, to one server.
const MOST: usize = 64;

pub(super) struct WaitPool {
    finder: Arc<Finder>,
    places: Semaphore,
    idle: Mutex<Vec<MultiplexedConnection>>,
}

impl WaitPool {
    pub(super) fn new(finder: Arc<Finder>) -> Self {
        Self {
            finder,
            places: Semaphore::new(MOST),
            idle: Mutex::new(Vec::new()),
        }
    }

    /// Sends a command and, right behind it on the same connection, the wait; gives both replies. A
    /// command that the server refuses is a failure, whatever the wait said.
    pub(super) async fn send(
        &self,
        cmd: &Cmd,
        wait: &Cmd,
        asking: bool,
    ) -> Result<(Value, Value), Failure> {
        // Never closed.
        let _place = self.places.acquire().await;
        let idle = self.idle.lock().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.finder.connect().await.map_err(Failure::NotSent)?,
        };
        let mut pipe = redis::pipe();
        if asking {
            pipe.cmd("ASKING");
        }
        pipe.add_command(cmd.clone()).add_command(wait.clone());
        // If the future is dropped, the connection is dropped with it, so that no other command
        // meets the wait.
        let replies = connection
            .send_packed_commands(&pipe, usize::from(asking), 2)
            .await;
        match replies.map_err(Failure::Sent)?.as_mut_slice() {
            [reply, waited] => {
                self.idle.lock().push(connection);
                let take = |value: &mut Value| match std::mem::replace(value, Value::Nil) {
                    Value::ServerError(error) => Err(Failure::Sent(error.into())),
                    value => Ok(value),
                };
                // The wait is looked at second: if the command failed, there was nothing to wait
                // for.
                let reply = take(reply)?;
                Ok((reply, take(waited).unwrap_or(Value::Nil)))
            }
            _ => Err(Failure::Short),
        }
    }

    pub(super) fn lose_all(&self) {
        self.idle.lock().clear();
    }
}
