//! Processes that outlive this program: started once, recognised later, ended by their own id.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use semel_devservers::launch::{Launch, run_as};
use semel_devservers::time::wait_until;

/// How a server is asked to end.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stop {
    /// The ordinary request.
    Terminate,
    /// What PostgreSQL calls a fast shutdown: it does not wait for its clients to leave.
    Interrupt,
    /// For a server that takes long to leave and loses nothing when it is cut off.
    Kill,
}

impl Stop {
    fn signal(self) -> Signal {
        match self {
            Self::Terminate => Signal::TERM,
            Self::Interrupt => Signal::INT,
            Self::Kill => Signal::KILL,
        }
    }
}

/// A server to start.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// What it is within its service; also the name of its log.
    pub(crate) role: String,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) stop: Stop,
}

impl Spec {
    pub(crate) fn new(role: &str, launch: Launch, stop: Stop) -> Self {
        Self {
            role: role.to_owned(),
            program: launch.program,
            args: launch.args,
            stop,
        }
    }
}

/// A process that we started.
///
/// Process ids are used again. The id together with the start time names one process for as long
/// as the machine is up, and the command line must still show the program.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Record {
    pub(crate) pid: u32,
    start_ticks: u64,
    program: String,
    stop: Stop,
}

impl Record {
    pub(crate) fn alive(&self) -> bool {
        if start_ticks(self.pid) != Some(self.start_ticks) {
            return false;
        }
        let line = command_line(self.pid).unwrap_or_default();
        // The line is empty for a moment while one program is replaced by the next.
        line.is_empty() || String::from_utf8_lossy(&line).contains(&self.program)
    }

    /// Ends the process if it is still ours. It is killed when it takes too long.
    pub(crate) fn end(&self) -> Result<()> {
        self.signal(self.stop.signal())?;
        if self.gone_within(Duration::from_secs(15)) {
            return Ok(());
        }
        self.signal(Signal::KILL)?;
        if !self.gone_within(Duration::from_secs(5)) {
            bail!("process {} ({}) does not end", self.pid, self.program);
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        if !self.alive() {
            return Ok(());
        }
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let pid = pid.with_context(|| format!("{} is no process id", self.pid))?;
        match kill_process(pid, signal) {
            Err(error) if self.alive() => {
                Err(error).context(format!("cannot signal process {}", self.pid))
            }
            // Gone in between: that is what was wanted.
            _ => Ok(()),
        }
    }

    fn gone_within(&self, limit: Duration) -> bool {
        wait_until(limit, Duration::from_millis(20), || {
            anyhow::ensure!(!self.alive(), "still there");
            Ok(())
        })
        .is_ok()
    }
}

/// Starts a server in a session of its own, so that neither a closed terminal nor Ctrl-C reaches
/// it.
///
/// `setsid` replaces itself by the server, so the id is the server's.
pub(crate) fn spawn(spec: &Spec, user: Option<&str>, folder: &Path) -> Result<Record> {
    let log = log_file(folder, &spec.role);
    let out = File::options()
        .create(true)
        .append(true)
        .open(&log)
        .with_context(|| format!("cannot open {}", log.display()))?;
    let mut command = Command::new("setsid");
    run_as(&mut command, user);
    command.arg(&spec.program).args(&spec.args);
    command.current_dir(folder);
    command
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out);
    // Never waited for: the server is meant to outlive this program.
    let child = command
        .spawn()
        .with_context(|| format!("cannot start {}", spec.program.display()))?;
    let pid = child.id();
    let name = spec
        .program
        .file_name()
        .map_or_else(String::new, |n| n.to_string_lossy().into());
    let start_ticks = start_ticks(pid)
        .with_context(|| format!("{name} ended at once:\n{}", tail(folder, &spec.role)))?;
    Ok(Record {
        pid,
        start_ticks,
        program: name,
        stop: spec.stop,
    })
}

