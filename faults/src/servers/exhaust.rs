//! A server that runs out of connections or files, while its callers have to connect anew.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};
use semel_testkit::proxy::Proxy;
use sqlx::{Connection as _, PgConnection};

use crate::clock::pass;
use crate::kinds::Kind;
use crate::report::LeftOut;

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

/// The same, with sessions that a PostgreSQL lets in; as callers leave, more are taken. → whether
/// none was left.
pub(super) async fn take_sessions(url: &str, ways: &[Proxy], for_time: Duration) -> Result<u64> {
    for way in ways {
        way.refuse(true);
        way.cut_all();
    }
    let (mut taken, mut refused) = (Vec::new(), 0);
    while refused < 5 {
        ensure!(taken.len() < 1_000, "the server refuses no session");
        match PgConnection::connect(url).await {
            Ok(session) => taken.push(session),
            Err(_) => {
                refused += 1;
                pass(Duration::from_millis(20)).await;
            }
        }
    }
    for way in ways {
        way.refuse(false);
    }
    pass(for_time).await;
    let none_left = PgConnection::connect(url).await.is_err();
    Ok(u64::from(none_left))
}

/// The server may open no more files than it has for so long, and its callers' connections are cut.
pub(super) async fn take_files(process: u32, ways: &[Proxy], for_time: Duration) -> Result<()> {
    limit_files(process, "8:")?;
    for way in ways {
        way.cut_all();
    }
    pass(for_time).await;
    // A server that ended of it has no limits to set any more.
    let _ = limit_files(process, "10000:");
    Ok(())
}

/// Sets the soft limit of another process.
fn limit_files(process: u32, limit: &str) -> Result<()> {
    let mut prlimit = Command::new("prlimit");
    prlimit.args(["--pid", &process.to_string(), &format!("--nofile={limit}")]);
    // As the server's own user: root may do less to others' processes where it lacks a capability.
    let owner = std::fs::metadata(format!("/proc/{process}"))?;
    prlimit.uid(owner.uid()).gid(owner.gid());
    let done = prlimit.output()?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(
        done.status.success(),
        "the limit of files can't be set: {said}"
    );
    Ok(())
}

/// Whether limits of other processes can be set.
pub(super) fn can_limit_files() -> bool {
    let mut prlimit = Command::new("prlimit");
    prlimit.arg("--version").stdout(Stdio::null());
    prlimit.status().is_ok_and(|status| status.success())
}

/// What can't be tried without the program that does it.
pub(super) fn left_out() -> Vec<LeftOut> {
    LeftOut::unless(
        can_limit_files(),
        &[Kind::FileHandles],
        "the program prlimit is not installed",
    )
}
