//! Programs that a test starts: where they are, and when they answer.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use semel_httpclient::Pool;
use semel_testkit::private::{Private, free_port};

/// What `cargo xtask services up recipes` says of a program.
pub(crate) fn needs(variable: &str) -> PathBuf {
    let value = std::env::var_os(variable);
    let value =
        value.unwrap_or_else(|| panic!("{variable}: see `cargo xtask services up recipes`"));
    PathBuf::from(value)
}

/// A file of `examples/sidecar`.
pub(crate) fn example(file: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/sidecar");
    Path::new(folder).join(file)
}

pub(crate) fn local() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

pub(crate) fn redis_url() -> String {
    std::env::var("SEMEL_TEST_REDIS_URL")
        .expect("SEMEL_TEST_REDIS_URL: see `cargo xtask services up redis`")
}

/// Asks again and again, until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let mut pause = tokio::time::interval(Duration::from_millis(25));
    for _ in 0..2400 {
        pause.tick().await;
        if is_so().await {
            return;
        }
    }
    panic!("it never happened: {what}");
}

/// Waits until a process answers a GET of `url` with 200.
pub(crate) async fn answers(process: &mut Private, url: &str) {
    let client = Pool::new(Duration::from_secs(5));
    until(&format!("200 from {url}"), async || {
        assert!(process.runs(), "it ended at its start: {url}");
        client.get(url).await.is_ok_and(|reply| reply.status == 200)
    })
    .await;
}
