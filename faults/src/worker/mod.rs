//! A worker: callers that use the library, in a process that may be killed, or in a thread of the
//! harness.
//!
//! It does as it is told: a round of calls on keys of that round, a pause in which nothing is under
//! way, and a close in which every key of its share is asked for once more.

pub(crate) mod doors;
mod load;
mod operator;
mod plan;
pub(crate) mod words;

use std::io::BufRead as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use semel::core::StoreAdmin;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::clock::pass;
use crate::points::{Point, Points};
use load::Load;

/// The environment of all keys.
pub(crate) const ENVIRONMENT: &str = "faults";

/// Clients of one worker's processes are so far apart.
pub(crate) const INCARNATION: u32 = 100;

/// How a worker is set up.
#[derive(Args, Clone, Debug)]
pub(crate) struct Setup {
    /// The store; nothing where the harness has it.
    #[arg(long, default_value = "")]
    pub(crate) url: String,
    /// Which of the workers this is.
    #[arg(long)]
    pub(crate) worker: u64,
    /// How many there are.
    #[arg(long)]
    pub(crate) workers: u64,
    /// Which process in this worker's place.
    #[arg(long)]
    pub(crate) incarnation: u32,
    /// Where its whims come from.
    #[arg(long)]
    pub(crate) seed: u64,
    /// Callers at once.
    #[arg(long)]
    pub(crate) tasks: u64,
    /// The lease, in milliseconds.
    #[arg(long)]
    pub(crate) lease_ms: u64,
    /// Whether some keys expire within the round.
    #[arg(long)]
    pub(crate) tiny: bool,
    /// Seeded flaw: whoever finds a key busy asks again without a pause.
    #[arg(long)]
    pub(crate) restless: bool,
}

impl Setup {
    /// Who writes, in a history.
    pub(crate) fn client(&self) -> u32 {
        u32::try_from(self.worker).unwrap_or(0) + INCARNATION * self.incarnation
    }
}

/// What a worker is told to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Call, on the keys of this round, and write the history to this file.
    Round { number: u64, file: PathBuf },
    /// Die at a point, after it was passed so often; or no longer.
    Die(Option<(Point, u32)>),
    /// End what is under way, and begin nothing.
    Pause,
    /// Ask once more for the keys of your share, of so many.
    Close { keys: u64 },
}

/// What a worker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Word {
    /// Nothing is under way; so many keys were begun.
    Paused { keys: u64 },
    /// The keys of its share are asked for; so many of them gave no answer.
    Done { unanswered: u64 },
}

/// Where a worker's store comes from.
pub(crate) enum Source {
    /// Its URL.
    Url,
    /// The harness.
    Given(Arc<dyn StoreAdmin>),
}

impl Source {
    /// The store, as soon as it can be had.
    async fn open(&self, url: &str) -> Arc<dyn StoreAdmin> {
        loop {
            match self {
                Self::Given(store) => return Arc::clone(store),
                Self::Url => match semel::open_store(url).await {
                    Ok(store) => return store,
                    // What is wrong for good is seen by the harness, which waits for a word.
                    Err(error) => {
                        eprintln!("worker: {error}");
                        pass(Duration::from_millis(200)).await;
                    }
                },
            }
        }
    }
}

/// Does what it is told, until nobody tells it any more.
pub(crate) async fn serve(
    setup: Setup,
    source: Source,
    mut orders: UnboundedReceiver<Order>,
    say: impl Fn(Word) + Send,
) {
    let points = Points::default();
    while let Some(order) = orders.recv().await {
        match order {
            Order::Round { number, file } => {
                let store = source.open(&setup.url).await;
                let load = Load::new(&setup, number, &file, store, points.clone()).await;
                round(load, &points, &mut orders, &say).await;
            }
            Order::Die(at) => points.arm(at),
            Order::Pause => say(Word::Paused { keys: 0 }),
            Order::Close { .. } => say(Word::Done { unanswered: 0 }),
        }
    }
}

async fn round(
    load: Arc<Load>,
    points: &Points,
    orders: &mut UnboundedReceiver<Order>,
    say: &(impl Fn(Word) + Send),
) {
    let callers = load.begin();
    while let Some(order) = orders.recv().await {
        match order {
            Order::Die(at) => points.arm(at),
            Order::Round { .. } | Order::Pause => break,
            Order::Close { .. } => {}
        }
    }
    points.arm(None);
    let keys = load.end(callers).await;
    say(Word::Paused { keys });
    while let Some(order) = orders.recv().await {
        if let Order::Close { keys } = order {
            let unanswered = load.close(keys).await;
            say(Word::Done { unanswered });
            return;
        }
    }
}

/// A worker in a process of its own: orders come by standard input, words go to standard output.
pub(crate) async fn process(setup: Setup) {
    let (send, orders) = unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            let Ok(order) = serde_json::from_str(&line) else {
                break;
            };
            if send.send(order).is_err() {
                break;
            }
        }
        // The harness is gone: so is its worker, whatever it was doing.
        std::process::exit(0);
    });
    let say = |word: Word| {
        let text = serde_json::to_string(&word).expect("plain words");
        println!("{text}");
    };
    serve(setup, Source::Url, orders, say).await;
}
