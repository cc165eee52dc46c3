//! Scopes that take parts of the path.

use axum::Router;
use axum::routing::any;

use crate::support::*;

const INTAKES: &str = r#"
[[routes]]
path = "/api/intakes/{intake}/submit"
scope = "intake:{intake}"
"#;

/// An intake with settings of its own.
const CLOSED: &str = r#"
[[routes]]
path = "/api/intakes/made-later/submit"
scope = "intake:made-later"
mode = "off"

[[routes]]
path = "/api/intakes/brief/submit"
scope = "intake:brief"
retention = "1m"
"#;

async fn counting(runs: &Runs) -> std::net::SocketAddr {
    let runs = runs.clone();
    let handler = move || async move { runs.begin().to_string() };
    service(Router::new().fallback(any(handler))).await
}

#[tokio::test]
async fn the_same_key_in_two_intakes_is_two_keys() {
    let runs = Runs::default();
    let sidecar = Sidecar::new(counting(&runs).await, INTAKES).await;
    let ask = async |intake: &str| {
        let path = format!("/api/intakes/{intake}/submit");
        sidecar.send(post(&path, "k-1", "{}")).await
    };
    for (intake, first) in [("vendor", "1"), ("access", "2"), ("made-yesterday", "3")] {
        assert_eq!(ask(intake).await.text(), first);
        let again = ask(intake).await;
        assert_eq!((again.text(), again.is_replay()), (first, true));
    }
    let refused = ask("a%20b").await;
    assert_eq!(refused.problem(), (400, "request_invalid".to_owned()));
    assert_eq!(runs.count(), 3);
}

#[tokio::test]
async fn an_intake_made_at_run_time_gets_settings_of_its_own_by_a_reload() {
    let runs = Runs::default();
    let upstream = counting(&runs).await;
    let sidecar = Sidecar::new(upstream, INTAKES).await;
    let ask = async |intake: &str| {
        let path = format!("/api/intakes/{intake}/submit");
        sidecar.send(post(&path, "k-1", "{}")).await
    };
    let first = ask("made-later").await;
    assert_eq!((first.text(), first.is_replay()), ("1", false));
    assert!(ask("made-later").await.is_replay());
    let settings = format!("{CLOSED}{INTAKES}");
    let upstream = format!("http://{upstream}");
    write(&sidecar.file, "memory://", &upstream, &settings);
    sidecar.server.reload().expect("good settings");
    for run in ["2", "3"] {
        let answer = ask("made-later").await;
        assert_eq!((answer.text(), answer.is_replay()), (run, false));
    }
    assert_eq!(ask("brief").await.text(), "4");
    let query = semel::core::store::Query::default().with_scope("intake:brief".to_owned());
    let page = sidecar.semel.store().list(&query).await.expect("a listing");
    let retention = page.records[0].1.retention;
    assert_eq!(retention, std::time::Duration::from_secs(60));
    assert!(ask("brief").await.is_replay());
}

#[tokio::test]
async fn a_scope_that_the_path_can_not_fill_is_refused_at_start() {
    let runs = Runs::default();
    let sidecar = Sidecar::new(counting(&runs).await, INTAKES).await;
    let wrong = INTAKES.replace("intake:{intake}", "intake:{id}");
    let upstream = format!("http://{}", sidecar.address);
    write(&sidecar.file, "memory://", &upstream, &wrong);
    let error = sidecar.server.reload().expect_err("no such segment");
    assert!(error.to_string().contains("intake:{id}"), "{error}");
}
