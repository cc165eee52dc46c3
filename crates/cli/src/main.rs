//! The `semel` command.

mod config;
mod exit;
mod log;
mod serve;

use clap::{Parser, Subcommand};

use exit::Exit;

/// Sent many times, done once: idempotency for services in any language.
#[derive(Parser)]
#[command(name = "semel", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Forwards requests to a service; those with a key run once.
    Serve(serve::Serve),
    /// Checks, shows and explains the settings of `serve`.
    #[command(subcommand)]
    Config(config::Config),
}

fn main() -> std::process::ExitCode {
    let exit = match Cli::parse().command {
        Command::Serve(serve) => serve.run(),
        Command::Config(config) => config.run(),
    };
    if let Exit::Failed { code: _, message } = &exit
        && !message.is_empty()
    {
        eprintln!("semel: {message}");
    }
    exit.into()
}
