//! Servers that belong to one test: it may kill, pause and restart them, and change their settings.
//!
//! Each is a process on a free loopback port with a folder of its own, killed by its id when it is
//! dropped. Never do such things to the servers that tests share.

mod mariadb;
mod nats;
mod postgres;
mod process;
mod redis;
mod seaweed;
mod server;

pub use crate::postgres::url as url_at;
pub use mariadb::MariaDbServer;
pub use nats::NatsServer;
pub use postgres::PostgresServer;
pub use process::Private;
pub use redis::RedisServer;
pub use seaweed::SeaweedServer;

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

/// Below the range from which the kernel takes the ports of outgoing connections, and below the
/// ports of the servers that tests share.
const PORTS: std::ops::Range<u16> = 10_000..20_000;

/// A port that nobody listens on right now, and that no test of any process is given until this
/// process ends: the server that is to listen there has not been started yet, so a lock on a file
/// keeps the port for it.
///
/// # Panics
/// Where there is none.
#[must_use]
pub fn free_port() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    static KEPT: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let span = u32::from(PORTS.end - PORTS.start);
    // Tests run in processes of their own; two of them rarely begin at the same place.
    let first = std::process::id().wrapping_mul(7919);
    for _ in 0..span {
        let next = GIVEN.fetch_add(1, Ordering::Relaxed).wrapping_add(first) % span;
        let port = PORTS.start + u16::try_from(next).expect("within the range");
        let Some(lock) = reserve(port) else {
            continue;
        };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            KEPT.lock().push(lock);
            return port;
        }
    }
    panic!("no free port between {} and {}", PORTS.start, PORTS.end);
}

/// Keeps a port from other processes for as long as the file is open; `None` where another keeps
/// it.
fn reserve(port: u16) -> Option<File> {
    let folder = std::env::temp_dir().join("semel-test-ports");
    std::fs::create_dir_all(&folder).expect("a folder under the temp folder");
    let file = File::create(folder.join(port.to_string())).ok()?;
    file.try_lock().ok()?;
    Some(file)
}

/// A new, empty folder under the temp folder.
///
/// # Panics
/// Where it can't be made.
#[must_use]
pub fn new_folder(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("semel-test-{name}-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        match std::fs::create_dir(&folder) {
            Ok(()) => return folder,
            // Left by an earlier process that had our number.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => panic!("no folder under the temp folder: {error}"),
        }
    }
}

/// Variables of an environment, kept for another start.
fn owned(environment: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    environment.iter().map(owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_was_given_is_kept_from_others() {
        let port = free_port();
        assert!(reserve(port).is_none());
    }
}
