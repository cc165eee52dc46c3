//! Servers that would let two callers win are refused at start.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use semel_stores::object::ObjectStore;
use semel_testkit::private::{Private, free_port, new_folder};

use super::support::{clock, variable};

/// Starts a server on a folder with one bucket in it, and waits until it listens.
async fn start(program: &str, arguments: &[&str], port: u16, folder: &Path) -> Private {
    std::fs::create_dir_all(folder.join("bucket")).expect("a folder of our own");
    let mut command = Command::new(program);
    let mut server = Private::start(command.args(arguments).arg(folder));
    for _ in 0..500 {
        assert!(server.runs(), "the server ended at its start");
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return server;
        }
        clock().sleep(Duration::from_millis(20)).await;
    }
    panic!("the server doesn't listen");
}

async fn refusal(port: u16) -> String {
    let url = format!("s3://semel:semel-secret@bucket?endpoint=http://127.0.0.1:{port}");
    let error = ObjectStore::open(&url, clock()).await.expect_err("refused");
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    cause.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ignores_conditions_is_refused() {
    let (port, folder) = (free_port(), new_folder("rclone"));
    let address = format!("127.0.0.1:{port}");
    let arguments = [
        "serve",
        "s3",
        "--addr",
        &address,
        "--auth-key",
        "semel,semel-secret",
    ];
    let rclone = variable("SEMEL_TEST_RCLONE");
    let _server = start(&rclone, &arguments, port, &folder).await;
    let said = refusal(port).await;
    assert!(said.contains("ignores If-None-Match"), "{said}");
}

#[tokio::test]
async fn a_wrong_secret_is_told_with_what_to_do() {
    let url = variable("SEMEL_TEST_S3_URL").replace(":semel-secret@", ":hunter2@");
    let error = ObjectStore::open(&url, clock()).await.expect_err("refused");
    let said = std::error::Error::source(&error).map(ToString::to_string);
    let said = said.unwrap_or_default();
    assert!(
        said.contains("403 SignatureDoesNotMatch: the access key or its secret"),
        "{said}"
    );
    assert!(!said.contains("hunter2"), "{said}");
}
