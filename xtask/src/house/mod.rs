//! `cargo xtask house`: rules about the files of the repository.

mod links;
mod paths;
pub(crate) mod published;
mod rules;
mod types;

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Result, bail};

use crate::exec;
use crate::table::table;
use crate::workspace::Workspace;
use rules::{Finding, Level, RULES, check};

/// What a check says of these files, where there is one picture, too.
#[cfg(test)]
fn messages(
    check: fn(&BTreeMap<String, String>, &[String]) -> Vec<Finding>,
    files: &[(&str, &str)],
) -> Vec<String> {
    let texts = files
        .iter()
        .map(|(path, text)| (path.to_string(), text.to_string()));
    let found = check(&texts.collect(), &["docs/img/a.png".to_owned()]);
    let message = |found: Finding| format!("{} {}", found.place, found.message);
    found.into_iter().map(message).collect()
}

/// Checks every tracked or new file of the repository.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let files = files(workspace)?;
    let mut findings: Vec<Finding> = Vec::new();
    let (mut texts, mut others) = (BTreeMap::new(), Vec::new());
    for file in &files {
        // A file that was deleted but not yet from the index cannot be read, nor can a broken link.
        let Ok(bytes) = std::fs::read(workspace.path(file)) else {
            continue;
        };
        // Pictures and other files that are no text have no lines and no words.
        let Ok(text) = String::from_utf8(bytes) else {
            others.push(file.clone());
            continue;
        };
        findings.extend(check(file, &text));
        texts.insert(file.clone(), text);
    }
    findings.extend(links::check(&texts, &others));
    findings.extend(paths::check(&texts, &others));
    findings.extend(published::check(&texts));
    findings.extend(types::check(&texts));
    let count = |rule: &str, level| {
        findings
            .iter()
            .filter(|f| f.rule == rule && f.level == level)
            .count()
            .to_string()
    };
    for finding in &findings {
        let word = if finding.level == Level::Failure {
            "fails"
        } else {
            "warns"
        };
        println!(
            "{} {word}: {}: {}",
            finding.rule, finding.place, finding.message
        );
    }
    let rules = RULES.iter().chain(&links::RULES).chain(&types::RULES);
    let rows = rules.chain([&paths::RULE, &published::RULE]).map(|rule| {
        [
            (*rule).to_owned(),
            count(rule, Level::Failure),
            count(rule, Level::Warning),
        ]
    });
    println!("{}", table(&["rule", "failures", "warnings"], rows));
    workspace.write_result("house", &findings)?;
    let failures = findings
        .iter()
        .filter(|f| f.level == Level::Failure)
        .count();
    if failures > 0 {
        bail!(
            "{failures} finding(s) among {} files, see above",
            files.len()
        );
    }
    Ok(())
}

/// All files that git does not ignore.
pub(crate) fn files(workspace: &Workspace) -> Result<Vec<String>> {
    let mut command = Command::new("git");
    command.args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let names = exec::capture(command.current_dir(workspace.root()))?;
    Ok(names
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect())
}
