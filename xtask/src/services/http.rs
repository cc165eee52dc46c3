//! Just enough HTTP to ask a server on this machine whether it is ready.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

const LIMIT: Duration = Duration::from_secs(3);

/// A server's answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// Sends a request without a body. HTTP/1.0, so that the end of the answer is the end of the
/// stream.
pub(crate) fn ask(method: &str, port: u16, path: &str) -> Result<Answer> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)
        .with_context(|| format!("no connection to {address}"))?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let request =
        format!("{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    stream
        .read_to_end(&mut bytes)
        .with_context(|| format!("no answer from {address}{path}"))?;
    parse(&String::from_utf8_lossy(&bytes))
}

/// Asks with GET and demands status 200.
pub(crate) fn get_ok(port: u16, path: &str) -> Result<String> {
    let answer = ask("GET", port, path)?;
    ensure!(
        answer.status == 200,
        "{path} answers {}: {}",
        answer.status,
        answer.body.trim()
    );
    Ok(answer.body)
}

fn parse(text: &str) -> Result<Answer> {
    let (head, body) = text
        .split_once("\r\n\r\n")
        .context("the answer has no end of head")?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok(Answer {
        status: status.context("the answer has no status")?,
        body: body.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_body_are_read() {
        let answer = parse("HTTP/1.0 503 Unavailable\r\nA: b\r\n\r\nnot yet").unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (503, "not yet"));
    }

    #[test]
    fn a_cut_answer_is_an_error() {
        assert!(parse("HTTP/1.0 200 OK\r\n").is_err());
    }
}
