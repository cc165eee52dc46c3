//! The close of a ledger: requests every key once more, resolves doubts, and compares the books.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use semel::core::Fence;
use semel::core::engine::Problem;
use semel::{Error, Resolution};
use semel_jobs::{JobAnswer, Queue as _, SubmitOutcome};
use sqlx::PgPool;

use super::bank::{Bank, Plan};
use super::books::Books;
use super::client::{Client, SCOPE, STRIKE, identity_of, name_of};
use super::{inbox, work};
use crate::clock::pass;
use crate::kinds::Kind;
use crate::report::{FailedRun, Row};
use crate::worker::words::stored;

/// Names that a killed client may have started after its last report.
const BEYOND: u64 = 64;
const TRIES: usize = 100;
/// The number of keys in flight.
const AT_ONCE: u64 = 6;

/// The job ID of each name.
type Ids = BTreeMap<String, String>;

/// Closes the books, and adds the findings to the row.
pub(super) async fn close(desk: &Arc<Client>, files: &[PathBuf], row: &mut Row) -> Result<()> {
    let mut told = read(files)?;
    told.retain(|(door, name, _)| {
        let kind = if name == "deadlock" {
            Kind::Deadlock
        } else {
            Kind::IdleInTransaction
        };
        row.faults.add(kind, u64::from(door == STRIKE));
        door != STRIKE
    });
    let first = desk.bank.entries().await?;
    let names = told.iter().map(|(_, name, _)| &**name);
    let names = names.chain(first.iter().map(|entry| &*entry.name));
    let numbers = names.filter_map(|name| name.strip_prefix("n-")?.parse::<u64>().ok());
    let keys = numbers.max().unwrap_or(0) + BEYOND;

    let (mut books, mut ids) = (Books::default(), Ids::new());
    (row.unanswered, row.doubts) = direct(desk, keys, &mut books).await?;
    if let Bank::Postgres(pool) = &desk.bank {
        messages(desk, pool, keys, &mut books).await?;
        work::drain(desk).await?;
        ids = jobs(desk, pool, &mut books).await?;
    }
    books.entries = desk.bank.entries().await?;
    for (door, ..) in &told {
        let door = ["run-in", inbox::DOOR, work::DOOR]
            .into_iter()
            .find(|name| name == door)
            .context("a door that nobody knows")?;
        *row.doors.entry(door).or_default() += 1;
    }
    row.operations = told.len() as u64;
    (row.answered, row.keys) = (row.operations, keys);
    row.effects = books.entries.len() as u64;
    books.told = told;
    tell_as_runs(&mut books, &ids);
    row.violations = books.check();
    let (changed, said) = desk.bank.changes().await?;
    if changed != said {
        let what = format!("accounts were changed {changed} times, by the entries {said} times");
        row.violations.push(FailedRun {
            invariant: "ledger",
            what,
            history: String::new(),
        });
    }
    Ok(())
}

/// Replaces job IDs and acknowledgements by the runs that they stand for, where they are right.
fn tell_as_runs(books: &mut Books, ids: &Ids) {
    let Books { told, records, .. } = books;
    for (door, name, answer) in told {
        let is_right = match &**door {
            work::DOOR => ids.get(name) == Some(answer),
            inbox::DOOR => true,
            _ => false,
        };
        if let Some(run) = records
            .get(&(door.clone(), name.clone()))
            .filter(|_| is_right)
        {
            answer.clone_from(run);
        }
    }
}

fn read(files: &[PathBuf]) -> Result<Vec<(String, String, String)>> {
    let mut told = Vec::new();
    for file in files {
        // A client that was killed early has no file.
        let Ok(text) = std::fs::read_to_string(file) else {
            continue;
        };
        // An incomplete last line was being written when the process ended.
        for line in text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
        {
            let mut parts = line.split_whitespace().map(str::to_owned);
            let mut part = || parts.next().context("a line of three words");
            told.push((part()?, part()?, part()?));
        }
    }
    Ok(told)
}

