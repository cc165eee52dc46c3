//! [`NatsServer`]: a private NATS server with JetStream.

use std::io::Read as _;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::{Private, free_port, new_folder};

/// How often to ask whether a server is ready, and how long to go on asking.
const ASK_EVERY: Duration = Duration::from_millis(20);
const PATIENCE: usize = 1_000;

/// A server of the test's own, with its data in a folder of its own.
#[derive(Debug)]
pub struct NatsServer {
    folder: PathBuf,
    port: u16,
    process: Private,
}

impl NatsServer {
    /// Starts the server that `cargo xtask services up nats` has installed, and waits until it
    /// answers.
    ///
    /// # Panics
    /// Where it doesn't start.
    pub async fn start() -> Self {
        let (folder, port) = (new_folder("nats"), free_port());
        let process = run(port, &folder);
        let mut server = Self {
            folder,
            port,
            process,
        };
        server.answers().await;
        server
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on its own data, at the same port, and waits until it answers.
    ///
    /// # Panics
    /// Where it doesn't start.
    pub async fn restart(&mut self) {
        self.process.kill();
        self.process = run(self.port, &self.folder);
        self.answers().await;
    }

    async fn answers(&mut self) {
        let mut pause = tokio::time::interval(ASK_EVERY);
        for _ in 0..PATIENCE {
            pause.tick().await;
            assert!(self.process.runs(), "the server ended at its start");
            // It greets whoever connects.
            let greeted =
                TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).and_then(|mut stream| {
                    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
                    let mut word = [0; 4];
                    stream.read_exact(&mut word).map(|()| word == *b"INFO")
                });
            if greeted.unwrap_or(false) {
                return;
            }
        }
        panic!("the server doesn't answer");
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.process.kill();
        // Left-over files are no reason to fail a test.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn run(port: u16, folder: &std::path::Path) -> Private {
    let program = std::env::var_os("SEMEL_TEST_NATS_SERVER")
        .expect("SEMEL_TEST_NATS_SERVER: see `cargo xtask services up nats`");
    let mut command = Command::new(program);
    command.args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"]);
    Private::start(command.arg(folder))
}
