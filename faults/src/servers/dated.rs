//! A fake clock for an HTTP server: rewrites the times in its responses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use super::Shared;
use crate::clock::{ClockJump, MachineClock, pass, tick};
use crate::kinds::Kind;

const HOUR: i64 = 3600;
/// Times have a resolution of one second.
const SETTLES: Duration = Duration::from_millis(1_500);
/// The headers with a time, and the length of a time.
const HEADERS: [&str; 2] = ["\r\ndate: ", "\r\nlast-modified: "];
const LENGTH: usize = "Tue, 17 Nov 2026 12:00:00 GMT".len();

/// A proxy in front of an HTTP server, which changes the time of its responses.
pub(super) struct DatedServer {
    address: SocketAddr,
    jumps: Jumps,
}

/// The offset of the clock, in seconds, from each moment on.
type Jumps = Arc<Mutex<Vec<(SystemTime, i64)>>>;

impl DatedServer {
    pub(super) async fn before(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, jumps) = (listener.local_addr()?, Jumps::default());
        let told = Arc::clone(&jumps);
        tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                let jumps = Arc::clone(&told);
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(server).await else {
                        return;
                    };
                    let _ = (caller.set_nodelay(true), server.set_nodelay(true));
                    let (from_caller, to_caller) = caller.into_split();
                    let (from_server, to_server) = server.into_split();
                    tokio::select! {
                        () = copy(from_caller, to_server, None) => {}
                        () = copy(from_server, to_caller, Some(jumps)) => {}
                    }
                });
            }
        });
        Ok(Self { address, jumps })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the clock an hour forward or back, at most one hour off. Returns whether it did.
    pub(super) async fn jump(&self, kind: Kind, windows: &Shared) -> u64 {
        let by = if kind == Kind::ClockForward {
            HOUR
        } else {
            -HOUR
        };
        let from = tick();
        {
            let mut jumps = self.jumps.lock();
            let was = jumps.last().map_or(0, |(_, offset)| *offset);
            let to = (was + by).clamp(-HOUR, HOUR);
            if to == was {
                return 0;
            }
            jumps.push((now(), to));
        }
        pass(SETTLES).await;
        windows
            .lock()
            .jumps
            .push(ClockJump::of_seconds(from, tick(), by));
        1
    }
}

/// The time of the machine, which is the server's.
fn now() -> SystemTime {
    let micros = MachineClock::shared().wall().as_micros();
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, jumps: Option<Jumps>) {
    let mut lot = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut lot).await {
        if let Some(jumps) = &jumps {
            rewrite(&mut lot[..count], &jumps.lock());
        }
        if to.write_all(&lot[..count]).await.is_err() {
            return;
        }
    }
}

/// Shifts every time in a response's head by the clock's offset at that time.
fn rewrite(lot: &mut [u8], jumps: &[(SystemTime, i64)]) {
    if jumps.is_empty() || !lot.starts_with(b"HTTP/1.1 ") {
        return;
    }
    let end = lot.windows(4).position(|four| four == b"\r\n\r\n");
    let head = String::from_utf8_lossy(&lot[..end.unwrap_or(lot.len())]).to_ascii_lowercase();
    for header in HEADERS {
        let Some(at) = head.find(header).map(|at| at + header.len()) else {
            continue;
        };
        let Some(place) = lot.get_mut(at..at + LENGTH) else {
            continue;
        };
        let time = std::str::from_utf8(place).ok();
        if let Some(time) = time.and_then(|time| httpdate::parse_http_date(time).ok()) {
            place.copy_from_slice(httpdate::fmt_http_date(moved(time, jumps)).as_bytes());
        }
    }
}

/// The clock's reading at this time.
fn moved(time: SystemTime, jumps: &[(SystemTime, i64)]) -> SystemTime {
    let offset = jumps.iter().rfind(|(from, _)| time >= *from);
    let offset = offset.map_or(0, |(_, offset)| *offset);
    let by = Duration::from_secs(offset.unsigned_abs());
    if offset < 0 { time - by } else { time + by }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times from before a jump stay, and times after it are shifted.
    #[test]
    fn times_are_moved_by_what_the_clock_was_off() {
        let at = |text| httpdate::parse_http_date(text).expect("a time");
        let jumps = [(at("Tue, 17 Nov 2026 12:00:00 GMT"), 3_600)];
        let mut reply = *b"HTTP/1.1 200 OK\r\nDate: Tue, 17 Nov 2026 12:00:05 GMT\r\n\
            Last-Modified: Tue, 17 Nov 2026 11:59:59 GMT\r\n\r\nDate: Tue, 17 Nov 2026 12:00:05 GMT";
        rewrite(&mut reply, &jumps);
        let wanted = b"HTTP/1.1 200 OK\r\nDate: Tue, 17 Nov 2026 13:00:05 GMT\r\n\
            Last-Modified: Tue, 17 Nov 2026 11:59:59 GMT\r\n\r\nDate: Tue, 17 Nov 2026 12:00:05 GMT";
        assert_eq!(reply, *wanted);
    }
}
