//! [`HttpProxy`]: a way to an HTTP server that goes wrong at an exact request.
//!
//! What [`proxy`](crate::proxy) can't do because it knows no protocol: answer in the server's
//! place, before or after the server has done what was asked. Every request has a connection of its
//! own to the server; bodies need a length.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpFault {
    /// The server never sees it; the caller is told this status.
    Refused(u16),
    /// The same, with a body that names the error, as S3's do.
    RefusedAs(u16, &'static str),
    /// The server does it; the caller is told this status.
    DoneBut(u16),
    /// The server does it; the caller's connection is closed without a word.
    DoneAndCut,
    /// The server does it; the caller's connection is closed in the middle of the reply's body,
    /// where it has one.
    CutAfterHead,
}

/// A listener on the loopback address, for as long as it lives.
#[derive(Debug)]
pub struct HttpProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    armed: Mutex<VecDeque<(&'static str, HttpFault)>>,
    seen: Mutex<Vec<String>>,
}

impl HttpProxy {
    /// Begins to pass requests on to `server`.
    ///
    /// # Errors
    /// Where there is no port to listen on.
    pub async fn to(server: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let task = tokio::spawn(accept(listener, server, Arc::clone(&shared)));
        Ok(Self {
            address,
            shared,
            task,
        })
    }

    /// Where to connect to.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next request with this method goes wrong. Several are served in the order in which they
    /// were asked for.
    pub fn next(&self, method: &'static str, wrong: HttpFault) {
        self.shared.armed.lock().push_back((method, wrong));
    }

    /// How much that was asked for has not happened yet.
    #[must_use]
    pub fn armed(&self) -> usize {
        self.shared.armed.lock().len()
    }

    /// The methods of the requests since the last call, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.seen.lock())
    }
}

impl Drop for HttpProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, shared: Arc<Shared>) {
    while let Ok((caller, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        // An error is a connection that is gone, which is what its caller sees.
        tokio::spawn(async move { serve(caller, server, &shared).await });
    }
}

/// One request, and then the connection is closed.
async fn serve(caller: TcpStream, server: SocketAddr, shared: &Shared) -> std::io::Result<()> {
    caller.set_nodelay(true)?;
    let mut caller = BufReader::new(caller);
    let (mut head, mut length) = (Vec::new(), 0);
    loop {
        let line = head.len();
        if caller.read_until(b'\n', &mut head).await? == 0 {
            return Ok(());
        }
        let line = String::from_utf8_lossy(&head[line..]).to_ascii_lowercase();
        if let Some(text) = line.strip_prefix("content-length:") {
            length = text.trim().parse().map_err(std::io::Error::other)?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    caller.read_exact(&mut body).await?;
    let method = String::from_utf8_lossy(&head);
    let method = method.split(' ').next().unwrap_or_default().to_owned();
    let wrong = shared.due(&method);
    shared.seen.lock().push(method);
    match wrong {
        Some(HttpFault::Refused(status)) => return tell(caller, status, "").await,
        Some(HttpFault::RefusedAs(status, code)) => {
            let body = format!("<Error><Code>{code}</Code></Error>");
            return tell(caller, status, &body).await;
        }
        _ => {}
    }
    let reply = forward(server, &head, &body).await?;
    match wrong {
        Some(HttpFault::DoneBut(status)) => tell(caller, status, "").await,
        Some(HttpFault::CutAfterHead) => {
            caller.write_all(&reply[..middle(&reply)]).await?;
            caller.shutdown().await
        }
        Some(HttpFault::DoneAndCut | HttpFault::Refused(_) | HttpFault::RefusedAs(..)) => Ok(()),
        None => {
            caller.write_all(&reply).await?;
            caller.shutdown().await
        }
    }
}

async fn forward(server: SocketAddr, head: &[u8], body: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut server = TcpStream::connect(server).await?;
    server.set_nodelay(true)?;
    let end = head.len() - 2;
    let mut request = head[..end].to_vec();
    // The end of the reply is then the end of the stream.
    request.extend_from_slice(b"Connection: close\r\n\r\n");
    request.extend_from_slice(body);
    server.write_all(&request).await?;
    let mut reply = Vec::new();
    server.read_to_end(&mut reply).await?;
    Ok(reply)
}

/// After the head and half of the body.
fn middle(reply: &[u8]) -> usize {
    let end = reply.windows(4).position(|four| four == b"\r\n\r\n");
    let head = end.map_or(reply.len(), |end| end + 4);
    head + (reply.len() - head) / 2
}

async fn tell(mut caller: BufReader<TcpStream>, status: u16, body: &str) -> std::io::Result<()> {
    let length = body.len();
    let reply = format!(
        "HTTP/1.1 {status} Wrong\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    caller.write_all(reply.as_bytes()).await?;
    caller.shutdown().await
}

impl Shared {
    fn due(&self, method: &str) -> Option<HttpFault> {
        let mut armed = self.armed.lock();
        let (wanted, _) = armed.front()?;
        if *wanted != method {
            return None;
        }
        armed.pop_front().map(|(_, wrong)| wrong)
    }
}
