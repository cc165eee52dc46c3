//! A real Prometheus with the shipped rules scrapes the real program while its store stops and
//! starts.

use std::path::Path;
use std::process::Command;

use semel_testkit::private::{Private, free_port, new_folder};

use super::support::{Rig, get, pause, post};

fn program(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable}: see `cargo xtask services up prometheus`"))
}

fn deploy(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy/prometheus")
        .join(name)
}

#[test]
#[ignore = "needs servers"]
fn each_alert_fires_and_is_silent_where_it_should() {
    for file in ["critical.yaml", "warning.yaml", "recording.yaml"] {
        let mut command = Command::new(program("SEMEL_TEST_PROMTOOL"));
        command
            .args(["test", "rules"])
            .arg(deploy("tests").join(file));
        let output = command.output().expect("promtool");
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
}

/// The shipped rules, with seconds instead of minutes.
fn quick_rules(name: &str) -> String {
    let text = std::fs::read_to_string(deploy(name)).expect("the rules");
    for changed in ["for: 2m", "age_seconds) > 25"] {
        assert!(name != "alerts.yaml" || text.contains(changed), "{changed}");
    }
    text.replace("for: 2m", "for: 2s")
        .replace("age_seconds) > 25", "age_seconds) > 2")
        .replace("interval: 15s", "interval: 1s")
        .replace("[1m]", "[6s]")
        .replace("[5m]", "[30s]")
}

struct Prometheus {
    _process: Private,
    url: String,
}

impl Prometheus {
    fn start(scraped: std::net::SocketAddr) -> Self {
        let (folder, port) = (new_folder("prometheus"), free_port());
        for name in ["recording.yaml", "alerts.yaml"] {
            std::fs::write(folder.join(name), quick_rules(name)).expect("a file");
        }
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [recording.yaml, alerts.yaml]\nscrape_configs:\n  - job_name: semel\n    static_configs: [{{targets: [\"{scraped}\"]}}]\n"
        );
        std::fs::write(folder.join("prometheus.yml"), config).expect("a file");
        let mut command = Command::new(program("SEMEL_TEST_PROMETHEUS"));
        command.arg(format!(
            "--config.file={}",
            folder.join("prometheus.yml").display()
        ));
        command.arg(format!(
            "--storage.tsdb.path={}",
            folder.join("data").display()
        ));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        Self {
            _process: Private::start(&mut command),
            url: format!("http://127.0.0.1:{port}"),
        }
    }

    /// The firing alerts.
    async fn firing(&self) -> Vec<String> {
        let (status, text) = get(&format!("{}/api/v1/alerts", self.url)).await;
        assert_eq!(status, 200, "{text}");
        let answer: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let alerts = answer["data"]["alerts"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        alerts
            .iter()
            .filter(|alert| alert["state"] == "firing")
            .map(|alert| {
                alert["labels"]["alertname"]
                    .as_str()
                    .unwrap_or("")
                    .to_owned()
            })
            .collect()
    }

    async fn value(&self, query: &str) -> Option<f64> {
        let (_, text) = get(&format!("{}/api/v1/query?query={query}", self.url)).await;
        let answer: serde_json::Value = serde_json::from_str(&text).ok()?;
        answer["data"]["result"][0]["value"][1]
            .as_str()?
            .parse()
            .ok()
    }
}

async fn answers(url: &str) {
    let address = url.trim_start_matches("http://");
    for _ in 0..1500 {
        // It listens before it accepts queries.
        let listens = tokio::net::TcpStream::connect(address).await.is_ok();
        if listens && get(&format!("{url}/-/ready")).await.0 == 200 {
            return;
        }
        pause().await;
    }
    panic!("Prometheus is never ready");
}

#[tokio::test]
#[ignore = "needs servers"]
async fn alerts_fire_when_the_store_is_stopped_and_clear_when_it_is_back() {
    let mut rig =
        Rig::start("engine.breaker_first_try = \"3s\"\nengine.breaker_open_for = \"3s\"\n").await;
    let prometheus = Prometheus::start(rig.admin);
    answers(&prometheus.url).await;
    let mut number = 0;
    // Traffic continues throughout.
    let mut until = async |what: &str, so: fn(&[String]) -> bool, rig: &Rig| {
        let mut seen = Vec::new();
        for _ in 0..3000 {
            number += 1;
            rig.post("/", Some(&format!("order-{number:04}")), "{}")
                .await;
            seen = prometheus.firing().await;
            if so(&seen) && prometheus.value("semel_store_up").await.is_some() {
                return;
            }
            pause().await;
        }
        panic!("not {what}: {seen:?}");
    };
    until("silent", <[String]>::is_empty, &rig).await;
    assert_eq!(prometheus.value("semel_store_up").await, Some(1.0));
    rig.store.kill();
    let both = |seen: &[String]| {
        ["SemelStoreUnavailable", "SemelBreakerOpen"]
            .iter()
            .all(|name| seen.iter().any(|one| one == name))
    };
    until("firing", both, &rig).await;
    for counter in [
        "semel_breaker_changes_total%7Bstate=%22open%22%7D",
        "semel_breaker_refusals_total",
    ] {
        let count = prometheus.value(counter).await;
        assert!(count >= Some(1.0), "{counter}: {count:?}");
    }
    rig.store.restart().await;
    until("clear", <[String]>::is_empty, &rig).await;
}

#[tokio::test]
#[ignore = "needs servers"]
async fn an_alert_fires_while_a_lease_is_held() {
    let rig = Rig::start("").await;
    let prometheus = Prometheus::start(rig.admin);
    answers(&prometheus.url).await;
    let address = rig.address;
    let asked = tokio::spawn(post(address, "/slow", Some("slow-0001"), "{}"));
    let is_held = |seen: &[String]| seen.iter().any(|name| name == "SemelLeaseHeld");
    for fires in [true, false] {
        let mut seen = prometheus.firing().await;
        for _ in 0..3000 {
            if is_held(&seen) == fires {
                break;
            }
            pause().await;
            seen = prometheus.firing().await;
        }
        assert_eq!(is_held(&seen), fires, "{seen:?}");
        // It fired before the effect ended.
        assert_eq!(asked.is_finished(), !fires);
        if fires {
            rig.gate.notify_one();
            while !asked.is_finished() {
                pause().await;
            }
        }
    }
    assert_eq!(asked.await.unwrap().0, 200);
}
