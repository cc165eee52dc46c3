//! One server: a shared connection that reconnects when it is lost, and a pool of connections for
//! `WAIT`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};

use super::durability::Durability;
use super::error::Failure;
use super::finder::Finder;
use super::wait_pool::WaitPool;

/// A server with its connections. A cancelled command leaves them intact, because the task that
/// owns a connection matches the replies.
pub(super) struct Node {
    finder: Arc<Finder>,
    state: Mutex<State>,
    made: AtomicU64,
    waiting: WaitPool,
}

enum State {
    Closed,
    Opening(Shared<BoxFuture<'static, Result<MultiplexedConnection, RedisError>>>),
    Open(MultiplexedConnection, u64),
}

impl Node {
    pub(super) fn new(finder: Finder) -> Self {
        let finder = Arc::new(finder);
        Self {
            waiting: WaitPool::new(Arc::clone(&finder)),
            finder,
            state: Mutex::new(State::Closed),
            made: AtomicU64::new(0),
        }
    }

    /// Sends one command at a level of durability; `asking` if a slot is migrating to this server.
    pub(super) async fn send(
        &self,
        cmd: &Cmd,
        level: Durability,
        asking: bool,
    ) -> Result<Value, Failure> {
        match level.wait() {
            None => self.send_plain(cmd, asking).await,
            Some(wait) => Box::pin(self.send_waiting(cmd, &wait, level, asking)).await,
        }
    }

    async fn send_waiting(
        &self,
        cmd: &Cmd,
        wait: &Cmd,
        level: Durability,
        asking: bool,
    ) -> Result<Value, Failure> {
        let sent = self.waiting.send(cmd, wait, asking).await;
        let (value, confirmed) = sent.inspect_err(|failure| self.judge(failure, None))?;
        if level.is_reached(&confirmed) {
            Ok(value)
        } else {
            Err(Failure::Short)
        }
    }

    async fn send_plain(&self, cmd: &Cmd, asking: bool) -> Result<Value, Failure> {
        let (mut connection, number) = self.connection().await.map_err(Failure::NotSent)?;
        let reply = if asking {
            let mut pipe = redis::pipe();
            pipe.cmd("ASKING").add_command(cmd.clone());
            let replies = connection.send_packed_commands(&pipe, 1, 1).await;
            replies.and_then(|mut replies| replies.pop().ok_or_else(gone))
        } else {
            connection.send_packed_command(cmd).await
        };
        let reply = match reply {
            Ok(Value::ServerError(error)) => Err(Failure::Sent(error.into())),
            Ok(value) => Ok(value),
            Err(error) => Err(Failure::Sent(error)),
        };
        reply.inspect_err(|failure| self.judge(failure, Some(number)))
    }

    /// The shared connection. Concurrent callers share one attempt to connect.
    async fn connection(&self) -> Result<(MultiplexedConnection, u64), RedisError> {
        let opening = {
            let mut state = self.state.lock();
            match &*state {
                State::Open(connection, number) => return Ok((connection.clone(), *number)),
                State::Opening(opening) => opening.clone(),
                State::Closed => {
                    let finder = Arc::clone(&self.finder);
                    // On a task of its own, because the first caller may be cancelled.
                    let task = tokio::spawn(async move { finder.connect().await });
                    let opening = task.map(|done| done.unwrap_or_else(|_| Err(gone())));
                    let opening = opening.boxed().shared();
                    *state = State::Opening(opening.clone());
                    opening
                }
            }
        };
        let opened = opening.clone().await;
        let mut state = self.state.lock();
        if let State::Opening(current) = &*state
            && current.ptr_eq(&opening)
        {
            let number = self.made.fetch_add(1, Ordering::Relaxed);
            *state = match &opened {
                Ok(connection) => State::Open(connection.clone(), number),
                Err(_) => State::Closed,
            };
        }
        match (&*state, opened) {
            (State::Open(connection, number), _) => Ok((connection.clone(), *number)),
            (_, Ok(connection)) => Ok((connection, u64::MAX)),
            (_, Err(error)) => Err(error),
        }
    }

    /// Drops a connection that is broken or silent, or whose server is no longer a master.
    fn judge(&self, failure: &Failure, number: Option<u64>) {
        let Failure::Sent(error) = failure else {
            return;
        };
        let demoted = matches!(
            error.kind(),
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        );
        if !(demoted || error.is_unrecoverable_error() || error.is_timeout()) {
            return;
        }
        match number {
            Some(number) => self.lose(number),
            None if demoted => self.lose_all(),
            // The same fault has broken the connections for waiting.
            None => self.waiting.lose_all(),
        }
    }

    fn lose(&self, number: u64) {
        let mut state = self.state.lock();
        if matches!(&*state, State::Open(_, current) if *current == number) {
            *state = State::Closed;
        }
    }

    /// Drops all connections. The next command finds the server again.
    pub(super) fn lose_all(&self) {
        *self.state.lock() = State::Closed;
        self.waiting.lose_all();
    }

    /// A connection to listen on.
    pub(super) async fn listen(&self) -> Result<PubSub, RedisError> {
        self.finder.client().await?.get_async_pubsub().await
    }
}

fn gone() -> RedisError {
    std::io::Error::other("no reply came of it").into()
}
