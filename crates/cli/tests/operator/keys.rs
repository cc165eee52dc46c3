//! `semel keys`, `tail`, `gc`: over the network and on the store itself.

use semel_testkit::private::RedisServer;
use serde_json::Value;

use crate::support::{Sidecar, env, semel, service};

fn ids(listing: &Value) -> Vec<String> {
    let records = listing["records"].as_array().expect("records");
    let mut ids: Vec<String> = records
        .iter()
        .map(|record| record["id"].as_str().expect("an id").to_owned())
        .collect();
    ids.sort();
    ids
}

/// A charge and its replay, and one whose answer was lost. The id of the latter.
async fn traffic(sidecar: &Sidecar) -> String {
    assert_eq!(sidecar.send("/charges", "ord-1-abcdef").await.0, 201);
    assert!(sidecar.send("/charges", "ord-1-abcdef").await.1, "a replay");
    assert_eq!(sidecar.send("/lost", "ord-2-abcdef").await.0, 504);
    let admin = [
        "keys",
        "list",
        "--in-doubt",
        "--json",
        "--admin",
        &sidecar.admin,
    ];
    let mut asked = admin.to_vec();
    asked.extend(["--environment", &sidecar.environment]);
    let doubts = semel(&asked).await.json();
    let ids = ids(&doubts);
    assert_eq!(ids.len(), 1, "{doubts}");
    assert_eq!(doubts["records"][0]["state"], "in_doubt");
    ids[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doubt_is_found_looked_at_and_resolved_over_the_network() {
    let sidecar = Sidecar::start("memory://", "").await;
    let id = traffic(&sidecar).await;
    let admin = ["--admin", sidecar.admin.as_str()];
    let with = |words: &[&str]| -> Vec<String> {
        words
            .iter()
            .chain(&admin)
            .map(|word| (*word).to_owned())
            .collect()
    };
    let run = async |words: &[&str]| {
        let words = with(words);
        semel(&words.iter().map(String::as_str).collect::<Vec<_>>()).await
    };

    let table = run(&["keys", "list"]).await.good();
    assert!(
        table.contains("in doubt") && table.contains("completed"),
        "{table}"
    );
    assert!(
        table.contains(&id) && table.contains("2 records"),
        "{table}"
    );
    assert!(
        !table.contains("ord-1-abcdef") && !table.contains('\u{1b}'),
        "{table}"
    );

    let shown = run(&["keys", "inspect", &id[..12]]).await.good();
    assert!(
        shown.contains(&id) && shown.contains("idempotency.key.created"),
        "{shown}"
    );
    assert!(shown.contains("semel keys resolve"), "{shown}");

    let answer = sidecar.file("answer.json", "{\"charge\": \"ch_1\"}\n");
    let resolve = [
        "keys",
        "resolve",
        &id,
        "--complete",
        "--status",
        "201",
        "--body-file",
        &answer,
        "--reason",
        "the bank has it",
    ];
    run(&resolve).await.failed(9, "--yes");
    assert_eq!(
        sidecar.send("/lost", "ord-2-abcdef").await.0,
        409,
        "still in doubt"
    );
    let mut stale = resolve.to_vec();
    stale.extend(["--yes", "--fence", "1"]);
    run(&stale).await.failed(9, "nothing was changed");
    let mut sure = resolve.to_vec();
    sure.push("--yes");
    assert!(
        run(&sure)
            .await
            .good()
            .contains("was in doubt, is completed")
    );
    let (status, replayed, body) = sidecar.send("/lost", "ord-2-abcdef").await;
    assert_eq!(
        (status, replayed, body.as_str()),
        (201, true, "{\"charge\": \"ch_1\"}\n")
    );

    let history = run(&["keys", "inspect", &id, "--json"]).await.json();
    let by = history["history"]["entries"]
        .as_array()
        .expect("entries")
        .iter();
    let by: Vec<_> = by
        .filter(|entry| entry["type"] == "admin.resolve")
        .collect();
    assert!(
        by[0]["actor"].as_str().expect("an actor").contains('@'),
        "{by:?}"
    );
    assert_eq!(by[0]["detail"]["reason"], "the bank has it");
}

#[tokio::test(flavor = "multi_thread")]
async fn reset_tail_gc_and_erase_say_what_they_did() {
    let sidecar = Sidecar::start("memory://", "").await;
    let id = traffic(&sidecar).await;
    let admin = sidecar.admin.as_str();
    let tail = semel(&[
        "tail", "--admin", admin, "--recent", "100", "--limit", "3", "--json",
    ])
    .await
    .good();
    let kinds: Vec<Value> = tail
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(kinds.len(), 3, "{tail}");
    let replays = [
        "tail",
        "--admin",
        admin,
        "--recent",
        "100",
        "--limit",
        "1",
        "--kind",
        "idempotency.replay",
        "--scope",
        "http",
    ];
    let line = semel(&replays).await.good();
    assert!(
        line.contains("idempotency.replay") && line.contains("http"),
        "{line}"
    );

    let unlock = [
        "keys", "unlock", &id, "--reason", "r", "--yes", "--admin", admin,
    ];
    semel(&unlock).await.failed(9, "nothing was changed");
    let reset = [
        "keys", "reset", &id, "--reason", "r", "--yes", "--json", "--admin", admin,
    ];
    assert_eq!(semel(&reset).await.json()["before"], "in_doubt");
    semel(&["keys", "inspect", &id, "--admin", admin])
        .await
        .failed(8, "no such record");
    semel(&["keys", "inspect", &id[..10], "--admin", admin])
        .await
        .failed(8, "begins with");

    assert_eq!(
        semel(&["gc", "--dry-run", "--json", "--admin", admin])
            .await
            .json()["expired"],
        0
    );
    assert!(
        semel(&["gc", "--admin", admin])
            .await
            .good()
            .contains("no record has expired")
    );
    let erase = [
        "keys", "erase", "nobody", "--reason", "asked", "--yes", "--json", "--admin", admin,
    ];
    assert_eq!(semel(&erase).await.json()["entries"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_itself_shows_the_same_as_the_sidecar_and_is_mended_without_it() {
    // Listing a Redis that others fill takes as long as they fill it.
    let redis = RedisServer::start(&[]).await;
    for store in [redis.url(), env("SEMEL_TEST_POSTGRES_URL")] {
        let mut sidecar = Sidecar::start(&store, "").await;
        let id = traffic(&sidecar).await;
        let environment = sidecar.environment.clone();
        let list = [
            "keys",
            "list",
            "--json",
            "--limit",
            "1000",
            "--environment",
            &environment,
        ];
        let mut remote = list.to_vec();
        remote.extend(["--admin", &sidecar.admin]);
        let mut local = list.to_vec();
        local.extend(["--store", &store]);
        let (remote, local) = (semel(&remote).await.json(), semel(&local).await.json());
        assert_eq!(ids(&remote).len(), 2, "{remote}");
        assert_eq!(ids(&remote), ids(&local));
        sidecar.kill();

        let on_store = ["--store", &store, "--environment", &environment];
        let mut by_key = vec![
            "keys",
            "inspect",
            "--key",
            "ord-2-abcdef",
            "--scope",
            "http",
            "--json",
        ];
        by_key.extend(on_store);
        let found = semel(&by_key).await.json();
        assert_eq!(found["record"]["id"], id.as_str());
        let audit = sidecar.folder.join("audit.jsonl");
        let audit = audit.to_str().expect("as set up");
        let mut release = vec![
            "keys",
            "resolve",
            &id,
            "--release",
            "--reason",
            "none",
            "--actor",
            "ann",
            "--yes",
        ];
        release.extend(on_store);
        let noted = semel(&release).await;
        assert!(noted.err.contains("written down nowhere"), "{noted:?}");
        assert!(noted.good().contains("is released"));
        let mut reset = vec![
            "keys", "reset", &id, "--reason", "none", "--actor", "ann", "--yes", "--audit", audit,
        ];
        reset.extend(on_store);
        semel(&reset).await.good();
        let kept = std::fs::read_to_string(audit).expect("a trail");
        assert!(
            kept.contains("admin.reset.begun") && kept.contains("\"ann\""),
            "{kept}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_can_not_be_talked_to_is_told_apart() {
    semel(&["keys", "list"]).await.failed(3, "fix: --admin");
    semel(&["keys", "list", "--admin", "http://127.0.0.1:1"])
        .await
        .failed(10, "can't be reached");
    semel(&["keys", "list", "--store", "redis://127.0.0.1:1"])
        .await
        .failed(4, "fix: start it");
    semel(&["tail", "--store", "memory://"])
        .await
        .failed(3, "running sidecar");
    semel(&["top", "--admin", "http://127.0.0.1:1"])
        .await
        .failed(9, "needs a terminal");
    let stranger = format!("http://{}", service().await);
    semel(&["keys", "list", "--admin", &stranger])
        .await
        .failed(10, "not as the admin API does");
    assert_eq!(semel(&["keys", "list", "--state", "lost"]).await.code, 2);
    assert_eq!(
        semel(&["keys", "resolve", "aabbccdd", "--reason", "r"])
            .await
            .code,
        2,
        "an outcome is asked for"
    );

    let folder = semel_testkit::private::new_folder("token");
    let token = folder.join("token");
    std::fs::write(&token, "0123456789abcdef0123\n").expect("as set up");
    let token = token.to_str().expect("as set up");
    let sidecar = Sidecar::start("memory://", &format!("token_file = \"{token}\"\n")).await;
    let list = ["keys", "list", "--admin", sidecar.admin.as_str()];
    semel(&list).await.failed(11, "--token-file");
    let mut with_token = list.to_vec();
    with_token.extend(["--token-file", token]);
    assert!(semel(&with_token).await.good().contains("no record fits"));
    let file = sidecar.folder.join("semel.toml");
    let by_config = semel(&[
        "keys",
        "list",
        "--config",
        file.to_str().expect("as set up"),
    ])
    .await;
    assert!(
        by_config.good().contains("no record fits"),
        "the settings say where and with which token"
    );
}