/// Requests every direct key. Returns the number without an answer, and the number in doubt.
async fn direct(desk: &Arc<Client>, keys: u64, books: &mut Books) -> Result<(u64, u64)> {
    let mut tasks = Vec::new();
    for lane in 0..AT_ONCE {
        let desk = Arc::clone(desk);
        tasks.push(tokio::spawn(async move {
            let (mut answers, mut doubts) = (Vec::new(), 0);
            for index in (lane..keys).step_by(usize::try_from(AT_ONCE).unwrap_or(1)) {
                let name = name_of(index);
                let answer = insist(&desk, &name, &mut doubts).await?;
                answers.push((name, answer));
            }
            Ok::<_, anyhow::Error>((answers, doubts))
        }));
    }
    let (mut unanswered, mut in_doubt) = (0, 0);
    for task in tasks {
        let (answers, doubts) = task.await.context("the closer died")??;
        in_doubt += doubts;
        for (name, answer) in answers {
            match answer {
                Some(run) => {
                    books.records.insert(("run-in".to_owned(), name), run);
                }
                None => unanswered += 1,
            }
        }
    }
    Ok((unanswered, in_doubt))
}

async fn insist(desk: &Client, name: &str, doubts: &mut u64) -> Result<Option<String>> {
    for _ in 0..TRIES {
        let plan = Plan::plain(desk.entry("run-in", name));
        match desk.bank.run_in(desk.call(SCOPE, name), plan).await {
            Ok(run) => return Ok(Some(run)),
            Err(Error::Problem(Problem::InDoubt(doubt))) => {
                *doubts += 1;
                resolve(desk, name, doubt.fence).await?;
            }
            Err(error) => {
                eprintln!("closer: {error}");
                pass(Duration::from_millis(100)).await;
            }
        }
    }
    Ok(None)
}

/// Resolves a doubt by looking for the entry.
async fn resolve(desk: &Client, name: &str, fence: Fence) -> Result<()> {
    let entries = desk.bank.entries().await?;
    let ours = |entry: &&super::bank::Entry| entry.door == "run-in" && entry.name == name;
    let resolution = match entries.iter().find(ours) {
        Some(entry) => Resolution::Complete(Arc::new(stored(&entry.run))),
        None => Resolution::Release,
    };
    let identity = identity_of(name);
    let resolved = desk.semel.store().resolve(&identity, fence, &resolution);
    resolved.await?;
    desk.semel.engine().forget(&identity);
    Ok(())
}

/// Delivers every message once more, so that all are applied. The inbox is the record.
async fn messages(desk: &Client, pool: &PgPool, keys: u64, books: &mut Books) -> Result<()> {
    for index in 0..keys {
        let name = name_of(index);
        let mut delivered = inbox::deliver(desk, pool, &name).await;
        for _ in 0..TRIES {
            if delivered.is_ok() {
                break;
            }
            pass(Duration::from_millis(50)).await;
            delivered = inbox::deliver(desk, pool, &name).await;
        }
        delivered.context("a message that can't be delivered")?;
    }
    let mut runs = BTreeMap::new();
    for entry in desk.bank.entries().await? {
        if entry.door == inbox::DOOR {
            runs.entry(entry.name).or_insert(entry.run);
        }
    }
    for index in 0..keys {
        let name = name_of(index);
        // A message in the inbox without an entry counts as a record without one.
        let run = runs.remove(&name).unwrap_or_default();
        books.records.insert((inbox::DOOR.to_owned(), name), run);
    }
    Ok(())
}

/// Submits every job again. Its answer names the run that did it. Returns the IDs.
async fn jobs(desk: &Client, pool: &PgPool, books: &mut Books) -> Result<Ids> {
    let text = "SELECT convert_from(params, 'UTF8')::json ->> 'name' FROM semel.jobs";
    let names: Vec<String> = sqlx::query_scalar(text).fetch_all(pool).await?;
    let (queue, mut ids) = (work::queue(desk).await, Ids::new());
    for name in names {
        let submitted = queue.enqueue(vec![work::job(&name)]).await;
        let submitted = submitted.into_iter().next().context("an answer")??;
        let id = submitted.job().id.to_string();
        let run = match &submitted {
            SubmitOutcome::Completed(_, JobAnswer::Kept(answer)) => serde_json::from_slice(answer)?,
            other => format!("no run: {}", other.status()),
        };
        if ids.insert(name.clone(), id).is_some() {
            books.twice.push((work::DOOR.to_owned(), name.clone()));
        }
        books.records.insert((work::DOOR.to_owned(), name), run);
    }
    Ok(ids)
}
