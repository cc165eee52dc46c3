//! `semel bench` and `semel plan`.

use serde_json::Value;

use crate::support::{env, semel};

fn figure(plan: &Value, name: &str) -> f64 {
    let figures = plan["figures"].as_array().expect("figures");
    let found = figures.iter().find(|figure| figure["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {plan:#}"))["value"]
        .as_f64()
        .expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn plan_uses_the_figures_of_bench() {
    let file = semel_testkit::private::new_folder("bench").join("mine.json");
    let file = file.to_str().expect("as set up");
    for (kind, store) in [
        ("redis", env("SEMEL_TEST_REDIS_URL")),
        ("postgres", env("SEMEL_TEST_POSTGRES_URL")),
    ] {
        let bench = [
            "bench",
            "--store",
            &store,
            "--seconds",
            "2",
            "--concurrency",
            "8",
            "--body",
            "1KiB",
            "--out",
            file,
        ];
        let text = semel(&bench).await.good();
        assert!(text.contains("claimed and settled"), "{text}");
        let plan = [
            "plan",
            "--rps",
            "1000",
            "--ttl",
            "1h",
            "--body",
            "1KiB",
            "--repeats",
            "10",
            "--store",
            kind,
            "--json",
            "--constants",
            file,
        ];
        let plan = semel(&plan).await.json();
        let constants = &plan["constants"];
        let of = |name: &str| {
            constants[name]
                .as_f64()
                .unwrap_or_else(|| panic!("{name}: {constants}"))
        };
        assert!((figure(&plan, "records") - 900.0 * 3600.0).abs() < 0.5);
        let each = of("bytes_fixed") + of("bytes_per_body_byte") * 1024.0;
        assert!((figure(&plan, "each") - each).abs() < 0.5);
        let work = 900.0 / of("fresh_per_second") + 100.0 / of("replays_per_second");
        assert!((figure(&plan, "primaries by work") - (work / 0.6).ceil()).abs() < 0.5);
        assert!(figure(&plan, "primaries") >= figure(&plan, "primaries by room"));
    }
    // Both figures are in the file: the second run kept the first.
    let kept: Value =
        serde_json::from_str(&std::fs::read_to_string(file).expect("a file")).expect("JSON");
    assert!(kept["redis"].is_object() && kept["postgres"].is_object());
    let listed = [
        "keys",
        "list",
        "--json",
        "--store",
        &env("SEMEL_TEST_POSTGRES_URL"),
        "--environment",
        "semel-bench",
    ];
    let left = semel(&listed).await.json();
    assert_eq!(
        left["records"].as_array().map(Vec::len),
        Some(0),
        "a bench leaves nothing behind"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_shows_its_arithmetic_and_sources() {
    let text = semel(&["plan", "--rps", "5000", "--ttl", "24h", "--body", "2KiB"])
        .await
        .good();
    assert!(
        text.contains("4,750 fresh/s × 86,400 s") && text.contains("410,400,000"),
        "{text}"
    );
    assert!(text.contains("measured on Redis"), "{text}");
    let text = semel(&["plan", "--rps", "10", "--store", "postgres"])
        .await
        .good();
    assert!(
        text.contains("commits/s") && text.contains("PostgreSQL"),
        "{text}"
    );
    semel(&["plan", "--rps", "1", "--constants", "/nowhere"])
        .await
        .failed(3, "/nowhere");
    assert_eq!(semel(&["plan", "--rps", "0"]).await.code, 2);
}