pub(crate) fn log_file(folder: &Path, role: &str) -> PathBuf {
    folder.join(format!("{role}.log"))
}

/// The end of a server's log, for an error message.
pub(crate) fn tail(folder: &Path, role: &str) -> String {
    let log = log_file(folder, role);
    let text = std::fs::read(&log).unwrap_or_default();
    let lines = crate::exec::last_lines(&String::from_utf8_lossy(&text), 15);
    format!("--- the end of {}\n{lines}", log.display())
}

/// The command line of a process, in one read: between two, one program may be replaced by the
/// next, whose line is still empty, and what was read would be the torn beginning of the first.
fn command_line(pid: u32) -> std::io::Result<Vec<u8>> {
    let mut line = vec![0; 64 * 1024];
    let length = File::open(format!("/proc/{pid}/cmdline"))?.read(&mut line)?;
    line.truncate(length);
    Ok(line)
}

/// When a living process started, in clock ticks since boot; `None` for a dead or a defunct one.
fn start_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in brackets and may hold anything, spaces and brackets too.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    // The state is field 3 and was just taken; the start time is field 22.
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(folder: &Path) -> Record {
        let spec = Spec {
            role: "sleeper".to_owned(),
            program: PathBuf::from("/bin/sleep"),
            args: vec!["60".to_owned()],
            stop: Stop::Terminate,
        };
        let record = spawn(&spec, None, folder).unwrap();
        // Until the command line is there, nobody can tell which program it is.
        wait_until(Duration::from_secs(10), Duration::from_millis(1), || {
            let line = command_line(record.pid)?;
            anyhow::ensure!(line.starts_with(b"/bin/sleep"), "not yet");
            Ok(())
        })
        .unwrap();
        record
    }

    #[test]
    fn a_started_process_is_recognised_and_ended() {
        let record = sleeper(&std::env::temp_dir());
        assert!(record.alive());
        record.end().unwrap();
        assert!(!record.alive());
        record.end().expect("ending it again is fine");
    }

    #[test]
    fn process_stays_alive_while_exec_replaces_its_program() {
        // Who looks for the first time when all is over has seen nothing: once more then.
        while looks_on_the_way() == 0 {}
    }

    /// Looks at a process again and again until its last program runs; it has to be alive each
    /// time. → how often
    fn looks_on_the_way() -> usize {
        // `env` replaces itself by the rest of its line. The long name comes late in the line, as
        // the path of a server below a deep folder does.
        let late = format!("LATE={}", "x".repeat(64));
        let chain = std::iter::repeat_n("/usr/bin/env", 200);
        let mut args: Vec<String> = chain.map(str::to_owned).collect();
        args.extend([late, "/bin/sleep".to_owned(), "60".to_owned()]);
        let spec = Spec {
            role: "replaced".to_owned(),
            program: PathBuf::from("/usr/bin/env"),
            args,
            stop: Stop::Kill,
        };
        let mut record = spawn(&spec, None, &std::env::temp_dir()).unwrap();
        record.program = "/bin/sleep".to_owned();
        let mut looks = 0;
        while !command_line(record.pid).unwrap().starts_with(b"/bin/sleep") {
            assert!(record.alive(), "said to be gone at look {looks}");
            looks += 1;
        }
        record.end().unwrap();
        looks
    }

    #[test]
    fn another_process_with_the_same_id_is_left_alone() {
        let ours = sleeper(&std::env::temp_dir());
        let reused = Record {
            start_ticks: ours.start_ticks + 1,
            ..ours.clone()
        };
        assert!(!reused.alive());
        reused.end().unwrap();
        assert!(
            ours.alive(),
            "a record with another start time must not end it"
        );

        let renamed = Record {
            program: "redis-server".to_owned(),
            ..ours
        };
        renamed.end().unwrap();
        assert!(ours.alive(), "a record of another program must not end it");
        ours.end().unwrap();
    }
}
