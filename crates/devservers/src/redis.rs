//! Redis, and Valkey: the same settings, another program.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::exec;
use crate::launch::Launch;

/// Where the server is.
///
/// # Errors
/// Where it is not installed.
pub fn program() -> Result<PathBuf> {
    exec::find_program("redis-server").context("redis-server is not installed")
}

/// A server with a file of settings and its data in `folder`. Nothing is kept on disk unless `more`
/// or the settings say so.
#[must_use]
pub fn server(
    program: PathBuf,
    settings: &Path,
    folder: &Path,
    port: u16,
    more: &[&str],
) -> Launch {
    let settings = settings.display().to_string();
    let (port, folder) = (port.to_string(), folder.display().to_string());
    let own = [
        &*settings,
        "--bind",
        "127.0.0.1",
        "--port",
        &port,
        "--save",
        "",
        "--dir",
        &folder,
    ];
    let args = own.iter().chain(more).map(ToString::to_string).collect();
    Launch::new(program, args)
}

/// Asks a server on this machine one command; the parts of a list are put on lines.
///
/// # Errors
/// Where it doesn't answer, or refuses.
pub fn ask(port: u16, words: &[&str]) -> std::io::Result<String> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request += &format!("${}\r\n{word}\r\n", word.len());
    }
    (&stream).write_all(request.as_bytes())?;
    read_reply(&mut BufReader::new(&stream))
}

fn read_reply(from: &mut BufReader<&TcpStream>) -> std::io::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let line = line.trim_end();
    let Some((kind, rest)) = line.split_at_checked(1) else {
        return Err(std::io::Error::other("the connection was closed"));
    };
    match kind {
        "-" => Err(std::io::Error::other(rest.to_owned())),
        "$" | "*" if rest.starts_with('-') => Ok(String::new()),
        "$" => {
            let length: usize = rest.parse().map_err(std::io::Error::other)?;
            let mut text = vec![0; length + 2];
            from.read_exact(&mut text)?;
            text.truncate(length);
            Ok(String::from_utf8_lossy(&text).into_owned())
        }
        "*" => {
            let count: usize = rest.parse().map_err(std::io::Error::other)?;
            let parts: std::io::Result<Vec<String>> =
                (0..count).map(|_| read_reply(from)).collect();
            Ok(parts?.join("\n"))
        }
        _ => Ok(rest.to_owned()),
    }
}

/// Whether it answers.
///
/// # Errors
/// Where it doesn't.
pub fn ready(port: u16) -> Result<()> {
    let answer = ask(port, &["PING"])?;
    ensure!(answer == "PONG", "PING answers {answer}");
    Ok(())
}

/// The value of one line of an answer to `INFO` or `CLUSTER INFO`.
#[must_use]
pub fn field<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    answer
        .lines()
        .find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
}

/// Its URL.
#[must_use]
pub fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

/// What `--version` says, shortened to name and number.
///
/// # Errors
/// Where it says none.
pub fn version(program: &Path) -> Result<String> {
    let text = exec::capture(Command::new(program).arg("--version"))?;
    let name = text.split_whitespace().next().unwrap_or_default();
    let number = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix("v="));
    let number = number.context("no version in the answer")?;
    Ok(format!("{name} {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_by_their_whole_name() {
        let info = "# Replication\r\nrole:master\r\nrole_x:no\r\nconnected_slaves:2\r\n";
        assert_eq!(field(info, "role"), Some("master"));
        assert_eq!(field(info, "connected_slaves"), Some("2"));
        assert_eq!(field(info, "connected"), None);
    }
}
