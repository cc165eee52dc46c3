//! [`Launch`]: a server to start, and the user that it runs as.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program with its arguments.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Its file.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// The user to become where root starts a server that refuses to run as root.
    pub user: Option<&'static str>,
    /// Variables beside those of this process.
    pub environment: Vec<(String, String)>,
}

impl Launch {
    /// A program that runs as whoever starts it.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, args: Vec<String>) -> Self {
        Self {
            program: program.into(),
            args,
            user: None,
            environment: Vec::new(),
        }
    }

    /// The command that starts it.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = command_as(&self.program, self.user);
        command.args(&self.args);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// A command that runs as `user` where root starts it, in a folder that every user reaches.
#[must_use]
pub fn command_as(program: impl AsRef<Path>, user: Option<&str>) -> Command {
    let mut command = Command::new(program.as_ref());
    run_as(&mut command, user);
    command.current_dir(std::env::temp_dir());
    command
}

/// Makes a command run as `user` where root starts it.
pub fn run_as(command: &mut Command, user: Option<&str>) {
    if let Some((user, group)) = user.and_then(ids) {
        command.uid(user).gid(group);
    }
}

/// Gives a folder to `user` where we are root.
///
/// # Errors
/// Where the folder can't be given away.
pub fn give(folder: &Path, user: Option<&str>) -> std::io::Result<()> {
    match user.and_then(ids) {
        Some((user, group)) => std::os::unix::fs::chown(folder, Some(user), Some(group)),
        None => Ok(()),
    }
}

/// The user and group of a server's package, where we are root.
fn ids(name: &str) -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let is_it = |line: &&str| line.split(':').next() == Some(name);
    let mut fields = users.lines().find(is_it)?.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}
