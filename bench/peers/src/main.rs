//! The HTTP layer beside no layer and beside a published peer: `cargo xtask bench http`, and what the
//! peer gets wrong: `cargo xtask bench peers`.

#[path = "../../../crates/http/tests/defects/mod.rs"]
mod defects;
mod http;
mod load;
mod peer;
#[path = "../../src/report.rs"]
mod report;
mod table;

use clap::{Parser, Subcommand};

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Requests a second, and what the layer adds to one.
    Http,
    /// Our tests of other layers' defects, on a published peer.
    Peers,
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Http => http::bench(),
        Command::Peers => table::show(),
    }
}
