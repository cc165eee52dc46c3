//! The HTTP layer beside no layer and beside a published peer: `cargo xtask bench http`, and what
//! the peer gets wrong: `cargo xtask bench peers`, `cargo xtask faults --peer axum-idempotent`.

#[path = "../../../crates/http/tests/defects/mod.rs"]
mod defects;
mod faults;
mod http;
mod load;
mod peer;
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
    /// Callers that come at once and hang up, checked as our own are: on the peer, and on our
    /// layer.
    Faults {
        /// The seed of the random choices.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Writes the result to this file.
        #[arg(long)]
        json: Option<std::path::PathBuf>,
    },
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Http => http::bench(),
        Command::Peers => table::show(),
        Command::Faults { seed, json } => faults::show(seed, json.as_deref()),
    }
}
