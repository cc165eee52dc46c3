//! `cargo xtask bench core`, and CI's check of the budgets.

use clap::Parser;
use semel_bench_core::ops::{self, Op};

/// As in the program (ADR 0016).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
enum Command {
    /// Instructions, latency and memory of the memory store and the engine.
    Core {
        /// The most records for the size sweep, a power of ten.
        #[arg(long, default_value_t = 10_000_000)]
        records: usize,
        /// Only compare the instructions with the budgets.
        #[arg(long)]
        check: bool,
        /// Only write the instructions as the new budgets.
        #[arg(long, conflicts_with = "check")]
        write_budgets: bool,
    },
    /// One operation, many times: what callgrind counts.
    #[command(hide = true)]
    Op {
        /// Which operation.
        op: Op,
        /// How many times.
        times: u64,
    },
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Core {
            check: false,
            write_budgets: false,
            records,
        } => semel_bench_core::bench(records),
        Command::Core { write_budgets, .. } => semel_bench_core::check(write_budgets),
        Command::Op { op, times } => ops::repeat(op, times),
    }
}
