//! `semel completions` and `semel man`, generated from the command definitions.

use std::path::PathBuf;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::Cli;
use crate::exit::{self, Exit};
use crate::out;

/// Prints a completion script for a shell.
#[derive(Args)]
#[command(after_help = "\
Examples:
  semel completions bash > ~/.local/share/bash-completion/completions/semel
  semel completions zsh > ~/.zfunc/_semel
  semel completions fish > ~/.config/fish/completions/semel.fish")]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self) -> Exit {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "semel", &mut text);
        out::write(format_args!("{}", String::from_utf8_lossy(&text)));
        Exit::Ok
    }
}

/// Prints the manual page; with --out, writes one for every command.
#[derive(Args)]
#[command(after_help = "\
Examples:
  semel man | man -l -
  semel man --out ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// A folder for the pages of all commands.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(&self) -> Exit {
        let written = match &self.out {
            None => {
                let mut text = Vec::new();
                let made = clap_mangen::Man::new(Cli::command()).render(&mut text);
                made.map(|()| out::write(format_args!("{}", String::from_utf8_lossy(&text))))
            }
            Some(folder) => std::fs::create_dir_all(folder)
                .and_then(|()| clap_mangen::generate_to(Cli::command(), folder)),
        };
        match written {
            Ok(()) => Exit::Ok,
            Err(error) => Exit::failed(exit::UNEXPECTED, error.to_string()),
        }
    }
}
