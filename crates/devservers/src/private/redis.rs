//! [`RedisServer`]: a private Redis or Valkey of one test.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{Private, free_port, new_folder};

/// How often to ask whether a server is ready, and how long to go on asking.
const ASK_EVERY: Duration = Duration::from_millis(20);
const PATIENCE: usize = 1_000;

/// The file of settings.
const SETTINGS: &str = "server.conf";

/// A server of the test's own, with its data in a folder of its own.
#[derive(Debug)]
pub struct RedisServer {
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
    port: u16,
    process: Private,
}

impl RedisServer {
    /// Starts `redis-server` with these arguments after its own, such as `["--appendonly", "yes"]`,
    /// and waits until it answers. Without arguments it keeps nothing on disk.
    ///
    /// # Panics
    /// Where it doesn't start.
    pub async fn start(arguments: &[&str]) -> Self {
        Self::start_as(Path::new("redis-server"), "", arguments).await
    }

    /// Like [`Self::start`], with another program (a Valkey) and a file of settings (a sentinel's,
    /// which it changes itself).
    ///
    /// # Panics
    /// Where it doesn't start.
    pub async fn start_as(program: &Path, settings: &str, arguments: &[&str]) -> Self {
        let (folder, port) = (new_folder("redis"), free_port());
        std::fs::write(folder.join(SETTINGS), settings).expect("a folder of our own");
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let process = run(program, port, &folder, &arguments);
        let mut server = Self {
            program: program.to_owned(),
            arguments,
            folder,
            port,
            process,
        };
        server.answers().await;
        server
    }

    /// Its port on the loopback address.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), self.port)
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its process.
    #[must_use]
    pub const fn process(&self) -> &Private {
        &self.process
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on its own data, at the same port, and waits until it answers.
    ///
    /// # Panics
    /// Where it doesn't start.
    pub async fn restart(&mut self) {
        self.process.kill();
        self.process = run(&self.program, self.port, &self.folder, &self.arguments);
        self.answers().await;
    }

    async fn answers(&mut self) {
        let mut pause = tokio::time::interval(ASK_EVERY);
        for _ in 0..PATIENCE {
            pause.tick().await;
            assert!(self.process.runs(), "the server ended at its start");
            if self.try_ask(&["PING"]).is_ok_and(|reply| reply == "PONG") {
                return;
            }
        }
        panic!("the server doesn't answer");
    }

    /// Asks until the answer contains `wanted`; for states that a server reaches by itself.
    ///
    /// # Panics
    /// Where that takes too long.
    pub async fn until(&self, words: &[&str], wanted: &str) {
        let mut pause = tokio::time::interval(ASK_EVERY);
        for _ in 0..PATIENCE {
            pause.tick().await;
            if self
                .try_ask(words)
                .is_ok_and(|reply| reply.contains(wanted))
            {
                return;
            }
        }
        panic!(
            "{words:?} never answered {wanted}: {:?}",
            self.try_ask(words)
        );
    }

    /// Asks one command; the parts of a list are put on lines.
    ///
    /// # Panics
    /// Where it doesn't answer, or refuses.
    #[must_use]
    pub fn ask(&self, words: &[&str]) -> String {
        let reply = self.try_ask(words);
        reply.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Like [`Self::ask`], where the server may be gone or refuse.
    ///
    /// # Errors
    /// Where it doesn't answer, or refuses.
    pub fn try_ask(&self, words: &[&str]) -> std::io::Result<String> {
        let stream = TcpStream::connect(self.address())?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        (&stream).write_all(request.as_bytes())?;
        read_reply(&mut BufReader::new(&stream))
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.process.kill();
        // Left-over files are no reason to fail a test.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn run(program: &Path, port: u16, folder: &Path, arguments: &Vec<String>) -> Private {
    let mut command = Command::new(program);
    command
        .arg(folder.join(SETTINGS))
        .args(["--bind", "127.0.0.1"]);
    command.args(["--port", &port.to_string(), "--save", ""]);
    command.arg("--dir").arg(folder).args(arguments);
    Private::start(&mut command)
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
