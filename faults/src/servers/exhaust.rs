//! A server that runs out of connections or files, while its callers have to connect anew.

use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};
use semel_testkit::proxy::Proxy;

use crate::clock::pass;

/// Connections of callers are cut, and others take their places for so long.
pub(super) async fn take_connections(
    server: SocketAddr,
    most: usize,
    ways: &[Proxy],
    for_time: Duration,
) -> Result<()> {
    for way in ways {
        way.refuse(true);
        way.cut_all();
    }
    let mut taken = Vec::new();
    for _ in 0..most {
        taken.push(TcpStream::connect_timeout(&server, Duration::from_secs(1))?);
    }
    for way in ways {
        way.refuse(false);
    }
    pass(for_time).await;
    drop(taken);
    Ok(())
}

/// The server may open no more files than it has for so long, and its callers' connections are cut.
pub(super) async fn take_files(process: u32, ways: &[Proxy], for_time: Duration) -> Result<()> {
    limit_files(process, "8:")?;
    for way in ways {
        way.cut_all();
    }
    pass(for_time).await;
    limit_files(process, "10000:")
}

/// Sets the soft limit of another process.
fn limit_files(process: u32, limit: &str) -> Result<()> {
    let mut prlimit = Command::new("prlimit");
    prlimit.args(["--pid", &process.to_string(), &format!("--nofile={limit}")]);
    let done = prlimit
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    ensure!(done.success(), "the limit of files can't be set");
    Ok(())
}

/// Whether limits of other processes can be set.
pub(super) fn can_limit_files() -> bool {
    let mut prlimit = Command::new("prlimit");
    prlimit.arg("--version").stdout(Stdio::null());
    prlimit.status().is_ok_and(|status| status.success())
}
