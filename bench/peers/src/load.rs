//! A load generator that costs little beside what it measures: raw bytes on connections that stay
//! open.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use semel::core::clock::SystemTime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Which keys are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// A new one each time.
    Fresh,
    /// One that was answered before.
    Replayed,
}

/// One connection, ready to be used for many requests.
pub(crate) struct Connection {
    stream: TcpStream,
    cookie: Option<String>,
    buffer: Vec<u8>,
}

/// Keys of this run, and of no other.
pub(crate) struct Numbers {
    run: u128,
    next: AtomicU64,
}

impl Numbers {
    pub(crate) fn new(run: u128) -> Arc<Self> {
        Arc::new(Self {
            run,
            next: AtomicU64::new(1),
        })
    }

    pub(crate) fn key(&self, keys: Keys) -> String {
        let number = match keys {
            Keys::Fresh => self.next.fetch_add(1, Ordering::Relaxed),
            Keys::Replayed => 0,
        };
        format!("{:016x}-{number:08x}", self.run >> 64)
    }
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr, with_session: bool) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut connection = Self {
            stream,
            cookie: None,
            buffer: Vec::with_capacity(4096),
        };
        if with_session {
            let head = "POST /session HTTP/1.1\r\nhost: bench\r\ncontent-length: 0\r\n\r\n";
            let answer = connection.exchange(head.as_bytes()).await?;
            let cookie = answer
                .lines()
                .find_map(|line| line.strip_prefix("set-cookie: "));
            let cookie = cookie.context("a session")?.split(';').next();
            connection.cookie = cookie.map(str::to_owned);
        }
        Ok(connection)
    }

    /// One more connection of the same caller.
    pub(crate) async fn beside(&self, address: SocketAddr) -> anyhow::Result<Self> {
        let cookie = self.cookie.clone();
        Ok(Self {
            cookie,
            ..Self::open(address, false).await?
        })
    }

    /// The body of the last answer.
    pub(crate) fn body(&self) -> String {
        let end = self.buffer.windows(4).position(|four| four == b"\r\n\r\n");
        let body = end.and_then(|end| self.buffer.get(end + 4..));
        String::from_utf8_lossy(body.unwrap_or_default()).into_owned()
    }

    /// Sends one request and reads its answer.
    pub(crate) async fn charge(&mut self, key: &str) -> anyhow::Result<()> {
        const BODY: &str =
            r#"{"customer":"cus_81723","cents":4200,"currency":"eur","note":"a book"}"#;
        let cookie = self
            .cookie
            .as_ref()
            .map_or(String::new(), |c| format!("cookie: {c}\r\n"));
        let request = format!(
            "POST /charges HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n{cookie}\
             idempotency-key: {key}\r\ncontent-length: {}\r\n\r\n{BODY}",
            BODY.len()
        );
        let head = self.exchange(request.as_bytes()).await?;
        ensure!(
            head.starts_with("HTTP/1.1 201"),
            "unexpected answer: {head}"
        );
        Ok(())
    }

    async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<String> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        loop {
            ensure!(self.stream.read_buf(&mut self.buffer).await? > 0, "hung up");
            let end = self.buffer.windows(4).position(|four| four == b"\r\n\r\n");
            let Some(end) = end else { continue };
            let head = std::str::from_utf8(&self.buffer[..end])?.to_owned();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.context("a length")?.parse()?;
            while self.buffer.len() < end + 4 + length {
                ensure!(self.stream.read_buf(&mut self.buffer).await? > 0, "hung up");
            }
            return Ok(head);
        }
    }
}

/// Requests a second over all connections, and how long each took, in microseconds.
pub(crate) async fn turn(
    connections: &mut Vec<Connection>,
    numbers: &Arc<Numbers>,
    keys: Keys,
    time: Duration,
) -> anyhow::Result<(f64, Vec<f64>)> {
    let clock = SystemTime::default();
    let began = clock.now();
    let callers: Vec<_> = connections
        .drain(..)
        .map(|mut connection| {
            let numbers = Arc::clone(numbers);
            tokio::spawn(async move {
                let mut times = Vec::new();
                let mut sent = clock.now();
                while sent.since(began) < time {
                    connection.charge(&numbers.key(keys)).await?;
                    let now = clock.now();
                    times.push(now.since(sent).as_secs_f64() * 1e6);
                    sent = now;
                }
                anyhow::Ok((connection, times))
            })
        })
        .collect();
    let mut all = Vec::new();
    for caller in callers {
        let (connection, times) = caller.await??;
        connections.push(connection);
        all.extend(times);
    }
    let rate = all.len() as f64 / clock.now().since(began).as_secs_f64();
    Ok((rate, all))
}
