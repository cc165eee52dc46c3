//! Machines as network namespaces, which can be separated from each other.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// The bridge that joins all machines, and the one that joins those on the other side of a split.
const TOGETHER: &str = "together";
const APART: &str = "apart";

/// Some machines and the switch between them.
pub(super) struct Network {
    hub: String,
    machines: usize,
}

impl Network {
    pub(super) fn new(machines: usize) -> Result<Self> {
        let this = Self {
            hub: format!("semel-{}", std::process::id()),
            machines,
        };
        ip(&["netns", "add", &this.hub])?;
        for bridge in [TOGETHER, APART] {
            this.in_hub(&["link", "add", "name", bridge, "type", "bridge"])?;
            this.in_hub(&["link", "set", bridge, "up"])?;
        }
        for machine in 0..machines {
            this.add(machine)?;
        }
        Ok(this)
    }

    fn add(&self, machine: usize) -> Result<()> {
        let (name, port) = (self.namespace(machine), port(machine));
        ip(&["netns", "add", &name])?;
        let pair = ["link", "add", "name", &port, "type", "veth"];
        let peer = ["peer", "name", "eth0", "netns", &name];
        self.in_hub(&[&pair[..], &peer[..]].concat())?;
        self.in_hub(&["link", "set", &port, "master", TOGETHER, "up"])?;
        let address = format!("{}/24", Self::address(machine));
        ip(&["-n", &name, "address", "add", &address, "dev", "eth0"])?;
        for link in ["lo", "eth0"] {
            ip(&["-n", &name, "link", "set", link, "up"])?;
        }
        Ok(())
    }

    /// The namespace of a machine.
    pub(super) fn namespace(&self, machine: usize) -> String {
        format!("{}-{machine}", self.hub)
    }

    /// The address of a machine.
    pub(super) fn address(machine: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, u8::try_from(machine + 1).expect("few machines"))
    }

    /// Cuts these machines from all others; they still reach each other.
    pub(super) fn cut(&self, machines: &[usize]) -> Result<()> {
        self.join(machines, APART)
    }

    /// Cuts one machine from every other, those that are cut off too.
    pub(super) fn unplug(&self, machine: usize) -> Result<()> {
        self.in_hub(&["link", "set", &port(machine), "nomaster"])
    }

    /// Joins all machines again.
    pub(super) fn heal(&self) -> Result<()> {
        self.heal_but(&[])
    }

    /// Joins all machines but these again.
    pub(super) fn heal_but(&self, left_out: &[usize]) -> Result<()> {
        let all = (0..self.machines).filter(|machine| !left_out.contains(machine));
        self.join(&all.collect::<Vec<_>>(), TOGETHER)
    }

    fn join(&self, machines: &[usize], bridge: &str) -> Result<()> {
        for machine in machines {
            self.in_hub(&["link", "set", &port(*machine), "master", bridge])?;
        }
        Ok(())
    }

    fn in_hub(&self, words: &[&str]) -> Result<()> {
        ip(&[&["-n", &self.hub], words].concat())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for machine in 0..self.machines {
            let _ = ip(&["netns", "del", &self.namespace(machine)]);
        }
        let _ = ip(&["netns", "del", &self.hub]);
    }
}

fn port(machine: usize) -> String {
    format!("port{machine}")
}

fn ip(words: &[&str]) -> Result<()> {
    let done = Command::new("ip").args(words).output();
    let done = done.context("the program ip")?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "ip {}: {said}", words.join(" "));
    Ok(())
}

/// A program on one of the machines.
pub(crate) fn on_machine(namespace: &str, program: &std::path::Path) -> Command {
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", namespace])
        .arg(program)
        .stdin(Stdio::null());
    command
}

/// Why no network can be made here, where that is so.
pub(super) fn why_not() -> Option<String> {
    let failed = Network::new(1).err()?;
    Some(format!(
        "network namespaces need root and the program ip: {failed}"
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::pass;

    async fn reaches(network: &Network, from: usize, to: usize) -> bool {
        let listen = on_machine(&network.namespace(to), std::path::Path::new("redis-server"))
            .args(["--bind", "0.0.0.0", "--protected-mode", "no", "--save", ""])
            .stdout(Stdio::null())
            .spawn();
        let mut server = listen.expect("redis-server");
        let address = Network::address(to).to_string();
        let mut ping = on_machine(&network.namespace(from), std::path::Path::new("timeout"));
        ping.args(["2", "redis-cli", "-h", &address, "ping"]);
        let mut reached = false;
        for _ in 0..10 {
            let said = ping.output().expect("redis-cli").stdout;
            reached = said.starts_with(b"PONG");
            if reached {
                break;
            }
            pass(Duration::from_millis(50)).await;
        }
        server.kill().expect("ours");
        server.wait().expect("ours");
        reached
    }

    /// A cut that cuts nothing would make every split a run without faults.
    #[tokio::test]
    #[ignore = "needs root and redis"]
    async fn machines_that_are_cut_off_are_not_reached() {
        let network = Network::new(3).expect("needs root");
        assert!(reaches(&network, 0, 1).await);
        network.cut(&[1, 2]).expect("cut");
        assert!(!reaches(&network, 0, 1).await, "they are on two sides");
        assert!(reaches(&network, 2, 1).await, "they are on one side");
        network.heal().expect("heal");
        assert!(reaches(&network, 0, 1).await);
    }
}
