//! The sidecars as processes.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use semel_testkit::private::{Private, free_port, new_folder};

use super::LEASE;

/// One sidecar, which can be started again.
pub(super) struct Sidecar {
    program: PathBuf,
    folder: PathBuf,
    pub(super) address: SocketAddr,
    pub(super) process: Private,
}

impl Sidecar {
    pub(super) fn start(program: PathBuf, store: &str, upstream: SocketAddr) -> Result<Self> {
        let (folder, address) = (new_folder("sidecar"), local());
        let admin = local();
        let settings = format!(
            "environment = \"faults\"\n[store]\nurl = \"{store}\"\n[listener]\naddress = \"{address}\"\n\
             [admin]\naddress = \"{admin}\"\nopen = true\n[upstream]\nurls = [\"http://{upstream}\"]\n\
             [api]\naccess = \"loopback\"\n\
             [defaults]\nscope = \"charges\"\ncrash = \"hold\"\nlease = \"{}s\"\n",
            LEASE.as_secs(),
        );
        std::fs::write(folder.join("semel.toml"), settings)?;
        let process = serve(&program, &folder);
        Ok(Self {
            program,
            folder,
            address,
            process,
        })
    }

    /// Does what a supervisor does with a process that ended by itself.
    pub(super) fn restart_if_ended(&mut self) {
        if !self.process.runs() {
            self.restart();
        }
    }

    pub(super) fn restart(&mut self) {
        self.process.kill();
        self.process = serve(&self.program, &self.folder);
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        self.process.kill();
        // Left-over files are no reason to fail.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn local() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

fn serve(program: &PathBuf, folder: &std::path::Path) -> Private {
    let mut command = std::process::Command::new(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SEMEL_")) {
        command.env_remove(name);
    }
    command
        .arg("serve")
        .arg("--config")
        .arg(folder.join("semel.toml"));
    Private::start(&mut command)
}

/// The program `semel`, as it was built.
pub(super) fn program() -> Result<PathBuf> {
    let told = std::env::var_os("SEMEL_FAULTS_PROGRAM");
    let beside = std::env::current_exe()?.with_file_name("semel");
    let program = told.map_or(beside, PathBuf::from);
    let missing = "no program semel: `cargo build -p semel-cli`, or SEMEL_FAULTS_PROGRAM";
    anyhow::ensure!(program.is_file(), missing);
    Ok(program)
}
