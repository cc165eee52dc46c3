//! RabbitMQ, one node.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::install::Package;
use super::process::{Spec, Stop};
use super::{Instance, Profile, Service};
use crate::exec;

/// Where Debian puts the programs; those on the path insist on being root.
const PROGRAMS: &str = "/usr/lib/rabbitmq/bin";

/// A single node, whose port mapper is its own; both listen on the loopback address only.
#[derive(Debug)]
pub(crate) struct RabbitMq;

impl Service for RabbitMq {
    fn profile(&self) -> Profile {
        Profile {
            name: "rabbitmq",
            needs: &[],
            packages: &[Package {
                name: "rabbitmq-server",
                present: || Path::new(PROGRAMS).join("rabbitmq-server").is_file(),
            }],
            wheel: None,
            user: Some("rabbitmq"),
            ports: &["main", "distribution", "mapper"],
        }
    }

    fn start(&self, instance: &mut Instance<'_>) -> Result<()> {
        let script = write_script(instance, "rabbitmq-server")?;
        // The mapper that Erlang would start would outlive the node.
        let mapper = exec::find_program("epmd").context("epmd is not installed")?;
        let port = instance.port("mapper")?.to_string();
        let args = ["-address", "127.0.0.1", "-port", &port];
        instance.run(&Spec {
            role: "mapper".to_owned(),
            program: mapper,
            args: args.map(str::to_owned).into(),
            stop: Stop::Terminate,
        })?;
        instance.run(&Spec {
            role: "main".to_owned(),
            program: script,
            args: Vec::new(),
            stop: Stop::Terminate,
        })?;
        instance.wait_for("answering", Duration::from_secs(120), || {
            ctl(instance, "ping")
        })
    }

    fn healthy(&self, instance: &Instance<'_>) -> Result<()> {
        ctl(instance, "check_port_connectivity")
    }

    fn env(&self, instance: &Instance<'_>) -> Result<Vec<(String, String)>> {
        let url = format!(
            "amqp://guest:guest@127.0.0.1:{}/%2f",
            instance.port("main")?
        );
        Ok(vec![("SEMEL_TEST_RABBITMQ_URL".to_owned(), url)])
    }

    fn version(&self, instance: &Instance<'_>) -> Result<String> {
        let script = write_script(instance, "rabbitmqctl")?;
        let mut command = instance.command(script)?;
        let text = exec::capture(command.arg("version"))?;
        Ok(format!("RabbitMQ {}", text.trim()))
    }
}

/// The node's settings are variables, which a script sets: named like the program that it becomes,
/// so that the process is recognised.
fn write_script(instance: &Instance<'_>, program: &str) -> Result<std::path::PathBuf> {
    let home = instance.make_folder("home")?;
    let folder = instance.make_folder("data")?;
    let data = folder.display();
    let port = |role| instance.port(role);
    let text = format!(
        "#!/bin/sh\n\
         export HOME='{home}' RABBITMQ_NODENAME=semel-{main}@localhost RABBITMQ_NODE_PORT={main}\n\
         export RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_DIST_PORT={distribution}\n\
         export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface {{127,0,0,1}}'\n\
         export RABBITMQ_MNESIA_BASE='{data}/mnesia' RABBITMQ_LOG_BASE='{data}/log'\n\
         export RABBITMQ_ENABLED_PLUGINS_FILE='{data}/plugins' RABBITMQ_CONF_ENV_FILE='{data}/none'\n\
         export ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT={mapper}\n\
         exec {PROGRAMS}/{program} \"$@\"\n",
        home = home.display(),
        main = port("main")?,
        distribution = port("distribution")?,
        mapper = port("mapper")?,
    );
    let script = instance.folder()?.join(program);
    std::fs::write(&script, text)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    Ok(script)
}

fn ctl(instance: &Instance<'_>, question: &str) -> Result<()> {
    let script = write_script(instance, "rabbitmq-diagnostics")?;
    let mut command = instance.command(script)?;
    command.args(["--quiet", "--timeout", "10", question]);
    exec::capture_within(&mut command, Duration::from_secs(30)).map(drop)
}
