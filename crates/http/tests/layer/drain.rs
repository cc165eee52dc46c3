//! SIGTERM: a real process that stops taking requests, ends what runs, and only then ends itself.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use axum::Router;
use axum::routing::post as on_post;
use rustix::process::{Pid, Signal, kill_process};
use semel::Semel;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::support::*;

const FOLDER: &str = "SEMEL_TEST_DRAIN_FOLDER";

/// Not a test: the server that the test starts as a process of its own.
#[tokio::test]
#[ignore = "started by the test below"]
async fn server() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let semel = Semel::open("memory://").await.unwrap();
    let handler = move || async move {
        std::fs::write(folder.join("begun"), "").expect("a folder");
        pause(500).await;
        std::fs::write(folder.join("ended"), "").expect("a folder");
        "done"
    };
    let app = Router::new()
        .route("/", on_post(handler))
        .layer(semel.http());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("\nlistening on {}", listener.local_addr().unwrap());
    let mut term =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
    let stop = async move {
        term.recv().await;
    };
    axum::serve(listener, app)
        .with_graceful_shutdown(stop)
        .await
        .unwrap();
    // Connections are done. What callers left behind may not be.
    semel.idle().await;
}

struct Server {
    child: Child,
    address: std::net::SocketAddr,
    folder: PathBuf,
}

impl Server {
    async fn start(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("semel-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .args(["drain::server", "--exact", "--ignored", "--nocapture"])
            .env(FOLDER, &folder)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a process");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let address = loop {
            let line = lines
                .next_line()
                .await
                .expect("its output")
                .expect("an address");
            if let Some(address) = line.strip_prefix("listening on ") {
                break address.parse().expect("an address");
            }
        };
        // Read on, so that it never writes into a closed pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self {
            child,
            address,
            folder,
        }
    }

    fn has(&self, file: &str) -> bool {
        Path::new(&self.folder).join(file).exists()
    }

    fn terminate(&self) {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        let id = id.and_then(Pid::from_raw).expect("a process");
        kill_process(id, Signal::TERM).expect("a signal");
    }

    async fn ended_well(mut self) -> bool {
        let ended = tokio::time::timeout(Duration::from_secs(10), self.child.wait()).await;
        let status = ended.expect("in time").expect("a status");
        let finished = status.success() && self.has("ended");
        std::fs::remove_dir_all(&self.folder).expect("the folder");
        finished
    }
}

#[tokio::test]
async fn a_terminated_server_answers_what_it_began() {
    let server = Server::start("drain-answered").await;
    let mut client = Client::connect(server.address, Protocol::Http1).await;
    let request = tokio::spawn(async move { client.send(post("/", "k", "{}")).await });
    until("it runs", || server.has("begun")).await;
    server.terminate();
    assert_eq!(request.await.unwrap().text(), "done");
    assert!(server.ended_well().await);
}

#[tokio::test]
async fn a_terminated_server_ends_what_a_caller_left_behind() {
    let server = Server::start("drain-left").await;
    let mut raw = Raw::connect(server.address).await;
    raw.write("POST / HTTP/1.1\r\nhost: test\r\nidempotency-key: k\r\ncontent-length: 0\r\n\r\n")
        .await;
    until("it runs", || server.has("begun")).await;
    drop(raw);
    server.terminate();
    assert!(server.ended_well().await, "the effect was cut off");
}
