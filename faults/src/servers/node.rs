//! A Redis or a sentinel in its own network namespace.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use semel_testkit::private::{Private, new_folder};

use super::network::on_machine;
use crate::clock::pass;

/// What every Redis here listens on.
pub(super) const REDIS: u16 = 6379;
/// What every sentinel listens on.
pub(super) const SENTINEL: u16 = 26379;

const ASK_EVERY: Duration = Duration::from_millis(50);
/// How often to ask at most.
const PATIENCE: usize = 1_200;

/// One server, which ends with the run.
pub(super) struct Node {
    namespace: String,
    port: u16,
    folder: PathBuf,
    _process: Private,
}

impl Node {
    /// Starts one, with a file of settings and arguments, and waits until it answers.
    pub(super) async fn start(
        namespace: String,
        port: u16,
        settings: &str,
        arguments: &[&str],
    ) -> Result<Self> {
        let folder = new_folder("node");
        let file = folder.join("server.conf");
        std::fs::write(&file, settings)?;
        let mut command = on_machine(&namespace, Path::new("redis-server"));
        command.arg(&file).arg("--dir").arg(&folder);
        command.args(["--bind", "0.0.0.0", "--protected-mode", "no"]);
        command.args(["--port", &port.to_string()]);
        let process = Private::start(command.args(arguments));
        let node = Self {
            namespace,
            port,
            folder,
            _process: process,
        };
        node.until(&["PING"], "PONG").await?;
        Ok(node)
    }

    /// Asks a command from its own machine, whoever else can reach that; the parts of a list are on
    /// lines.
    pub(super) fn ask(&self, words: &[&str]) -> Result<String> {
        let done = self.cli(words).output().context("redis-cli")?;
        let said = String::from_utf8_lossy(&done.stdout).trim().to_owned();
        ensure!(done.status.success(), "{words:?}: {said}");
        Ok(said)
    }

    /// `redis-cli` on its machine.
    pub(super) fn cli(&self, words: &[&str]) -> Command {
        let mut command = on_machine(&self.namespace, Path::new("redis-cli"));
        command
            .args(["-e", "-p", &self.port.to_string()])
            .args(words);
        command.stderr(Stdio::null());
        command
    }

    /// What it says of its replication; nothing where it doesn't answer.
    pub(super) fn replication(&self) -> String {
        self.ask(&["INFO", "replication"]).unwrap_or_default()
    }

    pub(super) fn is_master(&self) -> bool {
        self.replication().contains("role:master")
    }

    async fn until(&self, words: &[&str], wanted: &str) -> Result<()> {
        let is = || self.ask(words).is_ok_and(|said| said.contains(wanted));
        until(&format!("{words:?} says {wanted}"), is).await
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Left-over files are no reason to fail.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Waits for what servers come to by themselves.
pub(super) async fn until(what: &str, is: impl Fn() -> bool) -> Result<()> {
    for _ in 0..PATIENCE {
        if is() {
            return Ok(());
        }
        pass(ASK_EVERY).await;
    }
    anyhow::bail!("never so: {what}")
}
