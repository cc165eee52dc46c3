//! Protection against request smuggling: refuses requests whose length is ambiguous.
//!
//! hyper reads such a request safely: `Transfer-Encoding` wins, the connection is closed, and the
//! forwarded request is framed anew. But a proxy in front may have read it the other way, and hyper
//! does not report that both headers were there. So this module scans the heads of HTTP/1 requests
//! as they arrive. Its result can only refuse a request.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The scan results of a connection's requests.
#[derive(Clone)]
pub(super) struct SmugglingGuard(Arc<Mutex<Scan>>);

/// A connection whose incoming bytes are scanned.
pub(super) struct GuardedStream<I> {
    inner: I,
    guard: SmugglingGuard,
}

struct Scan {
    stage: Stage,
    line: Vec<u8>,
    head: Head,
    max_head: usize,
    /// Whether each complete head that was not yet handed over is ambiguous.
    found: VecDeque<bool>,
}

#[derive(Default)]
struct Head {
    bytes: usize,
    lines: usize,
    lengths: usize,
    length: u64,
    encodings: usize,
    upgrades: bool,
}

enum Stage {
    Head,
    Body(u64),
    ChunkSize,
    /// The data of a chunk and its line end.
    Chunk(u64),
    Trailers,
    /// Not HTTP/1: the scan has ended.
    Blind,
    /// The head is too long or malformed. hyper may still accept it, because its buffer exceeds its
    /// limit by the last read. So every request from here on counts as ambiguous.
    Lost,
}

impl SmugglingGuard {
    pub(super) fn new(max_head: usize) -> Self {
        Self(Arc::new(Mutex::new(Scan {
            stage: Stage::Head,
            line: Vec::new(),
            head: Head::default(),
            max_head,
            found: VecDeque::new(),
        })))
    }

    pub(super) fn wrap<I>(&self, inner: I) -> GuardedStream<I> {
        GuardedStream {
            inner,
            guard: self.clone(),
        }
    }

    /// Whether the next request is ambiguous. Called once for each request, in order.
    pub(super) fn is_ambiguous(&self) -> bool {
        let mut scan = self.0.lock();
        let is_lost = matches!(scan.stage, Stage::Lost);
        scan.found.pop_front().unwrap_or(is_lost)
    }
}

/// Whether each request of a connection is ambiguous, if it arrives in pieces of this size. For
/// `fuzz/`.
#[doc(hidden)]
#[must_use]
pub fn scan_for_ambiguity(bytes: &[u8], piece: usize, max_head: usize) -> Vec<bool> {
    let guard = SmugglingGuard::new(max_head);
    for piece in bytes.chunks(piece.max(1)) {
        guard.0.lock().feed(piece);
    }
    let mut found: Vec<bool> = std::mem::take(&mut guard.0.lock().found).into();
    // The request after the last complete head.
    found.extend(guard.is_ambiguous().then_some(true));
    found
}

