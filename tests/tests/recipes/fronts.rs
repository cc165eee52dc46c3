//! The proxies in front: how each is started with its example, and where it differs from the
//! others.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use semel_testkit::private::{Private, new_folder};

use crate::programs::{answers, example, local, needs};

/// What a client gets whose body is too large.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TooLarge {
    /// The sidecar's problem document. It may be lost, with the connection or for a 502 or 503 of
    /// the proxy, as the sidecar closes the connection before it has read the body.
    DocumentOrLost,
    /// A page of the proxy, which has a limit of its own.
    OwnPage,
}

/// A proxy, as its example in `examples/sidecar` sets it up.
pub(crate) struct Front {
    /// As the page names it.
    pub(crate) name: &'static str,
    /// The folder of its example.
    folder: &'static str,
    files: &'static [&'static str],
    /// The variable that names its program.
    program: &'static str,
    arguments: fn(&mut Command, &Path),
    /// What a client gets whose body is too large.
    pub(crate) too_large: TooLarge,
    /// The status that it answers with when it loses the connection on which it has sent a request.
    pub(crate) lost: u16,
}

pub(crate) const ENVOY: Front = Front {
    name: "Envoy",
    folder: "envoy",
    files: &["envoy.yaml"],
    program: "SEMEL_TEST_ENVOY",
    arguments: |command, folder| {
        command.arg("-c").arg(folder.join("envoy.yaml"));
        // Tests run beside each other, and Envoys of one number share a socket.
        command.args(["--use-dynamic-base-id", "--concurrency", "1"]);
        command.args(["--log-level", "error"]);
    },
    too_large: TooLarge::DocumentOrLost,
    lost: 503,
};

pub(crate) const TRAEFIK: Front = Front {
    name: "Traefik",
    folder: "traefik",
    files: &["traefik.yaml", "routes.yaml"],
    program: "SEMEL_TEST_TRAEFIK",
    arguments: |command, _| {
        command.arg("--configFile=traefik.yaml");
    },
    too_large: TooLarge::DocumentOrLost,
    lost: 502,
};

pub(crate) const CADDY: Front = Front {
    name: "Caddy",
    folder: "caddy",
    files: &["Caddyfile"],
    program: "SEMEL_TEST_CADDY",
    arguments: |command, folder| {
        command.args(["run", "--config", "Caddyfile"]);
        command.env("XDG_DATA_HOME", folder).env("HOME", folder);
        command.env("XDG_CONFIG_HOME", folder);
    },
    too_large: TooLarge::DocumentOrLost,
    lost: 502,
};

pub(crate) const HAPROXY: Front = Front {
    name: "HAProxy",
    folder: "haproxy",
    files: &["haproxy.cfg"],
    program: "SEMEL_TEST_HAPROXY",
    arguments: |command, _| {
        // In the foreground, one process.
        command.args(["-db", "-f", "haproxy.cfg"]);
    },
    too_large: TooLarge::DocumentOrLost,
    lost: 502,
};

pub(crate) const NGINX: Front = Front {
    name: "nginx",
    folder: "nginx",
    files: &["nginx.conf"],
    program: "SEMEL_TEST_NGINX",
    arguments: |command, folder| {
        command.arg("-p").arg(folder).args(["-c", "nginx.conf"]);
        // One process, which ends with the test that started it.
        command.args(["-g", "master_process off;"]);
    },
    too_large: TooLarge::OwnPage,
    lost: 502,
};

/// All of them, as the page lists them.
pub(crate) const FRONTS: [&Front; 5] = [&ENVOY, &TRAEFIK, &CADDY, &HAPROXY, &NGINX];

/// The address at which the examples listen, and those of the sidecars behind.
const LISTENS: &str = "8000";
const SIDECARS: [&str; 2] = ["8080", "8180"];

/// A proxy that runs.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    process: Private,
    folder: PathBuf,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.process.kill();
        // What a failed test has left is worth a look.
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

impl Front {
    /// Starts it with the files of its example, but for the ports.
    pub(crate) async fn start(&self, sidecars: [SocketAddr; 2]) -> Running {
        let (folder, address) = (new_folder(self.folder), local());
        for file in self.files {
            let text = std::fs::read_to_string(example(self.folder).join(file));
            let text = with_ports(&text.expect("the example"), address, sidecars);
            std::fs::write(folder.join(file), text).expect("a folder of our own");
        }
        let mut command = Command::new(needs(self.program));
        (self.arguments)(&mut command, &folder);
        command.current_dir(&folder);
        let log = std::fs::File::create(folder.join("log")).expect("a folder of our own");
        let mut process = Private::saying_to(&mut command, log);
        // It must have found the sidecars too.
        answers(&mut process, &format!("http://{address}/_semel/healthz")).await;
        Running {
            address,
            process,
            folder,
        }
    }
}

/// The text with other ports, each of which is found as a whole number.
fn with_ports(text: &str, address: SocketAddr, sidecars: [SocketAddr; 2]) -> String {
    let ports = [(LISTENS, address), (SIDECARS[0], sidecars[0])];
    let ports = ports.into_iter().chain([(SIDECARS[1], sidecars[1])]);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for line in &mut lines {
        // Comments name the ports of the example.
        if line.trim_start().starts_with('#') {
            continue;
        }
        for (old, new) in ports.clone() {
            for before in [":", "port_value: "] {
                let wanted = format!("{before}{old}");
                *line = line.replace(&wanted, &format!("{before}PORT-{}", new.port()));
            }
        }
        *line = line.replace("PORT-", "");
    }
    lines.join("\n") + "\n"
}
