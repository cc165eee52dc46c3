//! [`Raw`]: a connection on which a test writes what it likes.

#![expect(clippy::disallowed_methods, reason = "real sockets run on real time")]

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, ToSocketAddrs};

/// How long a server may be silent.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection without a protocol.
#[derive(Debug)]
pub struct Raw {
    /// The connection itself.
    pub stream: TcpStream,
    read: Vec<u8>,
}

impl Raw {
    /// Connects to a server.
    ///
    /// # Panics
    /// Where that fails.
    pub async fn connect(address: impl ToSocketAddrs) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        Self {
            stream,
            read: Vec::new(),
        }
    }

    /// Writes to a server that reads.
    ///
    /// # Panics
    /// Where it has hung up.
    pub async fn write(&mut self, text: &str) {
        let written = self.stream.write_all(text.as_bytes()).await;
        written.expect("the server reads");
    }

    /// Writes to a server that may have hung up.
    pub async fn try_write(&mut self, text: &str) {
        let _ = self.stream.write_all(text.as_bytes()).await;
    }

    /// The next head, as text in lower case, and its body by its Content-Length. `None` where the
    /// server hung up.
    ///
    /// # Panics
    /// Where the server is silent for too long.
    pub async fn answer(&mut self) -> Option<(String, String)> {
        loop {
            if let Some(end) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.read[..end]).to_ascii_lowercase();
                let length = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: "));
                let length: usize = length.map_or(0, |text| text.parse().expect("a length"));
                let all = end + 4 + length;
                while self.read.len() < all {
                    self.more().await?;
                }
                let body = String::from_utf8_lossy(&self.read[end + 4..all]).into_owned();
                self.read.drain(..all);
                return Some((head, body));
            }
            self.more().await?;
        }
    }

    /// Everything until the server hangs up.
    ///
    /// # Panics
    /// Where the server is silent for too long.
    pub async fn rest(&mut self) -> String {
        while self.more().await.is_some() {}
        String::from_utf8_lossy(&std::mem::take(&mut self.read)).into_owned()
    }

    /// Everything up to the end of `text`.
    ///
    /// # Panics
    /// Where the server hangs up before, or is silent for too long.
    pub async fn read_to(&mut self, text: &str) -> String {
        loop {
            let so_far = String::from_utf8_lossy(&self.read).into_owned();
            if let Some(at) = so_far.find(text) {
                let end = at + text.len();
                self.read.drain(..end);
                return so_far[..end].to_owned();
            }
            assert!(self.more().await.is_some(), "hung up after {so_far:?}");
        }
    }

    /// Whether the server hangs up, sooner or later, without another word.
    ///
    /// # Panics
    /// Where the server is silent for too long.
    pub async fn is_closed(&mut self) -> bool {
        self.read.is_empty() && self.more().await.is_none()
    }

    async fn more(&mut self) -> Option<()> {
        let mut buffer = [0; 4096];
        let read = self.stream.read(&mut buffer);
        let count = tokio::time::timeout(PATIENCE, read).await.expect("in time");
        let count = count.unwrap_or(0);
        self.read.extend_from_slice(&buffer[..count]);
        (count > 0).then_some(())
    }
}
