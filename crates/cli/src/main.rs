//! The `semel` command.

mod audit;
mod bench;
mod client;
mod config;
mod demo;
mod dev;
mod docs;
mod doctor;
mod encryption_key;
mod erase;
mod events;
mod exit;
mod gc;
mod jobs;
mod keys;
mod lifecycle;
mod log;
mod mcp;
mod migrate;
mod migrate_store;
mod operator;
mod out;
mod pages;
mod payments;
mod plan;
mod progress;
mod runtime;
mod serve;
mod tail;
mod token;
mod top;

use clap::{Parser, Subcommand};

use exit::Exit;

/// Memory of a request is often freed by another thread, and cross-thread frees are slow in the
/// system's allocator (ADR 0016).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Sent many times, done once: idempotency for services in any language.
#[derive(Parser)]
#[command(
    name = "semel",
    version,
    propagate_version = true,
    after_help = "New to Semel? `semel dev` opens a page to try it on; `semel demo` shows it in the terminal, in seconds."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the sidecar: forwards requests to a service, and runs requests with a key once.
    Serve(Box<serve::Serve>),
    /// Runs a gateway in front of an MCP server: repeated tool calls act once.
    Mcp(Box<mcp::Mcp>),
    /// Shows Semel at work: payments, a network that loses responses, and a client that retries.
    Demo(demo::Demo),
    /// Opens a page on which you lose replies, retry and kill sidecars, and watch what happens.
    Dev(dev::Dev),
    /// Shows and repairs records.
    #[command(subcommand)]
    Keys(Box<keys::Keys>),
    /// Shows jobs, and retries dead letters.
    #[command(subcommand)]
    Jobs(Box<jobs::Jobs>),
    /// Follows the events of a running sidecar.
    Tail(Box<tail::Tail>),
    /// Shows a live dashboard of a running sidecar.
    Top(Box<top::Top>),
    /// Creates a token for an operator of the admin API.
    Operator(operator::Operator),
    /// Creates a token for a caller of the protocol API and of the jobs API.
    Token(token::Token),
    /// Creates a key for encrypted records.
    EncryptionKey(encryption_key::EncryptionKeyArgs),
    /// Erases the stored responses of a tenant or a subject.
    Erase(Box<erase::Erase>),
    /// Verifies the files of the audit trail.
    #[command(subcommand)]
    Audit(Box<audit::Audit>),
    /// Removes expired records.
    Gc(Box<gc::Gc>),
    /// Checks for common problems, each finding with its fix.
    Doctor(Box<doctor::Doctor>),
    /// Creates or updates the tables of a store.
    Migrate(migrate::Migrate),
    /// Copies all records from one store to another, while requests continue.
    MigrateStore(migrate_store::MigrateStore),
    /// Prints the lifecycle rule by which a bucket removes expired records.
    Lifecycle(lifecycle::Lifecycle),
    /// Checks, shows and explains the settings of `serve`.
    #[command(subcommand)]
    Config(Box<config::Config>),
    /// Measures your store, for `plan`.
    Bench(bench::Bench),
    /// Calculates how much store a load needs, and shows the arithmetic.
    Plan(plan::Plan),
    /// Shows the documentation; with --mcp, serves it to coding agents.
    Docs(docs::Docs),
    /// Prints a completion script for a shell.
    Completions(pages::Completions),
    /// Prints the manual page.
    Man(pages::Man),
}

fn main() -> std::process::ExitCode {
    let exit = match Cli::parse().command {
        Command::Serve(serve) => serve.run(),
        Command::Mcp(mcp) => mcp.run(),
        Command::Demo(demo) => demo.run(),
        Command::Dev(dev) => dev.run(),
        Command::Keys(keys) => keys.run(),
        Command::Jobs(jobs) => jobs.run(),
        Command::Tail(tail) => tail.run(),
        Command::Top(top) => top.run(),
        Command::Operator(operator) => operator.run(),
        Command::Token(token) => token.run(),
        Command::EncryptionKey(key) => key.run(),
        Command::Erase(erase) => erase.run(),
        Command::Audit(audit) => audit.run(),
        Command::Gc(gc) => gc.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Migrate(migrate) => migrate.run(),
        Command::MigrateStore(migrate) => migrate.run(),
        Command::Lifecycle(lifecycle) => lifecycle.run(),
        Command::Config(config) => config.run(),
        Command::Bench(bench) => bench.run(),
        Command::Plan(plan) => plan.run(),
        Command::Docs(docs) => docs.run(),
        Command::Completions(completions) => completions.run(),
        Command::Man(man) => man.run(),
    };
    if let Exit::Failed { code: _, message } = &exit
        && !message.is_empty()
    {
        // It may quote another server.
        eprintln!("semel: {}", out::printable(message));
    }
    exit.into()
}
