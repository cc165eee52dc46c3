//! The result of a run: rows, a table, a file.

use std::path::Path;

use anyhow::{Context as _, Result};
use comfy_table::Table;
use serde::Serialize;

use crate::kinds::{Kind, StrikeCounts};
use crate::verdict::Verdict;
use crate::worker::doors::Doors;

/// The minimum number of answers: a run in which nothing worked proves nothing.
const LEAST_ANSWERED: u64 = 200;
/// The maximum number of calls per operation: most need a claim, some a settlement, a renewal or a
/// retry. Operators' calls count, too.
const MOST_CALLS: f64 = 4.0;
/// The number of violations that are shown in full.
const SHOWN: usize = 5;

/// The run of one store.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) store: String,
    pub(crate) seed: u64,
    pub(crate) seconds: f64,
    pub(crate) rounds: u64,
    /// The number of requests.
    pub(crate) operations: u64,
    /// The number of requests with a response or a final failure.
    pub(crate) answered: u64,
    pub(crate) store_calls: u64,
    /// Store calls per operation, at most [`MOST_CALLS`]; 0 if they are not recorded.
    pub(crate) calls_per_operation: f64,
    pub(crate) keys: u64,
    pub(crate) effects: u64,
    pub(crate) takeovers: u64,
    pub(crate) doubts: u64,
    pub(crate) expired: u64,
    /// Keys without an answer at the end of a round, when all faults were undone.
    pub(crate) unanswered: u64,
    /// Keys of vanished owners that a clock set back keeps busy.
    pub(crate) kept_busy: u64,
    /// Checked operations by door.
    pub(crate) doors: Doors,
    pub(crate) faults: StrikeCounts,
    /// Faults that could not be tried on this machine.
    pub(crate) left_out: Vec<LeftOut>,
    /// Whether the store's guarantee allows a failover to lose acknowledged writes.
    pub(crate) may_lose: bool,
    pub(crate) lost_as_stated: u64,
    pub(crate) violations: Vec<FailedRun>,
    pub(crate) met: bool,
}

/// A fault that was not tried, and why.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LeftOut {
    pub(crate) fault: Kind,
    pub(crate) why: &'static str,
}

impl LeftOut {
    /// These faults, if they can't be tried.
    pub(crate) fn unless(can_be: bool, kinds: &[Kind], why: &'static str) -> Vec<Self> {
        let left_out = |fault: &Kind| Self { fault: *fault, why };
        let kinds = if can_be { &[] } else { kinds };
        kinds.iter().map(left_out).collect()
    }
}

/// The result of all runs, and what was left out.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) stores: Vec<Row>,
    pub(crate) not_run: Vec<NotRun>,
}

/// A run that was left out, and why.
#[derive(Debug, Serialize)]
pub(crate) struct NotRun {
    pub(crate) what: String,
    pub(crate) why: String,
}

/// Faults that no run tries.
const NEVER_RUN: [(&str, &str); 6] = [
    ("a loss of power", "no machine here can lose it"),
    (
        "a disk that lies about what it has written",
        "no such disk can be made without a kernel module",
    ),
    ("a full disk under MariaDB", "not written yet"),
    ("a full disk under SeaweedFS", "not written yet"),
    (
        "a master that is cut from its replica in one direction",
        "the switch between the machines cuts both",
    ),
    (
        "processes of two versions on one store",
        "there is one version",
    ),
];

impl Report {
    /// A report of the stores that were run, and of those that can't run on this machine.
    pub(crate) fn of(stores: Vec<Row>, mut not_run: Vec<NotRun>) -> Self {
        not_run.extend(NEVER_RUN.map(|(what, why)| NotRun {
            what: what.to_owned(),
            why: why.to_owned(),
        }));
        Self { stores, not_run }
    }
}

/// A violation, with the whole history of its key.
#[derive(Debug, Serialize)]
pub(crate) struct FailedRun {
    pub(crate) invariant: &'static str,
    pub(crate) what: String,
    pub(crate) history: String,
}

impl Row {
    pub(crate) fn new(store: &str, seed: u64) -> Self {
        Self {
            store: store.to_owned(),
            seed,
            seconds: 0.0,
            rounds: 0,
            operations: 0,
            answered: 0,
            store_calls: 0,
            calls_per_operation: 0.0,
            keys: 0,
            effects: 0,
            takeovers: 0,
            doubts: 0,
            expired: 0,
            unanswered: 0,
            kept_busy: 0,
            doors: Doors::new(),
            faults: StrikeCounts::default(),
            left_out: Vec::new(),
            may_lose: false,
            lost_as_stated: 0,
            violations: Vec::new(),
            met: false,
        }
    }

