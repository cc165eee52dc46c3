//! [`Shipped`]: the trail in files, and copies of it elsewhere.
//!
//! The files are the source. A shipper follows them for each copy, sends what it finds until it is taken, and remembers
//! how far it got: an entry arrives at least once, also when the process or the other side ends in between, and twice
//! under the same `event_id`. A copy that is slow or away holds up neither the engine nor the trail nor other copies; it
//! falls behind, for as long as the files are kept.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use semel_core::{BoxFuture, Env};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use utoipa::ToSchema;

use super::entry::Entry;
use super::file::FileSink;
use super::sink::{History, Sink};
use super::spool::{Lot, Position};

/// How many entries are sent at once.
const LOT: usize = 500;

/// How long one lot, or one erasure, may take.
const LIMIT: Duration = Duration::from_secs(30);

/// How often to look for more where nothing says that there is.
const LOOK: Duration = Duration::from_secs(1);

/// From pause to pause between tries, doubling.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];

/// How long a process that ends waits for its copies.
const LAST: Duration = Duration::from_secs(5);

/// A copy of the trail, and how far behind it is.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Shipping {
    /// Where it is.
    #[schema(value_type = String)]
    pub sink: &'static str,
    /// Bytes of the files that it doesn't have yet.
    pub behind_bytes: u64,
    /// Entries that it took since the start.
    pub sent: u64,
    /// Whether the last try failed.
    pub failing: bool,
}

/// The trail in files, and copies of it.
pub struct Shipped {
    files: FileSink,
    env: Env,
    shippers: Vec<Shipper>,
}

struct Shipper {
    name: &'static str,
    orders: mpsc::Sender<Erase>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    behind: AtomicU64,
    sent: AtomicU64,
    failing: AtomicBool,
}

struct Erase(String, oneshot::Sender<io::Result<u64>>);

impl Shipped {
    /// Files, and where their entries go besides. On the runtime that this is called in.
    #[must_use]
    pub fn start(files: FileSink, copies: Vec<Arc<dyn Sink>>, env: &Env) -> Self {
        let start = |sink: Arc<dyn Sink>| {
            let (orders, waiting) = mpsc::channel(16);
            let (name, state) = (sink.name(), Arc::new(State::default()));
            let mut place = files.path().into_os_string();
            place.push(format!(".{name}.position"));
            let task = Task {
                sink,
                files: files.clone(),
                place: PathBuf::from(place),
                env: env.clone(),
                orders: waiting,
                state: Arc::clone(&state),
            };
            env.spawn.spawn(Box::pin(task.run()));
            Shipper {
                name,
                orders,
                state,
            }
        };
        let shippers = copies.into_iter().map(start).collect();
        Self {
            files,
            env: env.clone(),
            shippers,
        }
    }
}

impl Sink for Shipped {
    fn name(&self) -> &'static str {
        self.files.name()
    }

    fn write<'a>(&'a self, lot: &'a [Entry]) -> BoxFuture<'a, io::Result<()>> {
        self.files.write(lot)
    }

    /// In the files first: what a shipper sends from then on has no name in it. Then in each copy. Where one can't be
    /// reached, that is said, and asking again is safe.
    fn erase<'a>(&'a self, actor: &'a str) -> BoxFuture<'a, io::Result<u64>> {
        Box::pin(async move {
            let mut entries = self.files.erase(actor).await?;
            let mut failed = Vec::new();
            for shipper in &self.shippers {
                let (done, erased) = oneshot::channel();
                let order = Erase(actor.to_owned(), done);
                let sent = shipper.orders.send(order).await.is_ok();
                match (sent, erased.await) {
                    (true, Ok(Ok(more))) => entries += more,
                    _ => failed.push(shipper.name),
                }
            }
            if failed.is_empty() {
                return Ok(entries);
            }
            let message = format!("not erased in {}", failed.join(" and "));
            Err(io::Error::other(message))
        })
    }

    fn history<'a>(&'a self, id: &'a str, most: usize) -> BoxFuture<'a, io::Result<History>> {
        self.files.history(id, most)
    }

    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let clock = &self.env.clock;
            let end = clock.now().plus(LAST);
            let is_behind = |shipper: &Shipper| shipper.state.behind.load(Ordering::Relaxed) > 0;
            self.files.nudge();
            while self.shippers.iter().any(is_behind) && clock.now() < end {
                clock.sleep(Duration::from_millis(50)).await;
            }
        })
    }

    fn copies(&self) -> Vec<Shipping> {
        let told = |shipper: &Shipper| Shipping {
            sink: shipper.name,
            behind_bytes: shipper.state.behind.load(Ordering::Relaxed),
            sent: shipper.state.sent.load(Ordering::Relaxed),
            failing: shipper.state.failing.load(Ordering::Relaxed),
        };
        self.shippers.iter().map(told).collect()
    }
}

