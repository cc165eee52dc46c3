//! `semel bench`: what your store can do, measured, for `plan`.
//!
//! | file | is |
//! |---|---|
//! | `subject` | the store that is measured, and what it says it used |
//! | `load` | callers that claim and settle, or replay |
//! | `constants` | what was measured, kept in a file |

pub(crate) mod constants;
mod load;
mod subject;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use semel_server::config::Size;

use crate::exit::{self, Exit};
use crate::out::{self, Look, Tone};
use crate::progress::Progress;
use crate::runtime;
use constants::{All, Constants};
use load::Load;
use subject::{Subject, Used};

/// Measures your store: claims and settlements per second, replays per second, bytes per record. Bounded in time; what
/// it writes is in an environment of its own, and removed at the end.
#[derive(Args)]
#[command(after_help = "\
Example:
  semel bench --store redis://127.0.0.1 --out mine.json
  semel plan --rps 5000 --ttl 24h --body 2KiB --constants mine.json

Others who use the store meanwhile are slowed down, and counted in: measure when it is quiet. Sizes are told by how much
the store grows: let it run longer (--seconds 60), and on tables that have no room left inside by earlier deletions.")]
pub(crate) struct Bench {
    /// The store: redis://…, postgres://…, mysql://…, sqlite://…, memory://
    #[arg(long, value_name = "URL", env = "SEMEL_STORE_URL")]
    store: String,
    /// How long to measure, in seconds, about.
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..=600))]
    seconds: u64,
    /// How many callers at a time.
    #[arg(long, value_name = "NUMBER", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    concurrency: u32,
    /// The size of an answer's body.
    #[arg(long, value_name = "SIZE", default_value = "2KiB")]
    body: Size,
    /// A file for the figures, as `semel plan --constants` reads them; other stores in it are kept.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// What to say of the machine, in the file.
    #[arg(long, value_name = "TEXT")]
    machine: Option<String>,
    /// As JSON, for programs.
    #[arg(long)]
    json: bool,
}

/// The largest body: what an answer may have at most by default.
const MOST_BODY: u64 = 1024 * 1024;
/// A body too small to matter.
const SMALL: u64 = 16;

impl Bench {
    pub(crate) fn run(self) -> Exit {
        runtime::block_on(async move { Box::pin(self.measure()).await }).into()
    }

    async fn measure(&self) -> Result<(), Exit> {
        if !(SMALL * 2..=MOST_BODY).contains(&self.body.0) {
            let message = format!("--body is from {}B to 1MiB", SMALL * 2);
            return Err(Exit::failed(exit::REFUSED, message));
        }
        // What there is already is read before the time is spent.
        let mut all = match &self.out {
            Some(file) if file.exists() => constants::read(Some(file))?,
            _ => All::new(),
        };
        let subject = Subject::open(&self.store).await?;
        let constants = self.constants(&subject).await?;
        let name = subject.name();
        all.insert(name.to_owned(), constants.clone());
        if let Some(file) = &self.out {
            let text = serde_json::to_string_pretty(&all).unwrap_or_default();
            std::fs::write(file, text + "\n").map_err(|error| {
                Exit::failed(exit::CONFIG, format!("--out {}: {error}", file.display()))
            })?;
        }
        if self.json {
            out::json(&All::from([(name.to_owned(), constants)]));
        } else {
            self.show(&constants);
        }
        Ok(())
    }

