//! The shipped files name only metrics that exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use semel_server::telemetry::table::{ALL, MAPPINGS, MetricKind};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every metric name in a text: `semel_…` and `semel:…`.
fn names(text: &str) -> BTreeSet<String> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    text.split(|c| !part(c))
        .filter(|word| word.starts_with("semel_") || word.starts_with("semel:"))
        .map(str::to_owned)
        .collect()
}

fn recorded() -> BTreeSet<String> {
    let rules = read("deploy/prometheus/recording.yaml");
    let named = |line: &str| line.trim().strip_prefix("- record: ").map(str::to_owned);
    rules.lines().filter_map(named).collect()
}

fn is_known(name: &str) -> bool {
    let is_metric = ALL.iter().any(|metric| {
        let parts: &[&str] = match metric.kind {
            MetricKind::Histogram => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        parts
            .iter()
            .any(|part| name == format!("{}{part}", metric.name))
    });
    is_metric || recorded().contains(name)
}

#[test]
fn dashboard_and_rules_query_existing_metrics() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("deploy/grafana/semel.json")).unwrap();
    let mut queries = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().unwrap();
            let asked = names(query);
            assert!(!asked.is_empty(), "{query}");
            assert!(
                asked.iter().all(|name| is_known(name)),
                "{}: {query}",
                panel["title"]
            );
            queries += 1;
        }
    }
    assert!(queries > 10, "{queries}");
    for file in ["alerts.yaml", "recording.yaml"] {
        for name in names(&read(&format!("deploy/prometheus/{file}"))) {
            assert!(is_known(&name), "{file}: {name}");
        }
    }
    assert!(!is_known("semel_no_such_thing_total"));
}

#[test]
fn documented_metrics_exist() {
    let recorded = recorded();
    for mapping in MAPPINGS {
        let is_metric = ALL.iter().any(|metric| metric.name == mapping.ours);
        assert!(
            is_metric || recorded.contains(mapping.ours),
            "{}: {}",
            mapping.theirs,
            mapping.ours
        );
    }
    assert_eq!(MAPPINGS.len(), 27);
}

#[test]
fn alerts_and_runbooks_match() {
    let alerts = read("deploy/prometheus/alerts.yaml");
    let critical = alerts.split("- name: semel-warning").next().unwrap();
    let named: BTreeSet<String> = critical
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: ").map(str::to_owned))
        .collect();
    let written: BTreeSet<String> = std::fs::read_dir(root().join("docs/runbooks"))
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    assert_eq!(named, written);
    for name in named {
        assert!(
            critical.contains(&format!("runbook: docs/runbooks/{name}.md")),
            "{name}"
        );
        let tests = read("deploy/prometheus/tests/critical.yaml");
        assert!(
            tests.contains(&format!("alertname: {name}")),
            "{name} is not tested"
        );
    }
}