impl Scan {
    fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match &mut self.stage {
                Stage::Blind | Stage::Lost => return,
                Stage::Body(left) | Stage::Chunk(left) => {
                    let taken = usize::try_from(*left)
                        .unwrap_or(usize::MAX)
                        .min(bytes.len());
                    *left -= taken as u64;
                    bytes = &bytes[taken..];
                    if *left == 0 {
                        let is_chunk = matches!(self.stage, Stage::Chunk(_));
                        self.stage = if is_chunk {
                            Stage::ChunkSize
                        } else {
                            Stage::Head
                        };
                    }
                }
                Stage::Head | Stage::ChunkSize | Stage::Trailers => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let (piece, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
                    bytes = rest;
                    self.head.bytes += piece.len();
                    if self.head.bytes > self.max_head {
                        self.stage = Stage::Lost;
                        return;
                    }
                    self.line.extend_from_slice(piece);
                    if end.is_some() {
                        let line = std::mem::take(&mut self.line);
                        self.read_line(line.trim_ascii_end());
                        self.line = line;
                        self.line.clear();
                    }
                }
            }
        }
    }

    fn read_line(&mut self, line: &[u8]) {
        match self.stage {
            Stage::Head => self.read_head_line(line),
            Stage::ChunkSize => {
                let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
                let digits = std::str::from_utf8(digits.trim_ascii()).unwrap_or("?");
                self.head.bytes = 0;
                self.stage = match u64::from_str_radix(digits, 16) {
                    Ok(0) => Stage::Trailers,
                    Ok(size) => Stage::Chunk(size.saturating_add(2)),
                    Err(_) => Stage::Lost,
                };
            }
            Stage::Trailers if line.is_empty() => {
                self.head = Head::default();
                self.stage = Stage::Head;
            }
            _ => {}
        }
    }

    fn read_head_line(&mut self, line: &[u8]) {
        let head = &mut self.head;
        if line.is_empty() && head.lines == 0 {
            return; // Empty lines before a request are skipped.
        }
        head.lines += 1;
        if head.lines == 1 {
            if !line.ends_with(b"HTTP/1.1") && !line.ends_with(b"HTTP/1.0") {
                self.stage = Stage::Blind;
            }
            return;
        }
        if line.is_empty() {
            return self.finish_head();
        }
        let at = line
            .iter()
            .position(|byte| *byte == b':')
            .unwrap_or(line.len());
        let (name, value) = line.split_at(at);
        if name.eq_ignore_ascii_case(b"content-length") {
            head.lengths += 1;
            let text = std::str::from_utf8(value.get(1..).unwrap_or_default().trim_ascii());
            head.length = text.ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            head.encodings += 1;
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            head.upgrades = true;
        }
    }

    fn finish_head(&mut self) {
        let head = std::mem::take(&mut self.head);
        let ambiguous =
            head.lengths > 1 || head.encodings > 1 || (head.lengths > 0 && head.encodings > 0);
        self.found.push_back(ambiguous);
        self.stage = match head {
            // Another protocol may follow. If it does not, the connection is closed.
            Head { upgrades: true, .. } => Stage::Blind,
            Head { encodings: 1.., .. } => Stage::ChunkSize,
            Head { length: 1.., .. } => Stage::Body(head.length),
            _ => Stage::Head,
        };
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for GuardedStream<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        self.guard.0.lock().feed(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for GuardedStream<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of the scan, which must not depend on the size of the pieces.
    fn found(bytes: &str) -> Vec<bool> {
        let pieces = [1, 2, 7, bytes.len()];
        let mut results = pieces
            .map(|piece| scan_for_ambiguity(bytes.as_bytes(), piece, 4096))
            .to_vec();
        assert!(results.iter().all(|one| *one == results[0]), "{results:?}");
        results.remove(0)
    }

    #[test]
    fn requests_with_two_lengths_are_ambiguous() {
        let plain = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let sized = "POST / HTTP/1.1\r\nContent-Length: 7\r\n\r\nGET / H";
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: \
            chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\n";
        let both =
            "POST / HTTP/1.1\r\nContent-Length: 5\r\nTRANSFER-ENCODING: chunked\r\n\r\n0\r\n\r\n";
        let twice = "POST / HTTP/1.1\r\nContent-Length: 2\r\ncontent-length: 2\r\n\r\nhi";
        assert_eq!(
            found(&format!("{plain}\r\n{sized}{chunked}{both}{twice}{plain}")),
            [false, false, false, true, true, false]
        );
    }

    #[test]
    fn other_protocols_are_not_scanned() {
        assert!(found("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nContent-Length: 1").is_empty());
        assert_eq!(
            found("GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n\x01\x02 HTTP/1.1\r\n\r\n"),
            [false]
        );
    }

    #[test]
    fn overlong_head_and_all_later_requests_are_ambiguous() {
        let long = "x".repeat(5000);
        let lost = [
            format!("GET / HTTP/1.1\r\nX: {long}\r\n\r\n"),
            format!("{}GET / HTTP/1.1\r\n\r\n", "\r\n".repeat(2500)),
        ];
        for bytes in lost {
            assert_eq!(found(&bytes), [true]);
        }
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        for rest in [
            format!("1;{long}\r\na\r\n0\r\n\r\n"),
            format!("0\r\nX: {long}\r\n\r\n"),
            "z\r\n".to_owned(),
        ] {
            let both = "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
            assert_eq!(found(&format!("{chunked}{rest}{both}")), [false, true]);
        }
    }
}
