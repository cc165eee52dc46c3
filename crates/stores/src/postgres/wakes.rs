//! Wake-ups from other processes, by `LISTEN` and `NOTIFY` on one channel.
//!
//! A process that waits listens, then marks the row; whoever settles a marked row notifies. So a
//! settlement that nobody waits for notifies nobody: `NOTIFY` makes commits queue up behind each
//! other. All of it is a hint: a waiter polls as well, with growing pauses.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{self, Either};
use semel_core::Clock;
use semel_core::identity::Address;
use sqlx::Row as _;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::types::Uuid;
use tokio::sync::mpsc;

use super::Inner;
use super::options::Options;
use super::statements::lock;

const CHANNEL: &str = "semel_settled";

/// The most waiters that are not yet marked; past them a waiter polls.
const MOST_UNMARKED: usize = 4096;

/// How long a mark may take.
const MARK_LIMIT: Duration = Duration::from_secs(2);

/// Tells the listener what is waited for.
pub(super) struct Wakes {
    watched: mpsc::Sender<Address>,
}

impl Wakes {
    /// None if there is nothing to listen on.
    pub(super) fn new(options: &Options) -> (Option<Self>, mpsc::Receiver<Address>) {
        let (watched, receiver) = mpsc::channel(MOST_UNMARKED);
        (options.listen().map(|_| Self { watched }), receiver)
    }

    pub(super) fn watch(&self, address: Address) {
        // Full, or a listener that is gone: the waiter polls.
        let _ = self.watched.try_send(address);
    }
}

impl Inner {
    /// Tells other processes that a record was settled, without making the settlement wait for it.
    pub(super) fn tell(&self, address: Address) {
        let Some(told) = self.telling.upgrade() else {
            return;
        };
        tokio::spawn(async move {
            let payload = Uuid::from_bytes(address).simple().to_string();
            let text = "SELECT pg_notify($1, $2)";
            let notify = || told.sql.plain(text).bind(CHANNEL).bind(payload.clone());
            // A hint: whoever waits polls as well.
            let _ = told.link.row(notify).await;
        });
    }
}

/// Listens for as long as the store is in use; connects when the first waiter comes, and again
/// whenever the connection is lost.
pub(super) fn listen(
    inner: &Arc<Inner>,
    options: PgConnectOptions,
    watched: mpsc::Receiver<Address>,
    clock: Arc<dyn Clock>,
) {
    let listener = Listener {
        inner: Arc::downgrade(inner),
        watched,
        clock,
    };
    tokio::spawn(listener.run(options));
}

struct Listener {
    inner: Weak<Inner>,
    watched: mpsc::Receiver<Address>,
    clock: Arc<dyn Clock>,
}

impl Listener {
    async fn run(mut self, options: PgConnectOptions) {
        // A listener takes its connection from a pool; this one is its own, so that no caller waits
        // for it.
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .connect_lazy_with(options);
        let mut first = self.watched.recv().await;
        while let Some(address) = first {
            if let Ok(mut listener) = PgListener::connect_with(&pool).await {
                listener.ignore_pool_close_event(true);
                if listener.listen(CHANNEL).await.is_ok() {
                    self.serve(listener, address).await;
                }
            }
            // Waiters poll meanwhile.
            self.clock.sleep(Duration::from_millis(200)).await;
            first = self.watched.recv().await;
        }
    }

    /// Until the connection is lost or the store is dropped.
    async fn serve(&mut self, mut listener: PgListener, first: Address) {
        let mut alive = self.mark(first).await;
        while alive {
            alive = tokio::select! {
                notification = listener.try_recv() => match notification {
                    Ok(Some(notification)) => self.wake(notification.payload()),
                    Ok(None) | Err(_) => false,
                },
                address = self.watched.recv() => match address {
                    Some(address) => self.mark(address).await,
                    None => false,
                },
            };
        }
    }

    fn wake(&self, payload: &str) -> bool {
        let Some(inner) = self.inner.upgrade() else {
            return false;
        };
        if let Ok(address) = Uuid::try_parse(payload) {
            inner.hub.wake(&address.into_bytes());
        }
        true
    }

    /// Listening comes first, so that nothing that is settled after the mark is missed. A server
    /// that doesn't answer keeps the wake-ups of others waiting for no longer than the limit.
    async fn mark(&self, address: Address) -> bool {
        let Some(inner) = self.inner.upgrade() else {
            return false;
        };
        let mark = || {
            let mark = inner.sql.mark.at(&address);
            mark.bind(Uuid::from_bytes(address)).bind(lock(&address))
        };
        let marking = pin!(inner.link.row(mark));
        let limit = self.clock.sleep(MARK_LIMIT);
        let Either::Left((Ok(row), _)) = future::select(marking, limit).await else {
            return true; // The waiter polls.
        };
        // Settled already, put in doubt, or gone. Not so if a transaction that is still open has it
        // in hand: its record can't be seen yet, and whoever is woken would find the key busy.
        if matches!(row.map(|row| row.try_get(0)), Some(Ok(true))) {
            inner.hub.wake(&address);
        }
        true
    }
}
