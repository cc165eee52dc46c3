//! The `semel` command.

use clap::Parser;

/// Sent many times, done once.
#[derive(Parser)]
#[command(name = "semel", version)]
struct Cli {}

fn main() -> anyhow::Result<()> {
    let Cli {} = Cli::parse();
    Ok(())
}
