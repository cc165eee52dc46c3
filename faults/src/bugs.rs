//! Mutation tests of the checker: stores and clients with one seeded bug each, and the run in which
//! it is found.

use anyhow::{Result, bail};
use comfy_table::Table;
use semel_testkit::history::seeded::{SEEDED, Seeded, sound_violations};
use semel_testkit::private::new_folder;
use serde::Serialize;

use crate::servers::{Memory, Name, flawed_split, why_not};

/// The result for one bug.
#[derive(Debug, Serialize)]
pub(crate) struct Found {
    bug: &'static str,
    invariant: &'static str,
    /// The number of the run that found it, from 1.
    run: Option<u64>,
    shown: String,
}

/// Runs a bug until it is found, at most `runs` times.
async fn hunt(bug: &Seeded, first: u64, runs: u64) -> Found {
    let mut found = Found {
        bug: bug.name(),
        invariant: bug.invariant,
        run: None,
        shown: String::new(),
    };
    for number in 0..runs {
        let violations = bug.violations(first.wrapping_add(number)).await;
        if let Some(violation) = violations
            .iter()
            .find(|violation| violation.invariant == bug.invariant)
        {
            (found.run, found.shown) = (Some(number + 1), violation.to_string());
            break;
        }
    }
    found
}

/// A client that settles outside of the transaction. Only the books of a ledger show it.
const SETTLES_OUTSIDE: &str = "settles_outside";

/// Runs the ledger with that bug until its books are wrong. The number of runs is small, because
/// each starts a server and kills clients.
async fn hunt_in_ledger(first: u64, runs: u64) -> Result<Found> {
    let mut found = Found {
        bug: SETTLES_OUTSIDE,
        invariant: "ledger",
        run: None,
        shown: String::new(),
    };
    for number in 0..runs.min(5) {
        let wrong = crate::ledger::flawed(first.wrapping_add(number)).await?;
        if let Some(wrong) = wrong.first() {
            (found.run, found.shown) = (Some(number + 1), wrong.what.clone());
            break;
        }
    }
    Ok(found)
}

/// A waiter that polls without a pause. Only the number of its calls shows it.
const RESTLESS_WAITER: &str = "restless_waiter";

/// Runs callers with that bug on a sound store in memory until it is found.
async fn hunt_in_load(first: u64, runs: u64) -> Result<Found> {
    let mut found = Found {
        bug: RESTLESS_WAITER,
        invariant: "load",
        run: None,
        shown: String::new(),
    };
    for number in 0..runs.min(5) {
        let seed = first.wrapping_add(number);
        let how = crate::run::Options {
            seconds: 4,
            seed,
            workers: 2,
            tasks: 8,
            restless: true,
            only: Vec::new(),
        };
        let (folder, backend) = (new_folder("restless"), Box::new(Memory::sound(seed)));
        let row = crate::run::run(RESTLESS_WAITER, backend, &how, &folder).await;
        // Leftover files do no harm.
        let _ = std::fs::remove_dir_all(&folder);
        let mut wrong = row?.violations.into_iter();
        if let Some(wrong) = wrong.find(|wrong| wrong.invariant == "load") {
            (found.run, found.shown) = (Some(number + 1), wrong.what);
            break;
        }
    }
    Ok(found)
}

/// A configuration that only a network split shows: callers do not wait for a replica, although
/// nothing may be lost.
const SPLIT_WITHOUT_WAIT: &str = "split_without_wait";

/// Runs that configuration until it is found. The number of runs is small, because each sets up
/// network namespaces.
async fn hunt_in_split(first: u64, runs: u64) -> Result<Found> {
    let mut found = Found {
        bug: SPLIT_WITHOUT_WAIT,
        invariant: "any",
        run: None,
        shown: String::new(),
    };
    for number in 0..runs.min(3) {
        let how = crate::run::Options {
            seconds: 8,
            seed: first.wrapping_add(number),
            workers: 4,
            tasks: 8,
            restless: false,
            only: Vec::new(),
        };
        let (folder, backend) = (new_folder("split"), flawed_split().await?);
        let row = crate::run::run(SPLIT_WITHOUT_WAIT, backend, &how, &folder).await;
        // Leftover files do no harm.
        let _ = std::fs::remove_dir_all(&folder);
        if let Some(wrong) = row?.violations.into_iter().next() {
            (found.run, found.shown) = (Some(number + 1), wrong.what);
            break;
        }
    }
    Ok(found)
}

/// Hunts one bug or all of them, and shows that the same runs on a sound store find nothing.
pub(crate) async fn hunt_all(name: &str, seed: u64, runs: u64) -> Result<Vec<Found>> {
    let wanted: Vec<_> = SEEDED
        .iter()
        .filter(|bug| name == "all" || bug.name() == name)
        .collect();
    let in_ledger = name == "all" || name == SETTLES_OUTSIDE;
    let in_load = name == "all" || name == RESTLESS_WAITER;
    let in_split = name == "all" || name == SPLIT_WITHOUT_WAIT;
    if wanted.is_empty() && !in_ledger && !in_load && !in_split {
        let others = [SETTLES_OUTSIDE, RESTLESS_WAITER, SPLIT_WITHOUT_WAIT];
        let names: Vec<_> = SEEDED.iter().map(Seeded::name).chain(others).collect();
        bail!("no bug {name}; there are: {}", names.join(", "));
    }
    for number in 0..runs.min(20) {
        let wrong = sound_violations(seed.wrapping_add(number)).await;
        if let Some(violation) = wrong.first() {
            bail!(
                "a sound store is accused, seed {}: {violation}",
                seed.wrapping_add(number)
            );
        }
    }
    let mut rows = Vec::new();
    for bug in wanted {
        rows.push(hunt(bug, seed, runs).await);
    }
    if in_load {
        rows.push(hunt_in_load(seed, runs).await?);
    }
    if in_ledger {
        rows.push(hunt_in_ledger(seed, runs).await?);
    }
    match why_not(Name::SentinelSplit) {
        Some(why) if in_split => println!("{SPLIT_WITHOUT_WAIT} not run: {why}"),
        None if in_split => rows.push(hunt_in_split(seed, runs).await?),
        _ => {}
    }
    Ok(rows)
}

/// Prints the rows. Returns whether every bug was found.
pub(crate) fn tell(rows: &[Found], runs: u64) -> bool {
    let mut table = Table::new();
    table.set_header(["seeded bug", "breaks", "found in run"]);
    for row in rows {
        let run = row
            .run
            .map_or_else(|| format!("not in {runs}"), |run| run.to_string());
        table.add_row([row.bug, row.invariant, &run]);
    }
    println!("{table}");
    if let [one] = rows {
        println!("{}", one.shown);
    }
    let found = rows.iter().filter(|row| row.run.is_some()).count();
    println!(
        "{found} of {} seeded bugs found, each within {runs} short runs",
        rows.len()
    );
    found == rows.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unknown_bug_is_said() {
        let error = hunt_all("no-such-bug", 1, 1).await.unwrap_err().to_string();
        assert!(error.contains("check_then_act"), "{error}");
    }
}
