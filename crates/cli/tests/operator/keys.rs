//! `semel keys`, `tail`, `gc`: over the network and on the store itself.

use semel_testkit::private::{RedisServer, new_folder};
use serde_json::Value;

use crate::support::{Sidecar, command, env, semel, service};

fn ids(listing: &Value) -> Vec<String> {
    let records = listing["records"].as_array().expect("records");
    let mut ids: Vec<String> = records
        .iter()
        .map(|record| record["id"].as_str().expect("an id").to_owned())
        .collect();
    ids.sort();
    ids
}

/// A charge with a replay, and a charge whose response was lost. Returns the ID of the latter.
async fn traffic(sidecar: &Sidecar) -> String {
    assert_eq!(sidecar.send("/charges", "ord-1-abcdef").await.0, 201);
    assert!(sidecar.send("/charges", "ord-1-abcdef").await.1, "a replay");
    assert_eq!(sidecar.send("/lost", "ord-2-abcdef").await.0, 504);
    let list = format!(
        "keys list --in-doubt --json --environment {}",
        sidecar.environment
    );
    let doubts = sidecar.run(&list).await.json();
    let ids = ids(&doubts);
    assert_eq!(ids.len(), 1, "{doubts}");
    assert_eq!(doubts["records"][0]["state"], "in_doubt");
    ids[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_commands_accept_keys_that_the_settings_allow() {
    let sidecar = Sidecar::start("memory://", "[keys]\nextra = \":/\"\n").await;
    assert_eq!(sidecar.send("/charges", "ord/1").await.0, 201);
    let inspect = format!(
        "keys inspect --key ord/1 --scope http --environment {} --json",
        sidecar.environment
    );
    let shown = sidecar.run(&inspect).await.json();
    assert_eq!(shown["record"]["state"], "completed", "{shown}");
    // The key of another environment is not accepted.
    let elsewhere =
        "keys reset --key ord/1 --scope http --environment elsewhere --reason test --yes";
    sidecar.run(elsewhere).await.failed(8, "");
    assert!(sidecar.send("/charges", "ord/1").await.1, "a replay");
}

#[tokio::test(flavor = "multi_thread")]
async fn list_and_inspect_show_records_without_keys() {
    let sidecar = Sidecar::start("memory://", "").await;
    let id = traffic(&sidecar).await;
    let table = sidecar.run("keys list").await.good();
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
    let one = sidecar.run("keys list --limit 1 --json").await.json();
    assert_eq!((ids(&one).len(), &one["complete"]), (1, &false.into()));
    let shown = sidecar
        .run(&format!("keys inspect {}", &id[..12]))
        .await
        .good();
    assert!(
        shown.contains(&id) && shown.contains("idempotency.key.created"),
        "{shown}"
    );
    assert!(shown.contains("semel keys resolve"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doubt_is_resolved_over_the_network_after_confirmation() {
    let sidecar = Sidecar::start("memory://", "").await;
    let id = traffic(&sidecar).await;
    let body = "{\"charge\": \"ch_1\"}\n";
    let file = sidecar.file("answer.json", body);
    let resolve =
        format!("keys resolve {id} --complete --status 201 --body-file {file} --reason found");
    sidecar.run(&resolve).await.failed(9, "--yes");
    let still = sidecar.send("/lost", "ord-2-abcdef").await.0;
    assert_eq!(still, 409, "still in doubt");
    let stale = format!("{resolve} --yes --fence 1");
    sidecar.run(&stale).await.failed(9, "nothing was changed");
    let done = sidecar.run(&format!("{resolve} --yes")).await.good();
    assert!(done.contains("was in doubt, now completed"), "{done}");
    let answer = sidecar.send("/lost", "ord-2-abcdef").await;
    assert_eq!(answer, (201, true, body.to_owned()));

    let seen = sidecar
        .run(&format!("keys inspect {id} --json"))
        .await
        .json();
    let entries = seen["history"]["entries"].as_array().expect("entries");
    // The attempt with the wrong fence is in the trail, too.
    let mut resolved = entries
        .iter()
        .filter(|entry| entry["type"] == "admin.resolve");
    let last = resolved.next_back().expect("in the trail");
    assert!(
        last["actor"].as_str().expect("an actor").contains('@'),
        "{last}"
    );
    assert_eq!(
        (&last["detail"]["reason"], &last["detail"]["outcome"]),
        (&"found".into(), &"done".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn reset_tail_gc_and_erase_report_their_results() {
    let sidecar = Sidecar::start("memory://", "").await;
    let id = traffic(&sidecar).await;
    let tail = sidecar
        .run("tail --recent 100 --limit 3 --json")
        .await
        .good();
    let entries = tail.lines().map(serde_json::from_str::<Value>);
    assert_eq!(entries.filter(Result::is_ok).count(), 3, "{tail}");
    let replay = "tail --recent 100 --limit 1 --kind idempotency.replay --scope http";
    let line = sidecar.run(replay).await.good();
    assert!(line.contains("idempotency.replay"), "{line}");

    let unlock = format!("keys unlock {id} --reason r --yes");
    sidecar.run(&unlock).await.failed(9, "nothing was changed");
    let reset = format!("keys reset {id} --reason r --yes --json");
    assert_eq!(sidecar.run(&reset).await.json()["before"], "in_doubt");
    let inspect = format!("keys inspect {id}");
    sidecar.run(&inspect).await.failed(8, "does not exist");
    let inspect = format!("keys inspect {}", &id[..10]);
    sidecar.run(&inspect).await.failed(8, "begins with");

    assert_eq!(
        sidecar.run("gc --dry-run --json").await.json()["expired"],
        0
    );
    assert!(
        sidecar
            .run("gc")
            .await
            .good()
            .contains("there are no expired records")
    );
    let erase = "keys erase nobody --reason asked --yes --json";
    assert_eq!(sidecar.run(erase).await.json()["entries"], 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn store_shows_the_same_records_and_is_repaired_directly() {
    // A private Redis, because a list takes as long as others fill the server.
    let redis = RedisServer::start(&[]).await;
    let file = format!("sqlite://{}/keys.db", new_folder("keys").display());
    for store in [
        redis.url(),
        env("SEMEL_TEST_POSTGRES_URL"),
        env("SEMEL_TEST_MARIADB_URL"),
        file,
    ] {
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
        assert!(noted.err.contains("is not audited"), "{noted:?}");
        assert!(noted.good().contains("now released"));
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
async fn connection_failures_have_distinct_messages() {
    semel(&["keys", "list"]).await.failed(3, "fix: --admin");
    semel(&["keys", "list", "--admin", "http://127.0.0.1:1"])
        .await
        .failed(10, "can't be reached");
    semel(&["keys", "list", "--store", "redis://127.0.0.1:1"])
        .await
        .failed(4, "fix: start the store");
    semel(&["tail", "--store", "memory://"])
        .await
        .failed(3, "running sidecar");
    semel(&["top", "--admin", "http://127.0.0.1:1"])
        .await
        .failed(9, "needs a terminal");
    let stranger = format!("http://{}", service().await);
    semel(&["keys", "list", "--admin", &stranger])
        .await
        .failed(10, "is not an admin API");
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
    assert!(
        semel(&with_token)
            .await
            .good()
            .contains("no record matches")
    );
    let file = sidecar.folder.join("semel.toml");
    let by_config = semel(&[
        "keys",
        "list",
        "--config",
        file.to_str().expect("as set up"),
    ])
    .await;
    assert!(
        by_config.good().contains("no record matches"),
        "the settings say where and with which token"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn admin_url_variable_is_not_a_sidecar_setting() {
    let sidecar = Sidecar::start("memory://", "").await;
    let with = |arguments: &[&str]| {
        let mut command = tokio::process::Command::from(command(arguments));
        command.env("SEMEL_ADMIN_URL", &sidecar.admin);
        command
    };
    let listed = with(&["keys", "list"]).output().await.expect("as set up");
    assert!(listed.status.success(), "{listed:?}");
    let file = sidecar.folder.join("semel.toml");
    let check = [
        "config",
        "check",
        "--config",
        file.to_str().expect("as set up"),
    ];
    let checked = with(&check).output().await.expect("as set up");
    assert!(checked.status.success(), "{checked:?}");
}
