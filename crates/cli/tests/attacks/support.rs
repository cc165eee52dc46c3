//! A service that reports the caller it sees, the program in front of it, and a client that sends
//! raw bytes.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use semel_testkit::private::{free_port, new_folder};

/// A response, or a request as the service sees it: first line, header lines in lower case, body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    pub(crate) first: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Message {
    /// Reads a message from a connection; `None` if the connection ends first.
    pub(crate) fn read(stream: &TcpStream) -> Option<Self> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        let mut next = |reader: &mut BufReader<&TcpStream>| {
            line.clear();
            let read = reader.read_line(&mut line).ok()?;
            (read > 0).then(|| line.trim_end().to_owned())
        };
        let mut message = Self {
            first: next(&mut reader)?,
            ..Self::default()
        };
        while let Some((name, value)) = next(&mut reader)?.split_once(':') {
            let value = value.trim().to_owned();
            message.headers.push((name.to_ascii_lowercase(), value));
        }
        let length = message.header("content-length");
        let length = length.and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        message.body = String::from_utf8_lossy(&body).into_owned();
        Some(message)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(known, _)| known == name)?;
        Some(&found.1)
    }

    /// The status of a response.
    pub(crate) fn status(&self) -> u16 {
        let status = self.first.split(' ').nth(1);
        status.and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed").is_some()
    }
}

/// A service with one thread per connection. It counts its runs, and echoes the request.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    runs: Arc<AtomicUsize>,
}

impl Service {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let runs = Arc::clone(&counted);
                std::thread::spawn(move || {
                    while let Some(request) = Message::read(&stream) {
                        let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
                        if (&stream).write_all(&answer(&request, run)).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, runs }
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

/// Under `/app`, a request without a cookie is redirected to the sign-in page.
fn answer(request: &Message, run: usize) -> Vec<u8> {
    let path = request.first.split(' ').nth(1).unwrap_or_default();
    let must_sign_in = path.starts_with("/app/") && request.header("cookie").is_none();
    let (status, head) = match must_sign_in {
        true => ("302 Found", "Location: /login\r\n"),
        false => ("200 OK", "Content-Type: application/json\r\n"),
    };
    let mut said = serde_json::json!({"run": run, "path": path});
    for (name, value) in &request.headers {
        said[name] = value.as_str().into();
    }
    // An MCP response, if the request is JSON-RPC.
    let asked: serde_json::Value = serde_json::from_str(&request.body).unwrap_or_default();
    let body = match asked.get("jsonrpc") {
        Some(_) => {
            serde_json::json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": [], "said": said}})
        }
        None => said,
    };
    let body = body.to_string();
    format!(
        "HTTP/1.1 {status}\r\n{head}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The running program, which ends when it is dropped.
pub(crate) struct Program {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn local() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

/// The program without the settings of this environment.
pub(crate) fn semel() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SEMEL_")) {
        command.env_remove(name);
    }
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// A sidecar on loopback in front of `upstream`, with further settings.
pub(crate) fn sidecar(upstream: SocketAddr, settings: &str) -> Program {
    let (address, admin) = (local(), local());
    let file = new_folder("attacks").join("semel.toml");
    let ends = format!(
        "store.url = \"memory://\"\nupstream.urls = [\"http://{upstream}\"]\nlistener.address = \"{address}\"\nadmin.address = \"{admin}\"\n"
    );
    std::fs::write(&file, ends + settings).expect("a file");
    let mut command = semel();
    command.arg("serve").arg("--config").arg(file);
    started(command, address, admin)
}

/// A gateway on loopback in front of a server at `/mcp`, with further flags.
pub(crate) fn gateway(upstream: SocketAddr, flags: &[&str]) -> Program {
    let address = local();
    let mut command = semel();
    command.args(["mcp", "--store", "memory://", "--upstream"]);
    command.arg(format!("http://{upstream}/mcp"));
    command.args(["--listen", &address.to_string()]).args(flags);
    started(command, address, address)
}

#[expect(clippy::disallowed_methods, reason = "real processes run on real time")]
fn started(mut command: Command, address: SocketAddr, admin: SocketAddr) -> Program {
    let child = command.spawn().expect("the program starts");
    let mut program = Program {
        child,
        address,
        admin,
    };
    for _ in 0..3000 {
        if [address, admin]
            .iter()
            .all(|end| TcpStream::connect(end).is_ok())
        {
            return program;
        }
        let ended = program.child.try_wait().expect("a child of ours");
        assert!(ended.is_none(), "it ended at its start: {ended:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it never listens");
}

/// Sends one raw request on its own connection.
pub(crate) fn send(to: SocketAddr, line: &str, headers: &[(&str, &str)], body: &str) -> Message {
    let mut head = format!(
        "{line} HTTP/1.1\r\nHost: {to}\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    let mut stream = TcpStream::connect(to).expect("a connection");
    let patience = Some(Duration::from_secs(30));
    stream.set_read_timeout(patience).expect("a connection");
    let request = format!("{head}\r\n{body}");
    stream.write_all(request.as_bytes()).expect("a connection");
    Message::read(&stream).expect("an answer")
}

pub(crate) const JSON: (&str, &str) = ("Content-Type", "application/json");

/// Sends a JSON request with a key.
pub(crate) fn post(
    to: SocketAddr,
    path: &str,
    key: &str,
    more: &[(&str, &str)],
    body: &str,
) -> Message {
    let mut headers = vec![JSON, ("Idempotency-Key", key)];
    headers.extend(more);
    send(to, &format!("POST {path}"), &headers, body)
}