    pub(crate) fn take(&mut self, verdict: Verdict) {
        self.operations += verdict.operations;
        self.answered += verdict.answered;
        self.store_calls += verdict.calls;
        self.keys += verdict.keys;
        self.effects += verdict.effects;
        self.takeovers += verdict.takeovers;
        self.doubts += verdict.doubts;
        self.expired += verdict.expired;
        self.lost_as_stated += verdict.lost_as_stated;
        for (door, times) in verdict.doors {
            *self.doors.entry(door).or_default() += times;
        }
        for (violation, history) in verdict.violations {
            self.violations.push(FailedRun {
                invariant: violation.invariant,
                what: violation.to_string(),
                history,
            });
        }
    }

    /// Decides whether the run proves what it should: enough worked, something failed, and nothing
    /// is wrong. Returns the reasons against it.
    pub(crate) fn decide(&mut self) -> Vec<String> {
        let mut short = Vec::new();
        if self.answered < LEAST_ANSWERED {
            short.push(format!(
                "only {} answered, of {LEAST_ANSWERED} at least",
                self.answered
            ));
        }
        if self.faults.total() == 0 {
            short.push("nothing struck".to_owned());
        }
        if self.unanswered > 0 {
            short.push(format!(
                "{} keys gave no answer when all was whole",
                self.unanswered
            ));
        }
        if self.operations > 0 {
            #[expect(clippy::cast_precision_loss, reason = "a rounded figure")]
            let calls = self.store_calls as f64 / self.operations as f64;
            self.calls_per_operation = (calls * 100.0).round() / 100.0;
        }
        if self.calls_per_operation > MOST_CALLS {
            short.push(format!(
                "{} calls to the store for an operation, at most {MOST_CALLS} are right",
                self.calls_per_operation
            ));
        }
        if !self.violations.is_empty() {
            short.push(format!("{} violations", self.violations.len()));
        }
        self.met = short.is_empty();
        short
    }

    pub(crate) fn tell(&mut self) {
        for wrong in self.violations.iter().take(SHOWN) {
            println!(
                "\n{} on {}, seed {}:\n{}",
                wrong.invariant, self.store, self.seed, wrong.what
            );
            println!("  all that happened to this key:\n{}", wrong.history);
        }
        let short = self.decide();
        if self.may_lose {
            println!(
                "{}: acknowledged and lost: {}, as stated",
                self.store, self.lost_as_stated
            );
        }
        for LeftOut { fault, why } in &self.left_out {
            println!("{}: {} not run: {why}", self.store, fault.name());
        }
        for why in short {
            println!("{}: not met: {why}", self.store);
        }
    }
}

/// The rows as a table.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.set_header([
        "store",
        "operations",
        "answered",
        "store calls",
        "calls/op",
        "effects",
        "takeovers",
        "doubts",
        "faults",
        "lost",
        "violations",
        "met",
    ]);
    for row in rows {
        table.add_row([
            row.store.clone(),
            row.operations.to_string(),
            row.answered.to_string(),
            row.store_calls.to_string(),
            if row.store_calls > 0 {
                format!("{:.2}", row.calls_per_operation)
            } else {
                "–".to_owned()
            },
            row.effects.to_string(),
            row.takeovers.to_string(),
            row.doubts.to_string(),
            row.faults.total().to_string(),
            if row.may_lose {
                row.lost_as_stated.to_string()
            } else {
                "–".to_owned()
            },
            row.violations.len().to_string(),
            if row.met { "yes" } else { "NO" }.to_owned(),
        ]);
    }
    let mut all = StrikeCounts::default();
    for row in rows {
        all.merge(&row.faults);
    }
    let kinds: Vec<String> = all
        .0
        .iter()
        .map(|(kind, times)| format!("  {:<20}{times:>8}", kind.name()))
        .collect();
    let mut doors = Doors::new();
    for (door, times) in rows.iter().flat_map(|row| &row.doors) {
        *doors.entry(door).or_default() += times;
    }
    let doors: Vec<String> = doors
        .iter()
        .map(|(door, times)| format!("  {door:<20}{times:>8}"))
        .collect();
    format!(
        "{table}\nfaults by kind ({} kinds):\n{}\nchecked operations by door:\n{}",
        kinds.len(),
        kinds.join("\n"),
        doors.join("\n")
    )
}

/// Writes the result file.
pub(crate) fn write(path: &Path, what: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(what)? + "\n";
    std::fs::write(path, text).with_context(|| format!("can't write {}", path.display()))
}
