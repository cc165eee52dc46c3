//! `docs/cli-reference.md`: the `--help` of every command; and the output of `semel plan` in
//! `docs/scale.md`.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::Output;
use crate::workspace::Workspace;
use crate::{exec, programs};

const HEAD: &str = "<!-- Made by `cargo xtask generate`; do not edit. -->\n\n# Every command and flag\n\n\
What `--help` says. [The command line](cli.md) is the guide.\n";

/// A page by hand, in which the output of the plans that it shows is made.
const SCALE: &str = "docs/scale.md";

pub(crate) fn pages(workspace: &Workspace) -> Result<Vec<Output>> {
    let program = programs::debug(workspace, "semel")?;
    let scale = std::fs::read_to_string(workspace.path(SCALE))
        .with_context(|| format!("cannot read {SCALE}"))?;
    let scale = with_plans(&scale, |arguments| said(&program, arguments))?;
    Ok(vec![
        reference(&program)?,
        Output {
            path: SCALE.to_owned(),
            contents: scale,
        },
    ])
}

/// The page, with what each plan in it says now: a block of shell, and a block of text after it.
fn with_plans(page: &str, said: impl Fn(&[String]) -> Result<String>) -> Result<String> {
    const START: &str = "```sh\nsemel plan ";
    const THEN: &str = "\n```\n\n```text\n";
    let mut made = String::new();
    let mut rest = page;
    while let Some(at) = rest.find(START) {
        let after = &rest[at + START.len()..];
        let (words, _) = after.split_once('\n').context("a plan has an end")?;
        let shown = &after[words.len()..];
        let old = shown
            .strip_prefix(THEN)
            .context("a plan is followed by what it says")?;
        let end = old.find("```").context("what it says has an end")?;
        let arguments = ["plan"].into_iter().chain(words.split_whitespace());
        let arguments: Vec<String> = arguments.map(str::to_owned).collect();
        made.push_str(&rest[..at]);
        let _ = writeln!(made, "{START}{words}{THEN}{}", said(&arguments)?.trim_end());
        rest = &old[end..];
    }
    made.push_str(rest);
    Ok(made)
}

fn reference(program: &Path) -> Result<Output> {
    let mut contents = HEAD.to_owned();
    let mut waiting = VecDeque::from([Vec::new()]);
    while let Some(path) = waiting.pop_front() {
        let mut arguments = path.clone();
        arguments.push("--help".to_owned());
        let help = said(program, &arguments)?;
        let name = ["semel"]
            .into_iter()
            .chain(path.iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join(" ");
        // Writing into a `String` cannot fail.
        let _ = write!(
            contents,
            "\n## {name}\n\n```text\n{}\n```\n",
            help.trim_end()
        );
        // Depth first: a command's own commands come right after it.
        for command in commands(&help).into_iter().rev() {
            let mut longer = path.clone();
            longer.push(command);
            waiting.push_front(longer);
        }
    }
    Ok(Output {
        path: "docs/cli-reference.md".to_owned(),
        contents,
    })
}

/// What the program prints, as it would on any machine.
fn said(program: &Path, arguments: &[String]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments);
    // Removes the settings of this machine.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SEMEL_")) {
        command.env_remove(name);
    }
    let text = exec::capture(command.env("COLUMNS", "100").env("NO_COLOR", "1"))?;
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    Ok(lines.join("\n"))
}

/// The names below `Commands:`.
fn commands(help: &str) -> Vec<String> {
    let below = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let named = below.take_while(|line| line.starts_with("  ") || line.is_empty());
    named
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{commands, with_plans};

    #[test]
    fn commands_are_found_in_the_help() {
        let help = "Does\n\nUsage: x\n\nCommands:\n  serve  Serves\n         more of it\n  keys   Looks\n  help   Print\n\nOptions:\n  -h, --help  Print\n";
        assert_eq!(commands(help), ["serve", "keys"]);
        assert!(commands("Usage: x\n\nOptions:\n  -h\n").is_empty());
    }

    #[test]
    fn what_a_plan_says_is_put_below_it() {
        let page = "a\n```sh\nsemel plan --rps 1\n```\n\n```text\nold\n```\nz\n";
        let made = with_plans(page, |words| Ok(words.join(" "))).unwrap();
        assert_eq!(made, page.replace("old", "plan --rps 1"));
        assert!(with_plans("```sh\nsemel plan x\n```\n", |_| Ok(String::new())).is_err());
    }
}
