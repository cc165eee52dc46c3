//! A client process of a ledger, which gets killed. Its callers use the library directly.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use parking_lot::Mutex;
use rand::RngExt as _;
use rand::rngs::StdRng;
use semel::core::{Identity, Key, Namespace, Secret};
use semel::{Call, Error, OnBusy, Policy, Semel};

use super::bank::{Bank, Entry, Plan, Server};
use crate::clock::pass;
use crate::worker::ENVIRONMENT;

const RECENT: u64 = 24;
const LEASE: Duration = Duration::from_millis(1_000);
/// The scope of direct operations, and of those that jobs call.
pub(super) const SCOPE: &str = "ledger";

/// Stands for a door in the lines of a client.
pub(super) const STRIKE: &str = "strike";

/// The settings of a client.
#[derive(Args, Clone, Debug)]
pub(crate) struct Setup {
    #[arg(long)]
    pub(crate) url: String,
    #[arg(long)]
    pub(crate) server: Server,
    /// The number of the process; a replacement keeps it.
    #[arg(long)]
    pub(crate) number: u64,
    #[arg(long)]
    pub(crate) seed: u64,
    /// The file for its observations.
    #[arg(long)]
    pub(crate) file: PathBuf,
    /// Seeded bug: settles outside of the transaction.
    #[arg(long)]
    pub(crate) settles_outside: bool,
}

/// The state that the tasks of a client share.
pub(crate) struct Client {
    pub(crate) semel: Semel,
    pub(crate) bank: Bank,
    number: u64,
    runs: AtomicU64,
    next: AtomicU64,
    told: Mutex<std::fs::File>,
}

impl Client {
    pub(crate) async fn open(setup: &Setup) -> Arc<Self> {
        let semel = loop {
            match Semel::builder()
                .environment(ENVIRONMENT)
                .open(&setup.url)
                .await
            {
                Ok(semel) => break semel,
                Err(error) => {
                    eprintln!("client: {error}");
                    pass(Duration::from_millis(100)).await;
                }
            }
        };
        let mut told = std::fs::OpenOptions::new();
        let told = told.create(true).append(true).open(&setup.file);
        Arc::new(Self {
            semel,
            bank: Bank::at(setup.server, &setup.url).expect("a URL of a database"),
            number: setup.number,
            runs: AtomicU64::new(0),
            next: AtomicU64::new(0),
            told: Mutex::new(told.expect("the harness has a folder for this")),
        })
    }

    /// A new effect for a name.
    pub(crate) fn entry(&self, door: &str, name: &str) -> Entry {
        let run = self.runs.fetch_add(1, Ordering::SeqCst);
        Entry {
            door: door.to_owned(),
            name: name.to_owned(),
            run: format!("{}-{run}", self.number),
        }
    }

    pub(crate) fn call(&self, scope: &str, name: &str) -> Call {
        let policy = Policy::default()
            .with_lease(LEASE)
            .with_on_busy(OnBusy::Wait(LEASE))
            .with_max_attempts(1_000);
        let operation = self.semel.operation(scope).policy(policy);
        operation.key(name).payload(&name)
    }

    /// Records the final response of a caller.
    pub(crate) fn tell(&self, door: &str, name: &str, answer: &str) {
        let line = format!("{door} {name} {answer}\n");
        let written = self.told.lock().write_all(line.as_bytes());
        written.expect("the harness has a folder for this");
    }

    /// Records that the server ended the transaction.
    fn tell_strike(&self, error: &Error, idles: bool) {
        if format!("{error:?}").to_lowercase().contains("deadlock") {
            self.tell(STRIKE, "deadlock", "-");
        } else if idles {
            self.tell(STRIKE, "idle-in-transaction", "-");
        }
    }

    /// A name that other callers use, too.
    pub(crate) fn name(&self, rng: &mut StdRng) -> String {
        let index = if rng.random_bool(0.5) {
            self.next.fetch_add(1, Ordering::SeqCst)
        } else {
            let newest = self.next.load(Ordering::SeqCst);
            newest.saturating_sub(rng.random_range(0..RECENT))
        };
        name_of(index)
    }

    pub(super) async fn call_on(self: Arc<Self>, mut rng: StdRng, settles_outside: bool) {
        loop {
            let name = self.name(&mut rng);
            let plan = Plan::of(self.entry("run-in", &name), &mut rng);
            let (call, idles) = (self.call(SCOPE, &name), plan.idles);
            let told = if settles_outside {
                self.bank.run_beside(call, plan).await
            } else {
                self.bank.run_in(call, plan).await
            };
            match told {
                Ok(run) => self.tell("run-in", &name, &run),
                Err(error) => {
                    self.tell_strike(&error, idles);
                    pass(Duration::from_millis(10)).await;
                }
            }
        }
    }
}

/// The name of a number.
pub(super) fn name_of(index: u64) -> String {
    format!("n-{index:06}")
}

/// The identity of a direct operation.
pub(super) fn identity_of(name: &str) -> Identity {
    let namespace = Namespace::new(ENVIRONMENT, "", SCOPE).expect("plain text");
    let key = Key::parse(name).expect("plain text");
    Identity::new(&Secret::none(), &namespace, &key)
}