/// Keeps one copy up to date.
struct Task {
    sink: Arc<dyn Sink>,
    files: FileSink,
    place: PathBuf,
    env: Env,
    orders: mpsc::Receiver<Erase>,
    state: Arc<State>,
}

impl Task {
    /// Ends when the trail does.
    async fn run(mut self) {
        let mut position = Position::load(&self.place);
        while let Some(next) = self.go_on(position).await {
            position = next;
        }
    }

    /// Reads on and sends what is there, or waits for more. → where to go on; none: the trail is at its end
    async fn go_on(&mut self, position: Option<Position>) -> Option<Option<Position>> {
        let written = self.files.written();
        let lot = match self.files.read_on(position.clone(), LOT).await {
            Ok(lot) => lot,
            Err(error) => {
                self.warn(&error, "the audit file can't be read");
                return self.wait(PAUSES[1]).await.then_some(position);
            }
        };
        let not_sent = lot.bytes_not_sent();
        self.state.behind.store(not_sent, Ordering::Relaxed);
        if lot.entries.is_empty() {
            return tokio::select! {
                () = written => Some(position),
                goes_on = self.wait(LOOK) => goes_on.then_some(position),
            };
        }
        if lot.has_gap {
            self.warn(
                &io::Error::other("their retention was over"),
                "audit entries were removed before they could be sent",
            );
        }
        if !self.send(&lot).await? {
            return Some(position);
        }
        let many = lot.entries.len() as u64;
        self.state.sent.fetch_add(many, Ordering::Relaxed);
        self.state.behind.store(lot.behind, Ordering::Relaxed);
        self.remember(lot.position.as_ref());
        Some(lot.position)
    }

    fn warn(&self, error: &io::Error, what: &str) {
        tracing::warn!(sink = self.sink.name(), %error, "{what}");
    }

    fn remember(&self, position: Option<&Position>) {
        let saved = position.map_or(Ok(()), |position| position.save(&self.place));
        if let Err(error) = saved {
            // The entries are there: after a restart some come twice.
            self.warn(&error, "how far audit entries were sent is not saved");
        }
    }

    /// Sends until it is taken. → false: an erasure came in between, so read it again; none: the trail is at its end.
    async fn send(&mut self, lot: &Lot) -> Option<bool> {
        let mut pause = PAUSES[0];
        loop {
            let taken = self.within(self.sink.write(&lot.entries)).await;
            let was_failing = self.state.failing.swap(taken.is_err(), Ordering::Relaxed);
            match taken {
                Ok(()) => {
                    self.tell_of_its_end(was_failing);
                    return Some(true);
                }
                Err(error) if !was_failing => {
                    self.warn(&error, "audit entries are not taken; they wait in the file");
                }
                Err(_) => {}
            }
            tokio::select! {
                order = self.orders.recv() => {
                    self.obey(order?).await;
                    return Some(false);
                }
                () = self.env.clock.sleep(pause) => {}
            }
            pause = (pause * 2).min(PAUSES[1]);
        }
    }

    fn tell_of_its_end(&self, was_failing: bool) {
        if was_failing {
            tracing::info!(sink = self.sink.name(), "audit entries are taken again");
        }
    }

    /// Waits, or does what is ordered meanwhile. → false: the trail is at its end
    async fn wait(&mut self, span: Duration) -> bool {
        tokio::select! {
            order = self.orders.recv() => match order {
                Some(order) => self.obey(order).await,
                None => return false,
            },
            () = self.env.clock.sleep(span) => {}
        }
        true
    }

    async fn obey(&self, Erase(actor, done): Erase) {
        let erased = self.within(self.sink.erase(&actor)).await;
        if let Err(error) = &erased {
            self.warn(error, "a name could not be erased from audit entries");
        }
        // Whoever asked may have left; it is done all the same.
        let _ = done.send(erased);
    }

    async fn within<T>(&self, work: BoxFuture<'_, io::Result<T>>) -> io::Result<T> {
        let late = || Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
        tokio::time::timeout(LIMIT, work)
            .await
            .unwrap_or_else(|_| late())
    }
}
