//! A minimal HTTP client and server: one request per connection, bodies of known length.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The largest head and the largest body.
const MOST: usize = 64 * 1024;

/// A received message: head and body.
pub(crate) struct Message {
    head: String,
    pub(crate) body: String,
}

impl Message {
    /// The value of a header, by its lower-case name.
    pub(crate) fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let mut values = lines.filter(|(of, _)| of.eq_ignore_ascii_case(name));
        values.next().map_or("", |(_, value)| value.trim())
    }

    /// The status of a response.
    pub(crate) fn status(&self) -> u16 {
        let status = self.head.split_whitespace().nth(1);
        status.and_then(|status| status.parse().ok()).unwrap_or(0)
    }
}

/// Reads a complete message; `None` if the connection ends first.
async fn read(stream: &mut TcpStream) -> Option<Message> {
    let mut bytes = Vec::new();
    loop {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let mut message = Message {
                head,
                body: String::new(),
            };
            let length: usize = message.header("content-length").parse().unwrap_or(0);
            if bytes.len() >= end + 4 + length {
                let body = &bytes[end + 4..end + 4 + length];
                message.body = String::from_utf8_lossy(body).into_owned();
                return Some(message);
            }
        }
        let more = stream.read_buf(&mut bytes).await.ok()?;
        if more == 0 || bytes.len() > MOST {
            return None;
        }
    }
}

/// A POST request.
pub(crate) struct Post<'a> {
    pub(crate) path: &'a str,
    /// The idempotency key, if it is sent in a header.
    pub(crate) key: Option<&'a str>,
    /// The JSON body.
    pub(crate) body: &'a str,
}

/// Sends the request, and waits for the response for at most this time.
pub(crate) async fn post(to: SocketAddr, what: &Post<'_>, patience: Duration) -> Option<Message> {
    let Post { path, key, body } = what;
    let key = key.map_or_else(String::new, |key| format!("idempotency-key: {key}\r\n"));
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         {key}connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let asked = async {
        let mut stream = TcpStream::connect(to).await.ok()?;
        stream.write_all(request.as_bytes()).await.ok()?;
        read(&mut stream).await
    };
    tokio::time::timeout(patience, asked).await.ok()?
}

/// Serves a listener: each request is answered 201 with the result of `answer`.
pub(crate) async fn serve<F, Fut>(listener: TcpListener, answer: F)
where
    F: Fn(Message) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = String> + Send + 'static,
{
    while let Ok((mut stream, _)) = listener.accept().await {
        let answer = answer.clone();
        tokio::spawn(async move {
            while let Some(request) = read(&mut stream).await {
                let body = answer(request).await;
                let response = format!(
                    "HTTP/1.1 201 Created\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
                if stream.write_all(response.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
    }
}
