//! The recipes in `examples/sidecar`, with the real things: FastAPI, Express and nginx, unchanged, and the sidecar.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use semel_httpclient::{Answer, Pool};
use semel_testkit::private::{Private, free_port, new_folder};
use semel_tests::{semel, semel_command};
use serde_json::Value;

fn needs(variable: &str) -> PathBuf {
    let value = std::env::var_os(variable);
    let value =
        value.unwrap_or_else(|| panic!("{variable}: see `cargo xtask services up recipes`"));
    PathBuf::from(value)
}

fn example(file: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/sidecar");
    Path::new(folder).join(file)
}

fn local() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

async fn answers(process: &mut Private, url: &str) {
    let client = Pool::new(Duration::from_secs(5));
    let mut pause = tokio::time::interval(Duration::from_millis(50));
    for _ in 0..1200 {
        pause.tick().await;
        assert!(process.runs(), "it ended at its start: {url}");
        if client.get(url).await.is_ok_and(|reply| reply.status == 200) {
            return;
        }
    }
    panic!("it never answers: {url}");
}

async fn fastapi() -> (Private, SocketAddr) {
    let address = local();
    let mut command = Command::new(needs("SEMEL_TEST_PYTHON"));
    command.args([
        "-m",
        "uvicorn",
        "app:app",
        "--port",
        &address.port().to_string(),
    ]);
    command.arg("--app-dir").arg(example("fastapi"));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    let mut process = Private::start(&mut command);
    answers(&mut process, &format!("http://{address}/charges")).await;
    (process, address)
}

async fn express() -> (Private, SocketAddr) {
    let address = local();
    // Modules are looked for from where the program lies.
    let folder = needs("SEMEL_TEST_EXPRESS").join(format!("run-{}", address.port()));
    std::fs::create_dir_all(&folder).expect("a folder beside the modules");
    std::fs::copy(example("express/app.mjs"), folder.join("app.mjs")).expect("the example");
    let mut command = Command::new("node");
    command.arg(folder.join("app.mjs"));
    command.env("PORT", address.port().to_string());
    let mut process = Private::start(&mut command);
    answers(&mut process, &format!("http://{address}/charges")).await;
    std::fs::remove_dir_all(folder).expect("a folder of our own");
    (process, address)
}

/// As the README starts it, with a namespace of the test's own in the Redis that tests share.
async fn sidecar(upstream: SocketAddr, more: &[&str]) -> (Private, SocketAddr) {
    let address = local();
    let redis = std::env::var("SEMEL_TEST_REDIS_URL")
        .expect("SEMEL_TEST_REDIS_URL: see `cargo xtask services up redis`");
    let mut command = semel_command(&semel());
    command.args([
        "serve",
        "--upstream",
        &format!("http://{upstream}"),
        "--store",
        &redis,
    ]);
    command.args(["--listen", &address.to_string()]);
    let environment = format!("recipe-{}-{}", std::process::id(), address.port());
    command.args(["--set", &format!("environment={environment}")]);
    let mut process = Private::start(command.args(more));
    answers(&mut process, &format!("http://{address}/_semel/readyz")).await;
    (process, address)
}

/// nginx with the example's settings, but for the ports.
async fn nginx(to: SocketAddr) -> (Private, SocketAddr) {
    let (folder, address) = (new_folder("nginx"), local());
    let settings = std::fs::read_to_string(example("nginx/nginx.conf")).expect("the example");
    let settings = settings
        .replace("server 127.0.0.1:8080;", &format!("server {to};"))
        .replace("listen 127.0.0.1:8000;", &format!("listen {address};"));
    assert!(settings.contains(&to.to_string()) && settings.contains(&address.to_string()));
    std::fs::write(folder.join("nginx.conf"), settings).expect("a folder of our own");
    let mut command = Command::new(needs("SEMEL_TEST_NGINX"));
    command.arg("-p").arg(&folder).args(["-c", "nginx.conf"]);
    // One process, which ends with the test that started it.
    command.args(["-g", "master_process off;"]);
    let mut process = Private::start(&mut command);
    answers(&mut process, &format!("http://{address}/charges")).await;
    (process, address)
}

async fn charges(address: SocketAddr) -> u64 {
    let client = Pool::new(Duration::from_secs(30));
    let reply = client.get(&format!("http://{address}/charges")).await;
    let said = reply.expect("an answer").json();
    said["charges"].as_u64().expect("a number")
}

/// Sent three times at once and then once more: done once, answered four times alike. → the answer.
async fn made_safe(way: SocketAddr, service: SocketAddr) -> Value {
    let client = Pool::new(Duration::from_secs(30));
    let url = format!("http://{way}/charges");
    let send = || client.post(&url, "order-1", "{\"amount\": 500}".to_owned());
    let (one, two, three) = tokio::join!(send(), send(), send());
    let replies: Vec<Answer> = [one, two, three, send().await]
        .map(|reply| reply.expect("an answer"))
        .into();
    for reply in &replies {
        assert_eq!(
            (reply.status.as_u16(), &reply.body),
            (201, &replies[0].body)
        );
    }
    let replayed = replies.iter().filter(|reply| reply.is_replay()).count();
    assert_eq!(replayed, 3, "{replies:?}");
    assert_eq!(charges(way).await, 1);
    // By itself the service does it every time.
    for _ in 0..2 {
        let direct = format!("http://{service}/charges");
        let reply = client
            .post(&direct, "order-1", "{\"amount\": 500}".to_owned())
            .await;
        assert_eq!(reply.expect("an answer").status, 201);
    }
    assert_eq!(charges(service).await, 3);
    serde_json::from_slice(&replies[0].body).expect("JSON")
}

#[tokio::test]
async fn fastapi_is_made_safe() {
    let (_service, upstream) = fastapi().await;
    let (_sidecar, way) = sidecar(upstream, &[]).await;
    let charge = made_safe(way, upstream).await;
    assert_eq!(
        (&charge["charge"], &charge["amount"]),
        (&1.into(), &500.into())
    );
}

#[tokio::test]
async fn express_is_made_safe() {
    let (_service, upstream) = express().await;
    let (_sidecar, way) = sidecar(upstream, &[]).await;
    let charge = made_safe(way, upstream).await;
    assert_eq!(
        (&charge["charge"], &charge["amount"]),
        (&1.into(), &500.into())
    );
}

#[tokio::test]
async fn behind_nginx_the_service_learns_who_asked_for_what() {
    let (_service, upstream) = fastapi().await;
    let (_sidecar, behind) = sidecar(upstream, &["--set", "listener.trust_forwarded=true"]).await;
    let (_nginx, way) = nginx(behind).await;
    let charge = made_safe(way, upstream).await;
    assert_eq!(charge["host"], "payments.test", "{charge}");
    let client = charge["client"].as_str().unwrap_or_default();
    assert!(client.starts_with("127.0.0.1"), "{charge}");
}
