//! [`Private`]: a process that ends with the test that started it.

use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A process of the test's own.
#[derive(Debug)]
pub struct Private {
    child: Child,
}

impl Private {
    /// Starts `command`, silently.
    ///
    /// # Panics
    /// Where it can't be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        Self::saying_to(command, Stdio::null())
    }

    /// Starts `command`; what it says of itself goes to `log`.
    ///
    /// # Panics
    /// Where it can't be started.
    #[must_use]
    pub fn saying_to(command: &mut Command, log: impl Into<Stdio>) -> Self {
        command.stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(log);
        let child = command.spawn();
        Self {
            child: child.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}")),
        }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills it, as a machine that fails does: at once, and without a word to it.
    pub fn kill(&mut self) {
        // An error means that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops it where it stands; its sockets stay open.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let sent = kill_process(Pid::from_child(&self.child), signal);
        sent.expect("the process is ours");
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        self.kill();
    }
}
