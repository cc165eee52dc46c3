//! What is remembered between runs: which service has which ports, folder and processes.
//!
//! The file is written after every change. A run that is interrupted while servers start must not
//! leave a server behind that no later `down` knows of.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::ports;
use super::process::Record;

/// One service, as recorded.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Entry {
    /// Data and logs; under the temp folder when a server's own user cannot reach the repository.
    pub(crate) folder: PathBuf,
    /// Kept for good, so that a restart does not move the address under a running test.
    pub(crate) ports: BTreeMap<String, u16>,
    /// Up was asked for and down was not since: a process that is gone then is a dead one.
    pub(crate) wanted: bool,
    pub(crate) version: String,
    pub(crate) processes: BTreeMap<String, Record>,
    pub(crate) env: Vec<(String, String)>,
}

impl Entry {
    pub(crate) fn all_alive(&self) -> bool {
        !self.processes.is_empty() && self.processes.values().all(Record::alive)
    }
}

/// The recorded services, with the lock that keeps two runs apart.
#[derive(Debug)]
pub(crate) struct State {
    folder: PathBuf,
    entries: BTreeMap<String, Entry>,
    _lock: File,
}

impl State {
    /// Reads the file; waits while another run holds it.
    pub(crate) fn open(folder: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let lock = File::create(folder.join("lock"))?;
        if lock.try_lock().is_err() {
            eprintln!("services: another run is at work, waiting for it");
            lock.lock()?;
        }
        let file = folder.join("services.json");
        let entries = match std::fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text)
                .with_context(|| format!("{} is damaged", file.display()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error).context(format!("cannot read {}", file.display())),
        };
        Ok(Self {
            folder,
            entries,
            _lock: lock,
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// Records a service seen for the first time: its folder, and a free port for every role.
    pub(crate) fn add(&mut self, name: &str, folder: PathBuf, roles: &[&str]) -> Result<()> {
        let mut taken: Vec<u16> = self
            .entries
            .values()
            .flat_map(|entry| entry.ports.values().copied())
            .collect();
        let mut ports = BTreeMap::new();
        for role in roles {
            let port = ports::free(&self.folder, &taken)?;
            taken.push(port);
            ports.insert((*role).to_owned(), port);
        }
        self.entries.insert(
            name.to_owned(),
            Entry {
                folder,
                ports,
                ..Entry::default()
            },
        );
        self.save()
    }

    /// Changes one entry and saves.
    pub(crate) fn change(&mut self, name: &str, change: impl FnOnce(&mut Entry)) -> Result<()> {
        let entry = self
            .entries
            .get_mut(name)
            .with_context(|| format!("{name} is not recorded"))?;
        change(entry);
        self.save()
    }

    pub(crate) fn forget(&mut self, name: &str) -> Result<()> {
        self.entries.remove(name);
        self.save()
    }

    /// The variables of every service that is up, in the order of their names.
    pub(crate) fn exports(&self) -> String {
        let up = self.entries.values().filter(|entry| entry.wanted);
        up.flat_map(|entry| &entry.env)
            .map(|(name, value)| format!("export {name}={value}\n"))
            .collect()
    }

    fn save(&self) -> Result<()> {
        let file = self.folder.join("services.json");
        // Written beside and renamed: a reader never sees half a file.
        let beside = self.folder.join("services.json.new");
        std::fs::write(&beside, serde_json::to_string_pretty(&self.entries)? + "\n")?;
        std::fs::rename(&beside, &file)?;
        std::fs::write(self.folder.join("env"), self.exports())
            .with_context(|| format!("cannot write under {}", self.folder.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_variables_survive_a_second_opening() {
        let folder = std::env::temp_dir().join(format!("xtask-state-{}", std::process::id()));
        let mut state = State::open(folder.clone()).unwrap();
        state
            .add("redis", folder.join("redis"), &["main", "bus"])
            .unwrap();
        state
            .change("redis", |entry| {
                entry.wanted = true;
                entry.env = vec![("SEMEL_TEST_X".to_owned(), "redis://x".to_owned())];
            })
            .unwrap();
        let ports = state.get("redis").unwrap().ports.clone();
        assert_ne!(ports["main"], ports["bus"]);
        drop(state);

        let state = State::open(folder.clone()).unwrap();
        assert_eq!(state.get("redis").unwrap().ports, ports);
        let exports = std::fs::read_to_string(folder.join("env")).unwrap();
        assert_eq!(exports, "export SEMEL_TEST_X=redis://x\n");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
