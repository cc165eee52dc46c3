//! What a service works with while it is started and checked: its folder, ports and processes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::process::{self, Spec};
use super::state::{Entry, State};
use semel_devservers::launch::{give, run_as};
use semel_devservers::time::{Stopwatch, pause};

/// One service's part of the state.
#[derive(Debug)]
pub(crate) struct Instance<'a> {
    name: &'static str,
    user: Option<&'static str>,
    state: &'a mut State,
}

impl<'a> Instance<'a> {
    pub(crate) fn new(
        name: &'static str,
        user: Option<&'static str>,
        state: &'a mut State,
    ) -> Self {
        Self {
            name,
            user: needed(user),
            state,
        }
    }

    /// The record; made before an instance is.
    fn entry(&self) -> Result<&Entry> {
        self.state
            .get(self.name)
            .with_context(|| format!("{} is not recorded", self.name))
    }

    pub(crate) fn folder(&self) -> Result<&Path> {
        Ok(&self.entry()?.folder)
    }

    pub(crate) fn tools(&self) -> PathBuf {
        self.state.folder().join("tools")
    }

    pub(crate) fn port(&self, role: &str) -> Result<u16> {
        self.port_of(self.name, role)
    }

    /// A port of another service, one that this one was declared to need.
    pub(crate) fn port_of(&self, service: &str, role: &str) -> Result<u16> {
        let entry = self.state.get(service);
        let port = entry.and_then(|entry| entry.ports.get(role)).copied();
        port.with_context(|| format!("{service} has no port for {role}"))
    }

    /// Says what is being done, on the stream that is not for machines.
    pub(crate) fn say(&self, text: &str) {
        eprintln!("{}: {text}", self.name);
    }

    /// A command that runs as the service's user, in its folder.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Result<Command> {
        let mut command = Command::new(program.as_ref());
        run_as(&mut command, self.user);
        command.current_dir(self.folder()?);
        Ok(command)
    }

    /// Makes a folder below the service's own, for its user.
    pub(crate) fn make_folder(&self, relative: &str) -> Result<PathBuf> {
        let folder = self.folder()?.join(relative);
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        give(&folder, self.user)?;
        Ok(folder)
    }

    /// Starts a server unless it runs already.
    pub(crate) fn run(&mut self, spec: &Spec) -> Result<()> {
        let entry = self.entry()?;
        if entry
            .processes
            .get(&spec.role)
            .is_some_and(process::Record::alive)
        {
            return Ok(());
        }
        let record = process::spawn(spec, self.user, &entry.folder)?;
        let role = spec.role.clone();
        self.state.change(self.name, |entry| {
            entry.processes.insert(role, record);
        })
    }

    /// Waits for a state of the servers; ends early when one of them is gone.
    pub(crate) fn wait_for(
        &self,
        what: &str,
        limit: Duration,
        mut ask: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let watch = Stopwatch::start();
        let mut told = 0;
        loop {
            let Err(missing) = ask() else { return Ok(()) };
            if !self.dead()?.is_empty() {
                bail!(
                    "a process ended before it was {what}: {missing:#}\n{}",
                    self.tails()?
                );
            }
            let waited = watch.elapsed();
            if waited >= limit {
                let limit = limit.as_secs();
                bail!("not {what} after {limit} s: {missing:#}\n{}", self.tails()?);
            }
            // A line every ten seconds: slow is told apart from stuck.
            if waited.as_secs() / 10 > told {
                told = waited.as_secs() / 10;
                self.say(&format!("not {what} yet: {missing:#}"));
            }
            pause(Duration::from_millis(100));
        }
    }

    /// The roles whose process is gone.
    pub(crate) fn dead(&self) -> Result<Vec<String>> {
        let processes = self.entry()?.processes.iter();
        Ok(processes
            .filter(|(_, record)| !record.alive())
            .map(|(role, _)| role.clone())
            .collect())
    }

    /// The ends of the logs: of the dead processes if there are any, else of all.
    pub(crate) fn tails(&self) -> Result<String> {
        let mut roles = self.dead()?;
        if roles.is_empty() {
            roles = self.entry()?.processes.keys().cloned().collect();
        }
        let folder = self.folder()?;
        let tails: Vec<String> = roles
            .iter()
            .map(|role| process::tail(folder, role))
            .collect();
        Ok(tails.join("\n"))
    }
}

/// The other user under which a server must run: only root has to, and only root can, change.
fn needed(user: Option<&'static str>) -> Option<&'static str> {
    user.filter(|_| rustix::process::geteuid().is_root())
}

/// Chooses and makes the folder of a service that is seen for the first time.
///
/// A server that runs as its own user must be able to walk into it, which a clone under a private
/// folder does not allow. Then the folder is made under the temp folder instead.
pub(crate) fn new_folder(
    services: &Path,
    name: &str,
    user: Option<&'static str>,
) -> Result<PathBuf> {
    let user = needed(user);
    let folder = services.join(name);
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    give(&folder, user)?;
    if reachable(&folder, user) {
        return Ok(folder);
    }
    for number in 0..1000 {
        let other = std::env::temp_dir().join(format!("semel-services-{name}-{number}"));
        // Not `create_dir_all`: a folder that is there already belongs to somebody else.
        if std::fs::create_dir(&other).is_ok() {
            give(&other, user)?;
            eprintln!(
                "{name}: its user cannot reach {}, using {}",
                folder.display(),
                other.display()
            );
            return Ok(other);
        }
    }
    bail!("{name}: found no folder that its user can reach")
}

fn reachable(folder: &Path, user: Option<&str>) -> bool {
    let mut command = Command::new("test");
    run_as(&mut command, user);
    command.arg("-w").arg(folder).current_dir("/");
    crate::exec::capture(&mut command).is_ok()
}
