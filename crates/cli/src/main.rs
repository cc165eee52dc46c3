//! The `semel` command.

mod audit;
mod bench;
mod client;
mod config;
mod demo;
mod doctor;
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
mod plan;
mod progress;
mod runtime;
mod serve;
mod tail;
mod top;

use clap::{Parser, Subcommand};

use exit::Exit;

/// A request's memory is often given back by another thread than the one that took it, which the system's
/// allocator is slow at (ADR 0016).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Sent many times, done once: idempotency for services in any language.
#[derive(Parser)]
#[command(
    name = "semel",
    version,
    propagate_version = true,
    after_help = "New here? `semel demo` shows what it does, in seconds, without a server."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Forwards requests to a service; those with a key run once.
    Serve(Box<serve::Serve>),
    /// Stands before an MCP server: a tool call that is made again does not act again.
    Mcp(Box<mcp::Mcp>),
    /// Shows what it does: payments, a network that loses responses, and a client that retries.
    Demo(demo::Demo),
    /// Looks at records, and mends them.
    #[command(subcommand)]
    Keys(Box<keys::Keys>),
    /// Looks at jobs, and gives dead letters another chance.
    #[command(subcommand)]
    Jobs(Box<jobs::Jobs>),
    /// Follows what happens in a running sidecar.
    Tail(Box<tail::Tail>),
    /// Shows a running sidecar, live.
    Top(Box<top::Top>),
    /// Makes a token for an operator of the admin API.
    Operator(operator::Operator),
    /// Looks at the audit trail's files.
    #[command(subcommand)]
    Audit(Box<audit::Audit>),
    /// Removes expired records.
    Gc(Box<gc::Gc>),
    /// Checks what breaks people, each finding with its fix.
    Doctor(Box<doctor::Doctor>),
    /// Brings a store's tables up to date.
    Migrate(migrate::Migrate),
    /// Copies all records from one store to another, while requests go on.
    MigrateStore(migrate_store::MigrateStore),
    /// Prints the rule with which a bucket removes expired records itself.
    Lifecycle(lifecycle::Lifecycle),
    /// Checks, shows and explains the settings of `serve`.
    #[command(subcommand)]
    Config(Box<config::Config>),
    /// Measures your store, for `plan`.
    Bench(bench::Bench),
    /// Says how much store a load needs, with the arithmetic.
    Plan(plan::Plan),
    /// Prints what a shell needs to complete commands.
    Completions(pages::Completions),
    /// Prints the manual page.
    Man(pages::Man),
}

fn main() -> std::process::ExitCode {
    let exit = match Cli::parse().command {
        Command::Serve(serve) => serve.run(),
        Command::Mcp(mcp) => mcp.run(),
        Command::Demo(demo) => demo.run(),
        Command::Keys(keys) => keys.run(),
        Command::Jobs(jobs) => jobs.run(),
        Command::Tail(tail) => tail.run(),
        Command::Top(top) => top.run(),
        Command::Operator(operator) => operator.run(),
        Command::Audit(audit) => audit.run(),
        Command::Gc(gc) => gc.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Migrate(migrate) => migrate.run(),
        Command::MigrateStore(migrate) => migrate.run(),
        Command::Lifecycle(lifecycle) => lifecycle.run(),
        Command::Config(config) => config.run(),
        Command::Bench(bench) => bench.run(),
        Command::Plan(plan) => plan.run(),
        Command::Completions(completions) => completions.run(),
        Command::Man(man) => man.run(),
    };
    if let Exit::Failed { code: _, message } = &exit
        && !message.is_empty()
    {
        eprintln!("semel: {message}");
    }
    exit.into()
}
