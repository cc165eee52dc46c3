//! The table of running services.

use anyhow::Result;
use serde::Serialize;

use super::{Instance, Service, State, all};
use crate::table::table;
use crate::workspace::Workspace;

/// Where the table goes: `up` keeps the standard output for the variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Output,
    Progress,
}

#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    state: String,
    address: String,
    pids: Vec<u32>,
    version: String,
    folder: String,
}

/// Prints the table, writes the result file, and returns the names of those that should run but
/// can't be used.
pub(crate) fn show(
    workspace: &Workspace,
    state: &mut State,
    stream: Stream,
) -> Result<Vec<&'static str>> {
    let mut rows = Vec::new();
    let mut broken = Vec::new();
    for service in all() {
        let (row, healthy) = row(service.as_ref(), state);
        if !healthy {
            broken.push(row.name);
        }
        rows.push(row);
    }
    workspace.write_result("services", &rows)?;
    let cells = rows.iter().map(|row| {
        let pids: Vec<String> = row.pids.iter().map(u32::to_string).collect();
        let name = row.name.to_owned();
        [
            name,
            row.state.clone(),
            row.address.clone(),
            pids.join(" "),
            row.version.clone(),
        ]
    });
    let table = table(&["service", "state", "address", "pid", "version"], cells);
    match stream {
        Stream::Output => println!("{table}"),
        Stream::Progress => eprintln!("{table}"),
    }
    Ok(broken)
}

fn row(service: &dyn Service, state: &mut State) -> (Row, bool) {
    let profile = service.profile();
    let entry = state.get(profile.name).cloned().unwrap_or_default();
    let alive = || entry.processes.iter().filter(|(_, record)| record.alive());
    let dead = entry.processes.len() - alive().count();
    let (text, healthy) = if !entry.wanted && entry.processes.is_empty() {
        ("down".to_owned(), true)
    } else if dead > 0 {
        (format!("dead: {dead} of {}", entry.processes.len()), false)
    } else {
        match service.healthy(&Instance::new(profile.name, profile.user, state)) {
            Ok(()) => ("up".to_owned(), true),
            Err(error) => (format!("not ready: {error:#}"), false),
        }
    };
    let role = profile.ports.first();
    let address = role.and_then(|role| entry.ports.get(*role));
    let row = Row {
        name: profile.name,
        state: text,
        address: address.map_or_else(String::new, |port| format!("127.0.0.1:{port}")),
        pids: alive().map(|(_, record)| record.pid).collect(),
        version: entry.version.clone(),
        folder: entry.folder.display().to_string(),
    };
    (row, healthy)
}
