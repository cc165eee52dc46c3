//! Messages for beginners, and the commands about settings.

use semel_testkit::private::free_port;

use crate::support::run_semel;

#[tokio::test]
async fn beginners_mistakes_have_helpful_errors() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let up = ["--upstream", "http://127.0.0.1:3000"];
    let cases: [(&[&str], i32, &str); 7] = [
        (&["serve"], 3, "--upstream http://127.0.0.1:3000"),
        (
            &[
                "serve",
                "--upstream",
                "localhost:3000",
                "--store",
                "memory://",
            ],
            3,
            "a URL with http://",
        ),
        (
            &["serve", up[0], up[1], "--store", &nobody],
            4,
            "start the store, or set another one",
        ),
        (
            &[
                "serve",
                up[0],
                up[1],
                "--store",
                "memory://",
                "--listen",
                &address,
            ],
            5,
            "another process listens there",
        ),
        (
            &[
                "serve",
                up[0],
                up[1],
                "--store",
                "memory://",
                "--set",
                "listener.adress=x",
            ],
            3,
            "did you mean listener.address?",
        ),
        (
            &["serve", "--config", "no-such-file.toml"],
            3,
            "can't be read",
        ),
        (&["serve", "--upstreem", "x"], 2, "--upstream"),
    ];
    for (arguments, code, words) in cases {
        let (ended, _, said) = run_semel(arguments).await;
        assert_eq!(ended, Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}

#[tokio::test]
async fn example_settings_are_valid() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/semel.toml");
    let (code, said, wrong) = run_semel(&["config", "check", "--config", example]).await;
    assert_eq!((code, wrong.as_str()), (Some(0), ""), "{said}");
    let (_, shown, _) = run_semel(&["config", "show", "--config", example]).await;
    assert!(
        shown.contains("routes[0].crash") && shown.contains("\"hold\"  # file, line"),
        "{shown}"
    );
}

#[tokio::test]
async fn rules_of_keys_are_printed_as_openapi() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/semel.toml");
    let (code, printed, _) = run_semel(&["config", "openapi", "--config", example]).await;
    assert_eq!(code, Some(0));
    let document: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    assert!(!paths.is_empty(), "{printed}");
    let shared = &document["components"]["parameters"]["IdempotencyKey"];
    assert_eq!(shared["name"], "Idempotency-Key");
}

#[tokio::test]
async fn settings_are_checked_shown_and_explained() {
    let ends = [
        "--upstream",
        "http://127.0.0.1:1",
        "--store",
        "redis://me:hunter2@127.0.0.1",
    ];
    let (code, shown, _) = run_semel(&[&["config", "show", "--all"], &ends[..]].concat()).await;
    assert_eq!(code, Some(0));
    assert!(
        shown.contains("flag, --store") && !shown.contains("hunter2"),
        "{shown}"
    );
    let (_, json, _) = run_semel(&[&["config", "show", "--json"], &ends[..]].concat()).await;
    let rows: serde_json::Value = serde_json::from_str(&json).unwrap();
    let row = rows
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["setting"] == "drain_time")
        .unwrap();
    assert_eq!(
        (&row["value"], &row["from"]),
        (&"30s".into(), &"default".into())
    );
    let (_, text, _) = run_semel(&["config", "explain", "upstream.response_timeout"]).await;
    assert!(
        text.contains("SEMEL_UPSTREAM_RESPONSE_TIMEOUT") && text.contains("default: \"1m\""),
        "{text}"
    );
    let (code, _, wrong) = run_semel(&["config", "explain", "upstream.response_timeot"]).await;
    assert_eq!(code, Some(3));
    assert!(
        wrong.contains("did you mean upstream.response_timeout?"),
        "{wrong}"
    );
}
