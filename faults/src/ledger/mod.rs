//! An exactly-once ledger: clients write an entry and its record in one transaction while clients,
//! server and network fail. Afterwards each stored answer must have exactly one entry.

mod bank;
mod books;
pub(crate) mod client;
mod close;
mod inbox;
mod work;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use semel_testkit::private::new_folder;
use tokio::process::{Child, Command};

use crate::clock::{pass, tick};
use crate::kinds::{Kind, StrikeCounts};
use crate::nemesis::{ON_WAYS, strike_ways};
use crate::place::WorkerPlace;
use crate::report::{FailedRun, Row};
use crate::servers::{self, Backend, Name, Shared};
use bank::{Bank, Server};
use client::{Client, Setup};

const CLIENTS: u64 = 3;
/// Callers of `run_in` in each process.
const CALLERS: u64 = 5;
const LEASE: Duration = Duration::from_secs(1);
/// The number of the client that closes the books.
const CLOSER: u64 = 1_000_000;

/// The store of a ledger, by the name of its run.
const fn store_of(name: Name) -> Option<(Name, Server)> {
    match name {
        Name::LedgerPostgres => Some((Name::Postgres, Server::Postgres)),
        Name::LedgerFailover => Some((Name::PostgresSync, Server::Postgres)),
        Name::LedgerMariadb => Some((Name::Mariadb, Server::Mariadb)),
        _ => None,
    }
}

/// Whether this is the run of a ledger.
pub(crate) const fn is_one(name: Name) -> bool {
    store_of(name).is_some()
}

/// Runs a ledger for this time, and closes its books.
pub(crate) async fn run(name: Name, seconds: u64, seed: u64, settles_outside: bool) -> Result<Row> {
    let began = tick();
    let (store, server) = store_of(name).context("no ledger")?;
    let workers = usize::try_from(CLIENTS)?;
    let mut backend = servers::start(store, workers, seed).await?;
    let folder = new_folder("ledger");
    let WorkerPlace::Processes { urls, .. } = backend.place() else {
        anyhow::bail!("a ledger is in a database");
    };
    let closer = Setup {
        url: urls[0].clone(),
        server,
        number: CLOSER,
        seed,
        file: folder.join("closer"),
        settles_outside,
    };
    let desk = Client::open(&closer).await;
    desk.bank.open().await?;
    if let Bank::Postgres(pool) = &desk.bank {
        semel_stream::postgres::migrate(pool).await?;
        work::queue(&desk).await;
    }
    let mut row = Row::new(&name.text(), seed);
    let mut crew = Clients::start(&closer, &urls, &folder)?;
    let until = tick() + seconds * 1_000_000_000;
    row.faults = strike(&mut crew, &mut *backend, seed, until).await?;
    let files = crew.end().await;
    // By now the leases of all vanished clients have lapsed.
    pass(LEASE * 2).await;
    close::close(&desk, &files, &mut row).await?;
    row.rounds = 1;
    row.seconds = Duration::from_nanos(tick() - began).as_secs_f64();
    let _ = std::fs::remove_dir_all(&folder);
    Ok(row)
}

/// The client processes.
struct Clients {
    template: Setup,
    urls: Vec<String>,
    folder: PathBuf,
    members: Vec<Child>,
    started: u64,
    files: Vec<PathBuf>,
}

impl Clients {
    fn start(template: &Setup, urls: &[String], folder: &Path) -> Result<Self> {
        let mut this = Self {
            template: template.clone(),
            urls: urls.to_vec(),
            folder: folder.to_owned(),
            members: Vec::new(),
            started: 0,
            files: Vec::new(),
        };
        for place in 0..this.urls.len() {
            let child = this.launch(place)?;
            this.members.push(child);
        }
        Ok(this)
    }

