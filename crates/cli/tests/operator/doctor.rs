//! `semel doctor` reports problems with their fixes and an exit code.

use axum::Router;
use axum::http::{HeaderName, header};
use axum::routing::any;
use semel::{Secret, Semel};
use semel_testkit::private::{RedisServer, new_folder};
use serde_json::Value;

use crate::support::{CommandResult, Sidecar, env, semel};

fn verdict<'a>(report: &'a Value, about: &str, check: &str) -> &'a str {
    let findings = report["findings"].as_array().expect("findings");
    let found = findings
        .iter()
        .find(|finding| finding["about"] == about && finding["check"] == check);
    let found = found.unwrap_or_else(|| panic!("no {about} {check} in {report:#}"));
    if found["verdict"] != "good" {
        assert!(
            found["fix"].as_str().is_some_and(|fix| !fix.is_empty()),
            "{found}"
        );
    }
    found["verdict"].as_str().expect("a verdict")
}

fn report(ended: &CommandResult) -> Value {
    serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn healthy_stores_are_said_to_be_so() {
    for (store, check) in [
        (env("SEMEL_TEST_REDIS_URL"), "eviction"),
        (env("SEMEL_TEST_POSTGRES_URL"), "indexes"),
        (env("SEMEL_TEST_MARIADB_URL"), "table"),
        (
            format!("sqlite://{}/keys.db", new_folder("doctor").display()),
            "permissions",
        ),
    ] {
        let ended = semel(&["doctor", "--json", "--store", &store]).await;
        assert_eq!(ended.code, 0, "{ended:?}");
        let report = report(&ended);
        assert_eq!(verdict(&report, "store", check), "good");
        assert_eq!(verdict(&report, "store", "clock"), "good");
        assert_eq!(report["healthy"], true);
        let table = semel(&["doctor", "--store", &store]).await.good();
        assert!(
            table.contains("VERDICT") && table.contains("0 broken"),
            "{table}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn doctor_reports_an_unfit_or_unreachable_store() {
    let evicting =
        RedisServer::start(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]).await;
    let ended = semel(&["doctor", "--json", "--store", &evicting.url()]).await;
    assert_eq!(ended.code, 12, "{ended:?}");
    assert!(ended.out.contains("noeviction"), "{ended:?}");
    let away = semel(&["doctor", "--store", "postgres://u:hush@127.0.0.1:1/d"]).await;
    assert_eq!(away.code, 12, "{away:?}");
    assert!(
        away.out.contains("1 broken") && !away.out.contains("hush"),
        "{away:?}"
    );
    let nothing = semel(&["doctor", "--json"]).await;
    assert_eq!(nothing.code, 12);
    assert_eq!(verdict(&report(&nothing), "store", "open"), "broken");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_checks_service_browsers_and_sidecar() {
    let sidecar = Sidecar::start("memory://", "").await;
    let file = sidecar.folder.join("semel.toml");
    let file = file.to_str().expect("as set up");
    let ended = semel(&["doctor", "--json", "--config", file]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    let seen = report(&ended);
    assert_eq!(verdict(&seen, "service", "upstream"), "good");
    assert_eq!(verdict(&seen, "service", "CORS"), "note");
    assert_eq!(verdict(&seen, "sidecar", "ready"), "good");

    let allow = async |names: Option<&'static str>| {
        let answer = move || async move {
            let mut headers = vec![(header::ACCESS_CONTROL_ALLOW_ORIGIN, "*")];
            headers.extend(names.map(|names| (header::ACCESS_CONTROL_ALLOW_HEADERS, names)));
            axum::response::AppendHeaders::<Vec<(HeaderName, &str)>>(headers)
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a free port");
        let address = listener.local_addr().expect("an address");
        let router = Router::new().fallback(any(answer));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let upstream = format!("http://{address}");
        let words = [
            "doctor",
            "--json",
            "--store",
            "memory://",
            "--upstream",
            &upstream,
            "--listen",
            "127.0.0.1:1",
        ];
        let seen = report(&semel(&words).await);
        assert_eq!(verdict(&seen, "sidecar", "ready"), "note");
        verdict(&seen, "service", "CORS").to_owned()
    };
    assert_eq!(allow(None).await, "warning");
    assert_eq!(allow(Some("Content-Type, Idempotency-Key")).await, "good");

    let away = [
        "doctor",
        "--json",
        "--store",
        "memory://",
        "--upstream",
        "http://127.0.0.1:1",
    ];
    let ended = semel(&away).await;
    assert_eq!(ended.code, 12);
    assert_eq!(verdict(&report(&ended), "service", "upstream"), "broken");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_wrong_settings() {
    let file = new_folder("doctor").join("semel.toml");
    std::fs::write(&file, "[stoer]\nurl = \"memory://\"\n").expect("as set up");
    let ended = semel(&[
        "doctor",
        "--json",
        "--config",
        file.to_str().expect("as set up"),
    ])
    .await;
    assert_eq!(ended.code, 12);
    let seen = report(&ended);
    assert_eq!(verdict(&seen, "settings", "settings"), "broken");
    assert_eq!(
        verdict(&seen, "store", "open"),
        "note",
        "what could not be looked at is said"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_does_not_bind_a_new_store_to_a_secret() {
    let folder = new_folder("doctor-secret");
    let store = format!("sqlite://{}/keys.db", folder.display());
    semel(&["doctor", "--store", &store]).await.good();
    semel(&["keys", "list", "--store", &store]).await.good();

    let secret = folder.join("secret");
    std::fs::write(&secret, [7; 32]).expect("as set up");
    let node = Semel::builder().secret(Secret::new(1, &[7; 32]).expect("a secret"));
    drop(
        node.open(&store)
            .await
            .expect("the first secret of this store"),
    );

    let file = folder.join("semel.toml");
    let settings = format!(
        "[upstream]\nurls = [\"http://127.0.0.1:1\"]\n[store]\nurl = \"{store}\"\nsecret_file = \"{}\"",
        secret.display()
    );
    std::fs::write(&file, settings).expect("as set up");
    let file = file.to_str().expect("as set up");
    semel(&["keys", "list", "--config", file]).await.good();
    let ended = semel(&["keys", "list", "--store", &store]).await;
    assert!(ended.err.contains("another secret"), "{ended:?}");
    assert!(ended.err.contains("--config FILE"), "{ended:?}");
}