    async fn constants(&self, subject: &Subject) -> Result<Constants, Exit> {
        let progress = Progress::steps("measuring", 100);
        let share = |part: u32| Duration::from_secs(self.seconds) * part / 100;
        let mut load = Load::new(subject, self.concurrency);
        // The first connections and plans are nobody's figure.
        load.fresh(1, SMALL, share(5)).await?;
        progress.to(5);
        let alone = load.fresh(1, self.body.0, share(10)).await?;
        progress.to(15);
        let (small, small_used) = weigh(subject, &mut load, SMALL, share(20)).await?;
        progress.to(35);
        let (fresh, fresh_used) = weigh(subject, &mut load, self.body.0, share(40)).await?;
        progress.to(75);
        let before = subject.used().await?;
        let replays = load.replays(share(20)).await?;
        let replays_used = subject.used().await?.since(before);
        progress.to(95);
        load.remove().await;
        progress.to(100);
        let each = |used: u64, count: u64| used as f64 / count.max(1) as f64;
        let small_each = each(small_used.bytes, small.count);
        let fresh_each = each(fresh_used.bytes, fresh.count);
        let per_byte = ((fresh_each - small_each) / (self.body.0 - SMALL) as f64).max(0.0);
        let is_counted = |used: u64, count| (used > 0).then(|| each(used, count));
        let masters = fresh_used.masters.max(1) as f64;
        Ok(Constants {
            server: subject.server().await,
            measured: self.circumstances(),
            concurrency: self.concurrency,
            body_bytes: self.body.0,
            fresh_per_second: round(fresh.per_second() / masters),
            replays_per_second: round(replays.per_second() / masters),
            fresh_alone_ms: round(alone.mean_ms()),
            fresh_p99_ms: round(fresh.p99_ms()),
            bytes_fixed: round((small_each - per_byte * SMALL as f64).max(0.0)),
            bytes_per_body_byte: round(per_byte),
            commands_per_fresh: is_counted(fresh_used.commands, fresh.count).map(round),
            commands_per_replay: is_counted(replays_used.commands, replays.count).map(round),
            wal_bytes_per_fresh: is_counted(fresh_used.wal_bytes, fresh.count).map(round),
        })
    }

    fn circumstances(&self) -> String {
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        let machine = self
            .machine
            .clone()
            .unwrap_or_else(|| format!("from a machine with {cores} cores"));
        format!(
            "{machine}; semel {}, {} callers, bodies of {}, {} s",
            env!("CARGO_PKG_VERSION"),
            self.concurrency,
            self.body,
            self.seconds
        )
    }

    fn show(&self, constants: &Constants) {
        let look = Look::of_stdout();
        let mut table = look.bare_table();
        let number = out::number;
        let mut rows = vec![
            (
                "claimed and settled",
                format!("{}/s", number(constants.fresh_per_second)),
            ),
            (
                "replayed",
                format!("{}/s", number(constants.replays_per_second)),
            ),
            (
                "one, with nobody else there",
                format!("{:.2} ms", constants.fresh_alone_ms),
            ),
            (
                "99 of 100 under load within",
                format!("{:.1} ms", constants.fresh_p99_ms),
            ),
        ];
        if constants.bytes_fixed > 0.0 {
            let each = format!(
                "{:.0} B + {:.2} B for each of a body",
                constants.bytes_fixed, constants.bytes_per_body_byte
            );
            rows.push(("a record takes", each));
        }
        if let Some(commands) = constants.commands_per_fresh {
            rows.push(("commands for a fresh one", format!("{commands:.2}")));
        }
        if let Some(bytes) = constants.wal_bytes_per_fresh {
            rows.push(("log for a fresh one", out::bytes(bytes)));
        }
        for (name, value) in rows {
            table.add_row([look.cell(Tone::Plain, name), look.cell(Tone::Strong, value)]);
        }
        out::say(format!("{}: {}\n", constants.server, constants.measured));
        out::say(table.trim_fmt());
        if let Some(file) = &self.out {
            let next = format!(
                "\nnext: semel plan --rps 5000 --ttl 24h --body 2KiB --constants {}",
                file.display()
            );
            out::say(look.paint(Tone::Quiet, next));
        }
    }
}

/// Fresh runs, and what the server used for them.
async fn weigh(
    subject: &Subject,
    load: &mut Load<'_>,
    body: u64,
    time: Duration,
) -> Result<(load::Measured, Used), Exit> {
    let concurrency = load.concurrency;
    let before = subject.used().await?;
    let measured = load.fresh(concurrency, body, time).await?;
    Ok((measured, subject.used().await?.since(before)))
}

/// More digits than were measured say nothing.
fn round(value: f64) -> f64 {
    let digits = if value >= 100.0 { 1.0 } else { 1000.0 };
    (value * digits).round() / digits
}
