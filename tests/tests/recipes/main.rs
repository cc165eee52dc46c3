//! The recipes in `examples/sidecar`, with the real programs.
//!
//! | module | is |
//! |---|---|
//! | here | FastAPI and Express behind the sidecar, unchanged |
//! | `fronts` | Envoy, Traefik, Caddy, HAProxy and nginx: how each is started, and where it differs |
//! | `behaviours` | what must hold behind every one of them |
//! | `rig` | a proxy, two sidecars behind it, and a service behind each |
//! | `service` | the service, which counts and waits at gates |
//! | `page` | the table in `docs/recipes.md` lists what is tested |
//! | `programs` | where programs are, and when they answer |

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

mod behaviours;
mod fronts;
mod page;
mod programs;
mod rig;
mod service;

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use semel_httpclient::{Answer, Pool};
use semel_testkit::private::Private;
use semel_tests::{semel, semel_command};
use serde_json::Value;

use crate::fronts::NGINX;
use crate::programs::{answers, example, local, needs, redis_url};

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
    let mut command = semel_command(&semel());
    command.args([
        "serve",
        "--upstream",
        &format!("http://{upstream}"),
        "--store",
        &redis_url(),
    ]);
    command.args(["--listen", &address.to_string()]);
    let environment = format!("recipe-{}-{}", std::process::id(), address.port());
    command.args(["--set", &format!("environment={environment}")]);
    let mut process = Private::start(command.args(more));
    answers(&mut process, &format!("http://{address}/_semel/readyz")).await;
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
    let nginx = NGINX.start([behind, behind]).await;
    let way = nginx.address;
    let charge = made_safe(way, upstream).await;
    assert_eq!(charge["host"], "payments.test", "{charge}");
    let client = charge["client"].as_str().unwrap_or_default();
    assert!(client.starts_with("127.0.0.1"), "{charge}");
}
