//! [`SeaweedServer`]: a private S3 server, whose buckets make themselves.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::{Private, free_port, new_folder};
use crate::launch::Launch;
use crate::seaweed::{self, ACCESS_KEY, SECRET_KEY};

/// A server of the test's own, with its data in a folder of its own. It takes seconds until it
/// keeps something: open a store to see.
#[derive(Debug)]
pub struct SeaweedServer {
    folder: PathBuf,
    launch: Launch,
    port: u16,
    process: Private,
}

impl SeaweedServer {
    /// Starts the server that `cargo xtask services up s3` has installed.
    ///
    /// # Panics
    /// Where it doesn't start.
    #[must_use]
    pub fn start() -> Self {
        let program = std::env::var_os("SEMEL_TEST_WEED")
            .expect("SEMEL_TEST_WEED: see `cargo xtask services up s3`");
        let (folder, s3) = (new_folder("seaweed"), free_port());
        let port = |part: &str| Ok(if part == "s3" { s3 } else { free_port() });
        let launch = seaweed::server(program.into(), &folder, &folder, port);
        let launch = launch.expect("a folder of our own");
        Self {
            process: Private::start(&mut launch.command()),
            folder,
            launch,
            port: s3,
        }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), self.port)
    }

    /// The URL of a bucket at `address`, which may be a way to it that the test can cut.
    #[must_use]
    pub fn url_at(address: SocketAddr) -> String {
        format!("s3://{ACCESS_KEY}:{SECRET_KEY}@bucket?endpoint=http://{address}")
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &std::path::Path {
        &self.folder
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.process.runs()
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on its own data, at the same ports.
    ///
    /// # Panics
    /// Where it doesn't start.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = Private::start(&mut self.launch.command());
    }
}

impl Drop for SeaweedServer {
    fn drop(&mut self) {
        self.process.kill();
        // Left-over files are no reason to fail a test.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
