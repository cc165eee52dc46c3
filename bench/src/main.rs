//! Benchmarks Semel against the bare alternative, in one run: `cargo xtask bench NAME`.
//!
//! A figure is an instruction count, or a ratio to something measured beside it; never a time
//! alone.

mod cpu;
mod erase;
mod flood;
mod interval;
mod jobs;
mod latency;
mod mcp;
mod sidecar;
mod stores;
mod stream;
mod telemetry;
mod turns;

use clap::{Parser, Subcommand};

/// As in the program (ADR 0016).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Each store against its bare engine.
    Stores {
        /// The most records for the size sweep: 10,000, 1,000,000 or 10,000,000.
        #[arg(long, default_value_t = 1_000_000)]
        records: u64,
        /// Only the rows whose name begins so, such as `PostgreSQL`.
        #[arg(long, default_value = "")]
        only: String,
    },
    /// An open loop at fixed rates: latencies from the intended start.
    Latency {
        /// How long each rate is offered.
        #[arg(long, default_value_t = 5)]
        seconds: u64,
        /// Only the store whose name begins so: memory, Redis or PostgreSQL.
        #[arg(long, default_value = "")]
        only: String,
    },
    /// Erases a subject with many records, and reads what is left.
    Erase {
        /// How many.
        #[arg(long, default_value_t = 100_000)]
        records: u64,
    },
    /// The sidecar with telemetry on, against off.
    Telemetry,
    /// The sidecar against nginx as a plain proxy.
    Sidecar,
    /// The sidecar of this tree against an earlier program: what a change costs.
    Beside {
        /// The earlier program.
        program: std::path::PathBuf,
    },
    /// One tenant sends far more than it may; how another fares, against a quiet time.
    Flood {
        /// Requests a second that are offered.
        #[arg(long, default_value_t = 10_000)]
        rate: u64,
        /// For so long.
        #[arg(long, default_value_t = 10)]
        seconds: u64,
    },
    /// Calls of a tool through the gateway, against the server itself.
    Mcp,
    /// The window of keys against a bare LRU map, and marks against the window.
    Stream {
        /// The most keys, for the bytes that each takes.
        #[arg(long, default_value_t = 10_000_000)]
        keys: usize,
    },
    /// The queue of jobs against the bare statements that do the same.
    Jobs {
        /// How many jobs wait while leases are measured.
        #[arg(long, default_value_t = 1_000_000)]
        depth: u64,
    },
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Stores { records, only } => stores::bench(records, &only),
        Command::Latency { seconds, only } => latency::bench(seconds, &only),
        Command::Erase { records } => erase::bench(records),
        Command::Telemetry => telemetry::bench(),
        Command::Sidecar => sidecar::bench(),
        Command::Beside { program } => sidecar::beside(program),
        Command::Flood { rate, seconds } => flood::bench(rate, seconds),
        Command::Mcp => mcp::bench(),
        Command::Stream { keys } => stream::bench(keys),
        Command::Jobs { depth } => jobs::bench(depth),
    }
}