    fn launch(&mut self, place: usize) -> Result<Child> {
        self.started += 1;
        let file = self.folder.join(format!("told-{}", self.started));
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("ledger-client")
            .args(["--url", &self.urls[place]]);
        let server = match self.template.server {
            Server::Postgres => "postgres",
            Server::Mariadb => "mariadb",
        };
        command.args(["--server", server]).arg("--file").arg(&file);
        command.args(["--number", &self.started.to_string()]);
        command.args(["--seed", &self.template.seed.to_string()]);
        if self.template.settles_outside {
            command.arg("--settles-outside");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        if std::env::var_os("SEMEL_FAULTS_LOG").is_none() {
            command.stderr(Stdio::null());
        }
        self.files.push(file);
        command
            .kill_on_drop(true)
            .spawn()
            .context("a client can't be started")
    }

    /// Kills a process, and starts a replacement.
    async fn replace(&mut self, place: usize) -> Result<()> {
        // An error means that it is already gone.
        let _ = self.members[place].kill().await;
        self.members[place] = self.launch(place)?;
        Ok(())
    }

    /// Replaces processes that have exited. Returns how many.
    async fn revive(&mut self) -> Result<u64> {
        let mut died = 0;
        for place in 0..self.members.len() {
            if !matches!(self.members[place].try_wait(), Ok(None)) {
                self.replace(place).await?;
                died += 1;
            }
        }
        Ok(died)
    }

    /// Kills all processes. Returns their files.
    async fn end(mut self) -> Vec<PathBuf> {
        for member in &mut self.members {
            let _ = member.kill().await;
        }
        self.files
    }
}

async fn strike(
    clients: &mut Clients,
    backend: &mut dyn Backend,
    seed: u64,
    until: u64,
) -> Result<StrikeCounts> {
    let mut rng = StdRng::seed_from_u64(!seed);
    let (mut struck, windows) = (StrikeCounts::default(), Shared::default());
    let mut kinds = backend.kinds();
    // The books contain no times; other runs test set clocks.
    kinds.retain(|kind| !matches!(kind, Kind::ClockForward | Kind::ClockBack));
    while tick() < until {
        pass(Duration::from_millis(rng.random_range(100..600))).await;
        struck.add(Kind::KillInEffect, clients.revive().await?);
        match rng.random_range(0..10) {
            0..5 => {
                let place = rng.random_range(0..clients.members.len());
                clients.replace(place).await?;
                struck.add(Kind::KillWorker, 1);
            }
            5..7 if !kinds.is_empty() => {
                let kind = kinds[rng.random_range(0..kinds.len())];
                let times = backend.strike(kind, &mut rng, &windows).await;
                struck.add(kind, times.with_context(|| kind.name())?);
            }
            _ => {
                let kind = ON_WAYS[rng.random_range(0..ON_WAYS.len())];
                let times = strike_ways(kind, backend.ways(), &mut rng, LEASE).await;
                struck.add(kind, times);
            }
        }
    }
    Ok(struck)
}

/// Runs a client that settles outside of the transaction. Returns the findings of one short run.
pub(crate) async fn flawed(seed: u64) -> Result<Vec<FailedRun>> {
    let row = run(Name::LedgerPostgres, 8, seed, true).await?;
    Ok(row.violations)
}

/// Calls until it is killed, or until its parent is gone.
pub(crate) async fn process(setup: Setup) {
    std::thread::spawn(|| {
        let mut nothing = String::new();
        while std::io::stdin()
            .read_line(&mut nothing)
            .is_ok_and(|read| read > 0)
        {}
        std::process::exit(0);
    });
    let client = Client::open(&setup).await;
    let rng = |task: u64| StdRng::seed_from_u64(setup.seed ^ (setup.number << 16) ^ (task << 48));
    for task in 0..CALLERS {
        let client = Arc::clone(&client);
        tokio::spawn(client.call_on(rng(task), setup.settles_outside));
    }
    if let Bank::Postgres(pool) = &client.bank
        && !setup.settles_outside
    {
        tokio::spawn(inbox::consume(Arc::clone(&client), pool.clone(), rng(100)));
        tokio::spawn(work::submit(Arc::clone(&client), rng(101)));
        tokio::spawn(work::work(Arc::clone(&client), rng(102)));
    }
    std::future::pending::<()>().await;
}
