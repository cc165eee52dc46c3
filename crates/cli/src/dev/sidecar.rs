//! The sidecars: two child processes of this program on one SQLite store, which may be killed.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use semel::core::Clock;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

use super::http::Http;
use super::run::Lane;
use crate::exit::{self, Exit};

/// The environment that the keys of this command live in.
pub(super) const ENVIRONMENT: &str = "dev";
/// How long an owner may be silent: short, so that a takeover can be watched.
const LEASE: &str = "2s";
/// How often a starting sidecar is asked whether it is ready, and how many times.
const ASK_EVERY: Duration = Duration::from_millis(25);
const MAX_ASKS: u32 = 1200;

/// One sidecar.
pub(super) struct Sidecar {
    pub(super) lane: Lane,
    pub(super) address: SocketAddr,
    pub(super) admin: SocketAddr,
    /// Whether its events are being followed.
    pub(super) is_followed: AtomicBool,
    file: PathBuf,
    log: PathBuf,
    child: Mutex<Option<Child>>,
}

/// A port of the loopback on which nobody listens.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

impl Sidecar {
    /// Writes the settings of a sidecar in front of `upstream`, with its files in `folder`.
    pub(super) fn prepare(lane: Lane, folder: &Path, upstream: SocketAddr) -> io::Result<Self> {
        let name = match lane {
            Lane::B => "b",
            _ => "a",
        };
        let sidecar = Self {
            lane,
            address: free_address()?,
            admin: free_address()?,
            is_followed: AtomicBool::new(false),
            file: folder.join(format!("{name}.toml")),
            log: folder.join(format!("{name}.log")),
            child: Mutex::new(None),
        };
        std::fs::write(&sidecar.file, sidecar.settings(folder, upstream))?;
        Ok(sidecar)
    }

    fn settings(&self, folder: &Path, upstream: SocketAddr) -> String {
        let store = toml::Value::from(format!("sqlite://{}/keys.db", folder.display()));
        let (listener, admin) = (self.address, self.admin);
        // Both sidecars are one service to the client, so the port that it asked does not count.
        format!(
            "environment = \"{ENVIRONMENT}\"\n\
             store.url = {store}\n\
             upstream.urls = [\"http://{upstream}\"]\n\
             listener.address = \"{listener}\"\n\
             admin.address = \"{admin}\"\n\
             admin.open = true\n\
             [defaults]\nlease = \"{LEASE}\"\non_busy = \"wait\"\nretention = \"1h\"\n\
             fingerprint.authority = false\n\
             [[routes]]\npath = \"/charges\"\ncrash = \"hold\"\n\
             [[routes]]\npath = \"/receipts\"\ncrash = \"takeover\"\n"
        )
    }

    /// Starts the process and waits until it is ready.
    pub(super) async fn start(&self, clock: &Arc<dyn Clock>) -> Result<(), Exit> {
        let unexpected = |error: io::Error| Exit::failed(exit::UNEXPECTED, error.to_string());
        let mut child = self.child.lock().await;
        *child = Some(self.spawn().map_err(unexpected)?);
        let http = Http::new();
        let ready = format!("http://{}/_semel/readyz", self.address);
        for _ in 0..MAX_ASKS {
            let ended = child.as_mut().map(Child::try_wait);
            if let Some(Ok(Some(status))) = ended {
                let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                let message = format!("a sidecar ended at its start ({status}):\n{log}");
                return Err(Exit::failed(exit::LISTEN, message));
            }
            let is_ready = http
                .get(&ready)
                .await
                .is_ok_and(|reply| reply.status == 200);
            if is_ready && tokio::net::TcpStream::connect(self.admin).await.is_ok() {
                return Ok(());
            }
            clock.sleep(ASK_EVERY).await;
        }
        Err(Exit::failed(
            exit::UNEXPECTED,
            "a sidecar does not become ready",
        ))
    }

    fn spawn(&self) -> io::Result<Child> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(std::env::current_exe()?);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SEMEL_") {
                command.env_remove(name);
            }
        }
        command.args(["serve", "--end-with-stdin", "--config"]);
        command.arg(&self.file);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log);
        // A Ctrl-C on the terminal is for this process, which ends its children itself.
        #[cfg(unix)]
        command.process_group(0);
        command.kill_on_drop(true).spawn()
    }

    /// Kills the process with SIGKILL and waits for its end.
    pub(super) async fn kill(&self) {
        self.is_followed.store(false, Ordering::Relaxed);
        if let Some(mut child) = self.child.lock().await.take() {
            // Fails where the process has ended already.
            let _ = child.kill().await;
        }
    }

    /// Starts the process again where it has ended.
    pub(super) async fn revive(&self, clock: &Arc<dyn Clock>) -> Result<(), Exit> {
        if !self.is_running().await {
            self.is_followed.store(false, Ordering::Relaxed);
            self.start(clock).await?;
        }
        Ok(())
    }

    async fn is_running(&self) -> bool {
        let mut child = self.child.lock().await;
        child
            .as_mut()
            .is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }
}
