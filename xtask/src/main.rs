//! The commands of the repository: `cargo xtask COMMAND`.
//!
//! Every command prints a short table, leaves its result in `target/xtask/NAME.json`, and ends with
//! a code other than 0 when something is broken.

mod api;
mod bench;
mod book;
mod ci;
mod conformance;
mod deps;
mod dist;
mod exec;
mod faults;
mod features;
mod fuzz;
mod generate;
mod house;
mod markdown;
mod packages;
mod programs;
mod sbom;
mod schemathesis;
mod sdks;
mod services;
mod simulate;
mod table;
mod workflows;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use workspace::Workspace;

/// All checks, generators and measurements of this repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run every check, the tests last; what a change must pass.
    Ci(ci::Options),
    /// Start, end or show the real servers that tests use.
    Services {
        #[command(subcommand)]
        action: services::Action,
    },
    /// Write the generated files that are kept in the repository, and the types of the SDKs.
    Generate {
        /// Write nothing; fail when a file is out of date. `sdks` checks the types of the SDKs.
        #[arg(long)]
        check: bool,
    },
    /// Explore the model of the protocol.
    Model {
        /// The small bounds, for every change.
        #[arg(long)]
        quick: bool,
    },
    /// Run the protocol's concurrent code under many schedules.
    Shuttle,
    /// Measure.
    Bench {
        /// What to measure.
        name: String,
        /// Passed on to the measuring program.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Run real processes on real stores while everything fails, and check what they saw.
    Faults(faults::Faults),
    /// Run the real engine in simulated worlds of faults, from seeds.
    Simulate(simulate::Simulate),
    /// Run the fuzz targets on everything that parses bytes from outside.
    Fuzz(fuzz::Fuzz),
    /// Test both APIs from outside, by what their OpenAPI document says.
    Schemathesis(schemathesis::Options),
    /// Check, test and build the packages for Python, TypeScript and Go.
    Sdks {
        /// All, unless one is named.
        language: Option<sdks::Language>,
    },
    /// Compare the list of requirements with the tests that exist.
    Conformance,
    /// Check each feature alone, each example alone, and the packages, built from each other, on
    /// the oldest Rust that is promised.
    Features {
        /// Only make the packages, and build them.
        #[arg(long)]
        packages: bool,
    },
    /// Write the public API of each published crate into `spec/api`.
    Api {
        /// Write nothing; fail when a list is out of date.
        #[arg(long)]
        check: bool,
    },
    /// Check the files that tell a forge what to run.
    Workflows,
    /// Check the direction of dependencies between crates, and import circles between files.
    Deps,
    /// Build the packages that carry the program, and try each in an empty place.
    Dist(dist::Options),
    /// Write the software bill of materials (CycloneDX): `target/xtask/sbom.cdx.json`.
    Sbom,
    /// Check the rules for files: sizes, forbidden words, inherited lints, links, examples.
    House,
    /// Build the documentation as a book, into `target/book/html`.
    Book,
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    match cli.command {
        Command::Ci(options) => ci::run(&workspace, &options)?,
        Command::Services { action } => services::run(&workspace, &action)?,
        Command::Generate { check: true } => generate::run(&workspace, true)?,
        Command::Generate { check: false } => {
            generate::run(&workspace, false)?;
            sdks::generate(&workspace)?;
        }
        Command::Model { quick } => programs::model(&workspace, quick)?,
        Command::Shuttle => programs::shuttle(&workspace)?,
        Command::Bench { name, arguments } => return bench::run(&workspace, &name, &arguments),
        Command::Faults(faults) => faults::run(&workspace, &faults)?,
        Command::Simulate(options) => simulate::run(&workspace, &options)?,
        Command::Fuzz(options) => fuzz::run(&workspace, &options)?,
        Command::Schemathesis(options) => schemathesis::run(&workspace, &options)?,
        Command::Sdks { language } => sdks::run(&workspace, language)?,
        Command::Conformance => conformance::run(&workspace)?,
        Command::Features { packages } => features::run(&workspace, packages)?,
        Command::Api { check } => api::run(&workspace, check)?,
        Command::Workflows => workflows::run(&workspace)?,
        Command::Deps => deps::run(&workspace)?,
        Command::Dist(options) => dist::run(&workspace, &options)?,
        Command::Sbom => sbom::run(&workspace)?,
        Command::House => house::run(&workspace)?,
        Command::Book => book::run(&workspace)?,
    }
    Ok(ExitCode::SUCCESS)
}
