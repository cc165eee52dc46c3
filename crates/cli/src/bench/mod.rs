//! `semel bench`: measures a store, for `semel plan`.
//!
//! | file | content |
//! |---|---|
//! | `subject` | the store under test, and the resources that it reports |
//! | `load` | callers that claim and settle, or replay |
//! | `constants` | the figures, stored in a file |

pub(crate) mod constants;
mod load;
mod subject;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use semel_server::config::Size;

use crate::exit::{self, Exit};
use crate::out::{self, Style, Tone};
use crate::progress::Progress;
use crate::runtime;
use constants::{Constants, ConstantsByStore};
use load::Load;
use subject::{ResourceUsage, Subject};

/// Measures your store: claims and replays per second, and bytes per record. The bench runs for a
/// limited time, writes into an environment of its own, and removes its records at the end.
#[derive(Args)]
#[command(after_help = "\
Example:
  semel bench --store redis://127.0.0.1 --out mine.json
  semel plan --rps 5000 --ttl 24h --body 2KiB --constants mine.json

The bench slows down other users of the store, and their load changes the figures: measure when it is
quiet. Sizes are measured by the growth of the store: let it run longer (--seconds 60), on tables
without free space from earlier deletions.")]
pub(crate) struct Bench {
    /// The store: redis://…, postgres://…, mysql://…, sqlite://…, memory://
    #[arg(long, value_name = "URL", env = "SEMEL_STORE_URL")]
    store: String,
    /// The approximate time to measure, in seconds.
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..=600))]
    seconds: u64,
    /// The number of concurrent callers.
    #[arg(long, value_name = "NUMBER", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    concurrency: u32,
    /// The size of a response body.
    #[arg(long, value_name = "SIZE", default_value = "2KiB")]
    body: Size,
    /// A file for the figures, for `semel plan --constants`. Figures of other stores in it are
    /// kept.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// A description of the machine, for the file.
    #[arg(long, value_name = "TEXT")]
    machine: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The largest body, equal to the default limit.
const MAX_BODY: u64 = 1024 * 1024;
/// A body too small to matter.
const SMALL: u64 = 16;

impl Bench {
    pub(crate) fn run(self) -> Exit {
        runtime::block_on(async move { Box::pin(self.measure()).await }).into()
    }

    async fn measure(&self) -> Result<(), Exit> {
        if !(SMALL * 2..=MAX_BODY).contains(&self.body.0) {
            let message = format!("--body must be from {}B to 1MiB", SMALL * 2);
            return Err(Exit::failed(exit::REFUSED, message));
        }
        // Reads the existing file before the time is spent.
        let mut all = match &self.out {
            Some(file) if file.exists() => constants::read(Some(file))?,
            _ => ConstantsByStore::new(),
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
            out::json(&ConstantsByStore::from([(name.to_owned(), constants)]));
        } else {
            self.show(&constants);
        }
        Ok(())
    }

    async fn constants(&self, subject: &Subject) -> Result<Constants, Exit> {
        let progress = Progress::steps("measuring", 100);
        let share = |part: u32| Duration::from_secs(self.seconds) * part / 100;
        let mut load = Load::new(subject, self.concurrency);
        // A warm-up opens the connections and prepares the statements.
        load.fresh(1, SMALL, share(5)).await?;
        progress.to(5);
        let alone = load.fresh(1, self.body.0, share(10)).await?;
        progress.to(15);
        let (small, small_used) = measure_fresh(subject, &mut load, SMALL, share(20)).await?;
        progress.to(35);
        let (fresh, fresh_used) = measure_fresh(subject, &mut load, self.body.0, share(40)).await?;
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
        let look = Style::for_stdout();
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
                "latency without other load",
                format!("{:.2} ms", constants.fresh_alone_ms),
            ),
            (
                "99th percentile under load",
                format!("{:.1} ms", constants.fresh_p99_ms),
            ),
        ];
        if constants.bytes_fixed > 0.0 {
            let each = format!(
                "{:.0} B + {:.2} B per byte of the body",
                constants.bytes_fixed, constants.bytes_per_body_byte
            );
            rows.push(("size of a record", each));
        }
        if let Some(commands) = constants.commands_per_fresh {
            rows.push(("commands per fresh key", format!("{commands:.2}")));
        }
        if let Some(bytes) = constants.wal_bytes_per_fresh {
            rows.push(("log bytes per fresh key", out::bytes(bytes)));
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

/// Runs with fresh keys, and the resources that the server used for them.
async fn measure_fresh(
    subject: &Subject,
    load: &mut Load<'_>,
    body: u64,
    time: Duration,
) -> Result<(load::Measurement, ResourceUsage), Exit> {
    let concurrency = load.concurrency;
    let before = subject.used().await?;
    let measured = load.fresh(concurrency, body, time).await?;
    Ok((measured, subject.used().await?.since(before)))
}

/// Rounds to the measured precision.
fn round(value: f64) -> f64 {
    let digits = if value >= 100.0 { 1.0 } else { 1000.0 };
    (value * digits).round() / digits
}
