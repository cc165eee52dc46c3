//! Servers, clients and gateways as processes.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use semel_testkit::private::{Private, free_port, new_folder};
use semel_tests::{semel, semel_command};
use serde_json::Value;

pub(crate) fn needs(variable: &str) -> PathBuf {
    let value = std::env::var_os(variable);
    let value = value.unwrap_or_else(|| panic!("{variable}: see `cargo xtask services up mcp`"));
    PathBuf::from(value)
}

fn script(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/mcp")).join(name)
}

/// Which SDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sdk {
    Python,
    TypeScript,
}

/// A folder with a ledger of what servers did, and a store of the test's own.
pub(crate) struct Place {
    pub(crate) folder: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = new_folder("mcp");
        std::fs::write(folder.join("ledger"), "").expect("a folder of our own");
        for name in ["tools.mjs", "client.mjs"] {
            // Modules are looked for from where the program lies.
            std::fs::copy(script(name), folder.join(name)).expect("a script");
        }
        let modules = needs("SEMEL_TEST_MCP_NODE").join("node_modules");
        std::os::unix::fs::symlink(modules, folder.join("node_modules")).expect("a link");
        Self { folder }
    }

    pub(crate) fn store(&self) -> String {
        format!("sqlite://{}", self.folder.join("semel.db").display())
    }

    pub(crate) fn ledger(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.join("ledger")).expect("the ledger");
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn acts(&self, line: &str) -> usize {
        self.ledger().iter().filter(|of| *of == line).count()
    }

    /// A server's command.
    pub(crate) fn server(&self, sdk: Sdk) -> Vec<String> {
        match sdk {
            Sdk::Python => words(&[&needs("SEMEL_TEST_MCP_PYTHON"), &script("tools.py")]),
            Sdk::TypeScript => words(&[Path::new("node"), &self.folder.join("tools.mjs")]),
        }
    }

    /// A gateway's command, with `more` flags, before a server's.
    pub(crate) fn gateway(&self, more: &[&str], server: &[String]) -> Vec<String> {
        let mut command = words(&[&semel()]);
        command.extend(["mcp", "--store", &self.store()].map(str::to_owned));
        command.extend(more.iter().map(|word| (*word).to_owned()));
        if !server.is_empty() {
            command.push("--".to_owned());
            command.extend_from_slice(server);
        }
        command
    }

    /// A command with the ledger in its environment, and no settings of this machine's.
    pub(crate) fn command(&self, words: &[String]) -> Command {
        let mut command = semel_command(&PathBuf::from(&words[0]));
        command.args(&words[1..]);
        command.env("LEDGER", self.folder.join("ledger"));
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// What a client of an SDK's says that it saw at `target`: a URL, or a command.
    pub(crate) fn client(&self, sdk: Sdk, mode: &str, target: &str) -> Value {
        let words = match sdk {
            Sdk::Python => {
                let mut words = words(&[&needs("SEMEL_TEST_MCP_PYTHON"), &script("client.py")]);
                words.push(mode.to_owned());
                words
            }
            Sdk::TypeScript => words(&[Path::new("node"), &self.folder.join("client.mjs")]),
        };
        let mut command = self.command(&words);
        said(command.arg(target))
    }

    /// Starts something that listens, and waits until it does.
    pub(crate) async fn listens(&self, words: &[String], port: u16) -> Private {
        let mut process = Private::start(&mut self.command(words));
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut pause = tokio::time::interval(Duration::from_millis(50));
        for _ in 0..1200 {
            pause.tick().await;
            assert!(process.runs(), "it ended at its start: {words:?}");
            if tokio::net::TcpStream::connect(address).await.is_ok() {
                return process;
            }
        }
        panic!("it never listens: {words:?}");
    }

    /// A server over HTTP, and its URL.
    pub(crate) async fn http_server(&self, sdk: Sdk) -> (Private, String) {
        let port = free_port();
        let mut words = self.server(sdk);
        words.push(port.to_string());
        let process = self.listens(&words, port).await;
        (process, format!("http://127.0.0.1:{port}/mcp"))
    }

    /// A gateway over HTTP, and its URL.
    pub(crate) async fn http_gateway(&self, more: &[&str], server: &[String]) -> (Private, String) {
        let port = free_port();
        let listen = format!("127.0.0.1:{port}");
        let flags = [&["--listen", &listen], more].concat();
        let process = self.listens(&self.gateway(&flags, server), port).await;
        (process, format!("http://{listen}/mcp"))
    }
}

pub(crate) fn words(paths: &[&Path]) -> Vec<String> {
    let text = |path: &&Path| path.to_str().expect("a path in UTF-8").to_owned();
    paths.iter().map(text).collect()
}

/// What a command prints, as JSON.
pub(crate) fn said(command: &mut Command) -> Value {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = command.output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = |text: &str| {
        text.lines()
            .rev()
            .take(60)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        last(&errors)
    );
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "{error}: {}\n{}",
            String::from_utf8_lossy(&output.stdout),
            last(&errors)
        )
    })
}

/// Waits until the record of a derived key's window is gone, and its guard alone is in doubt.
pub(crate) async fn until_one_doubt_is_left(place: &Place) {
    let mut pause = tokio::time::interval(Duration::from_millis(100));
    for _ in 0..600 {
        pause.tick().await;
        if in_doubt(place).len() == 1 {
            return;
        }
    }
    panic!("{:?}", in_doubt(place));
}

/// What an operator sees of the store.
pub(crate) fn in_doubt(place: &Place) -> Vec<Value> {
    let mut command = semel_command(&semel());
    command.args([
        "keys",
        "list",
        "--in-doubt",
        "--json",
        "--store",
        &place.store(),
    ]);
    let listed = said(&mut command);
    let records = listed.as_array().or_else(|| listed["records"].as_array());
    records.unwrap_or_else(|| panic!("{listed}")).clone()
}
