//! NATS with JetStream.

use std::io::Read as _;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::launch::Launch;

/// The server with its data in `folder`, and `more` arguments.
#[must_use]
pub fn server(program: PathBuf, port: u16, folder: &Path, more: &[&str]) -> Launch {
    let port = port.to_string();
    let folder = folder.display().to_string();
    let own = ["-a", "127.0.0.1", "-p", &port, "-js", "-sd", &folder];
    let args = own.iter().chain(more).map(ToString::to_string).collect();
    Launch::new(program, args)
}

/// Whether it answers: it greets whoever connects.
///
/// # Errors
/// Where it doesn't.
pub fn ready(port: u16) -> Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut word = [0; 4];
    stream.read_exact(&mut word)?;
    ensure!(word == *b"INFO", "no greeting");
    Ok(())
}

/// Its URL.
#[must_use]
pub fn url(port: u16) -> String {
    format!("nats://127.0.0.1:{port}")
}
