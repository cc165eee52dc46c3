//! Wake-ups from other processes, by publish and subscribe on the record's own key.
//!
//! A process that waits subscribes, then marks the record; the settlement of a marked record
//! publishes. So a settlement without waiters publishes nothing. All of it is a hint: a waiter
//! polls as well, with growing pauses.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use redis::Msg;
use redis::aio::{PubSubSink, PubSubStream};
use semel_core::Clock;
use semel_core::identity::Address;
use tokio::sync::mpsc;

use super::Inner;
use super::script::MARK;

/// Sends the listener the records to watch.
pub(super) struct Wakes {
    watched: mpsc::UnboundedSender<Address>,
}

impl Wakes {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Address>) {
        let (watched, receiver) = mpsc::unbounded_channel();
        (Self { watched }, receiver)
    }

    pub(super) fn watch(&self, address: Address) {
        // A listener that is gone means a store that is being dropped.
        let _ = self.watched.send(address);
    }
}

/// How often channels without waiters are left.
const TIDY_EVERY: Duration = Duration::from_secs(5);

/// Listens for as long as the store is in use; connects when the first waiter comes, and again
/// whenever the connection is lost.
pub(super) fn listen(
    inner: &Arc<Inner>,
    watched: mpsc::UnboundedReceiver<Address>,
    clock: Arc<dyn Clock>,
) {
    let listener = Listener {
        inner: Arc::downgrade(inner),
        watched,
        clock,
        open: HashSet::new(),
    };
    tokio::spawn(listener.run());
}

struct Listener {
    inner: Weak<Inner>,
    watched: mpsc::UnboundedReceiver<Address>,
    clock: Arc<dyn Clock>,
    open: HashSet<Address>,
}

impl Listener {
    async fn run(mut self) {
        let mut first = self.watched.recv().await;
        while let Some(address) = first {
            let Some(inner) = self.inner.upgrade() else {
                return;
            };
            let connection = inner.link.listen().await;
            drop(inner);
            if let Ok(connection) = connection {
                self.open.clear();
                let (sink, stream) = connection.split();
                self.serve(sink, stream, address).await;
            }
            // Waiters poll meanwhile.
            self.clock.sleep(Duration::from_millis(200)).await;
            first = self.watched.recv().await;
        }
    }

    /// Until the connection is lost or the store is dropped.
    async fn serve(&mut self, mut sink: PubSubSink, mut stream: PubSubStream, first: Address) {
        let mut alive = self.subscribe(&mut sink, first).await;
        // One for all turns: what else happens must not put it off.
        let mut tidy = self.clock.sleep(TIDY_EVERY);
        while alive {
            alive = tokio::select! {
                message = stream.next() => self.wake(message),
                address = self.watched.recv() => match address {
                    Some(address) => self.subscribe(&mut sink, address).await,
                    None => false,
                },
                () = &mut tidy => {
                    tidy = self.clock.sleep(TIDY_EVERY);
                    self.tidy(&mut sink).await
                }
            };
        }
    }

    fn wake(&self, message: Option<Msg>) -> bool {
        let (Some(message), Some(inner)) = (message, self.inner.upgrade()) else {
            return false;
        };
        if let Some(address) = inner.address(message.get_channel_name().as_bytes()) {
            inner.hub.wake(&address);
        }
        true
    }

    /// Subscribes, then marks: in this order, nothing that is settled after the mark is missed.
    async fn subscribe(&mut self, sink: &mut PubSubSink, address: Address) -> bool {
        let Some(inner) = self.inner.upgrade() else {
            return false;
        };
        let key = inner.key_at(&address);
        if self.open.insert(address) && sink.subscribe(&key[..]).await.is_err() {
            return false;
        }
        let marked = inner
            .link
            .run_hint(&inner.scripts.mark, &key, &[MARK])
            .await;
        // The record is settled already, or gone, so its waiters can go on.
        if matches!(marked, Ok(redis::Value::Int(0))) {
            inner.hub.wake(&address);
        }
        true
    }

    async fn tidy(&mut self, sink: &mut PubSubSink) -> bool {
        let Some(inner) = self.inner.upgrade() else {
            return false;
        };
        let idle: Vec<Address> = self
            .open
            .iter()
            .filter(|address| !inner.hub.is_watched(address))
            .copied()
            .collect();
        for address in idle {
            self.open.remove(&address);
            if sink.unsubscribe(&inner.key_at(&address)[..]).await.is_err() {
                return false;
            }
        }
        true
    }
}
