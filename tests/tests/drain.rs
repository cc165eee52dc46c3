//! SIGTERM: a real server that stops taking requests, ends what runs, and only then ends itself.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};

const REQUEST: &[u8] = b"POST / HTTP/1.1\r\nhost: test\r\nidempotency-key: k\r\n\
    connection: close\r\ncontent-length: 0\r\n\r\n";

struct Server {
    child: Child,
    // Kept open: it must not write into a closed pipe.
    _lines: Lines<BufReader<ChildStdout>>,
    address: SocketAddr,
    folder: PathBuf,
}

impl Server {
    async fn start() -> Self {
        let folder = semel_testkit::private::new_folder("drain");
        let mut command = Command::new(env!("CARGO_BIN_EXE_semel-child"));
        command
            .arg("serve")
            .arg(&folder)
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().expect("a process");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let line = lines.next_line().await.expect("its output");
        let address = line.expect("an address").parse().expect("an address");
        Self {
            child,
            _lines: lines,
            address,
            folder,
        }
    }

    fn has(&self, file: &str) -> bool {
        Path::new(&self.folder).join(file).exists()
    }

    async fn begun(&self) {
        while !self.has("begun") {
            semel::tokio_env()
                .clock
                .sleep(Duration::from_millis(5))
                .await;
        }
    }

    async fn send(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("a server");
        stream.write_all(REQUEST).await.expect("a server");
        stream
    }

    fn terminate(&self) {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        let id = id.and_then(Pid::from_raw).expect("a process");
        kill_process(id, Signal::TERM).expect("it is ours");
    }

    async fn ended_well(mut self) -> bool {
        let ended = tokio::time::timeout(Duration::from_secs(10), self.child.wait()).await;
        let status = ended.expect("in time").expect("a status");
        let finished = status.success() && self.has("ended");
        // Left-over files are no reason to fail a test.
        let _ = std::fs::remove_dir_all(&self.folder);
        finished
    }
}

#[tokio::test]
async fn a_terminated_server_answers_what_it_began() {
    let server = Server::start().await;
    let mut stream = server.send().await;
    server.begun().await;
    server.terminate();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("done"),
        "{answer}"
    );
    assert!(server.ended_well().await);
}

#[tokio::test]
async fn a_terminated_server_ends_what_a_caller_left_behind() {
    let server = Server::start().await;
    let stream = server.send().await;
    server.begun().await;
    drop(stream);
    server.terminate();
    assert!(server.ended_well().await, "the effect was cut off");
}
