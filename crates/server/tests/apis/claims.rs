//! Claims: renew, settle, replay, conflict, wait, in doubt.

use std::time::Duration;

use semel::{OnBusy, Policy};
use serde_json::json;

use crate::support::{Server, Setup, pause, stores};

#[tokio::test]
#[ignore = "needs servers"]
async fn claim_is_settled_once_and_replayed() {
    for store in stores() {
        let server = Server::start(&store).await;
        let ask = json!({"scope": "charge", "key": "ord-1", "payload": {"amount": 100, "to": "x"}});
        let won = server.post("/v1/claims", ask.clone()).await;
        let (token, fence) = won.lease();
        let id = won.text("id").to_owned();

        let answer = r#"{"charge":"ch_1","fee":1.50,"big":12345678901234567890}"#;
        let settle = format!(
            r#"{{"token":"{token}","fence":{fence},"outcome":"complete","answer":{{"body":{answer}}}}}"#
        );
        let path = format!("/v1/claims/{id}/settle");
        let settle: Box<serde_json::value::RawValue> = serde_json::from_str(&settle).unwrap();
        for _ in 0..2 {
            // A repeated settlement has the same result (P18).
            let done = crate::support::call(
                &server.api,
                "POST",
                &path,
                Some(crate::support::ACME),
                settle.get(),
            )
            .await;
            assert_eq!(
                (done.status, done.text("status")),
                (200, "completed"),
                "{store}: {}",
                done.text
            );
        }
        // The same JSON content in another form.
        let again = json!({"scope": "charge", "key": "ord-1", "payload": {"to": "x", "amount": 100.0}, "retry": true});
        for _ in 0..3 {
            let replay = server.post("/v1/claims", again.clone()).await;
            assert_eq!(
                (replay.status, replay.text("status")),
                (200, "completed"),
                "{store}"
            );
            assert_eq!(replay.body["replayed"], true);
            assert!(
                replay.text.contains(&format!(r#""body":{answer}"#)),
                "byte for byte: {}",
                replay.text
            );
        }
        let other =
            json!({"scope": "charge", "key": "ord-1", "payload": {"amount": 101, "to": "x"}});
        let mismatch = server.post("/v1/claims", other).await;
        assert_eq!(
            (mismatch.status, mismatch.code()),
            (422, "idempotency_conflict"),
            "{store}"
        );
        assert!(mismatch.body.get("claimId").is_none());
        let late = json!({"token": token, "fence": fence, "outcome": "fail"});
        let late = server.post(&path, late).await;
        assert_eq!(
            (late.status, late.code()),
            (409, "idempotency_lease_not_held"),
            "settled otherwise"
        );
    }
}

#[tokio::test]
#[ignore = "needs servers"]
async fn repeated_claim_with_the_same_token_gets_the_same_lease() {
    for store in stores() {
        let server = Server::start(&store).await;
        let token = "00112233445566778899aabbccddeeff";
        let ask = json!({"scope": "s", "key": "k", "payload": 1, "token": token});
        let first = server.post("/v1/claims", ask.clone()).await;
        let again = server.post("/v1/claims", ask).await;
        assert_eq!(first.lease(), again.lease(), "{store}");
        assert_eq!(first.lease().0, token);
        let stranger =
            json!({"scope": "s", "key": "k", "payload": 1, "policy": {"on_busy": "refuse"}});
        let busy = server.post("/v1/claims", stranger).await;
        assert_eq!(
            (busy.status, busy.code()),
            (409, "idempotency_in_flight"),
            "{store}"
        );
        assert!(busy.headers.contains_key("retry-after"));
        assert_eq!(busy.text("claimId"), first.text("id"));
    }
}

#[tokio::test]
#[ignore = "needs servers"]
async fn settlement_wakes_waiters() {
    for store in stores() {
        let server = std::sync::Arc::new(Server::start(&store).await);
        let ask = json!({"scope": "s", "key": "k", "policy": {"wait_ms": 30_000}});
        let won = server.post("/v1/claims", ask.clone()).await;
        let ((token, fence), id) = (won.lease(), won.text("id").to_owned());
        let (waits, attached) = (server.clone(), server.clone());
        let path = format!("/v1/claims/{id}?wait_ms=30000");
        let waits = tokio::spawn(async move { waits.post("/v1/claims", ask).await });
        let attached = tokio::spawn(async move { attached.get(&path).await });
        while server.semel.engine().waiting() < 2 {
            pause(Duration::from_millis(5)).await;
        }
        let settle = json!({"token": token, "fence": fence, "outcome": "complete", "answer": {"body": "done"}});
        server
            .post(&format!("/v1/claims/{id}/settle"), settle)
            .await;
        for reply in [waits.await.unwrap(), attached.await.unwrap()] {
            assert_eq!(
                (reply.status, reply.text("status")),
                (200, "completed"),
                "{store}: {}",
                reply.text
            );
            assert_eq!(reply.body["answer"]["body"], "done");
        }
    }
}

#[tokio::test]
#[ignore = "needs servers"]
async fn stalled_worker_loses_its_lease_and_gets_the_other_answer() {
    for store in stores() {
        let server = Server::start(&store).await;
        let ask = json!({"scope": "s", "key": "k", "policy": {"lease_ms": 200, "wait_ms": 10_000}, "derive": ["psp"]});
        let first = server.post("/v1/claims", ask.clone()).await;
        let ((token, fence), id) = (first.lease(), first.text("id").to_owned());
        let checkpoint = json!({"token": token, "fence": fence, "checkpoint": {"page": 7}});
        let renewed = server
            .post(&format!("/v1/claims/{id}/renew"), checkpoint)
            .await;
        assert_eq!(renewed.status, 200, "{store}: {}", renewed.text);

        // The owner is silent for longer than its lease. The next caller waits for this and takes
        // over.
        let second = server.post("/v1/claims", ask).await;
        let (new_token, new_fence) = second.lease();
        assert!(new_fence > fence, "{store}");
        assert_eq!(second.body["attempt"], 2);
        assert_eq!(second.body["lease"]["checkpoint"], json!({"page": 7}));
        assert_eq!(
            second.body["lease"]["downstream_keys"],
            first.body["lease"]["downstream_keys"]
        );

        let stale = json!({"token": token, "fence": fence});
        let renew = server.post(&format!("/v1/claims/{id}/renew"), stale).await;
        assert_eq!(
            (renew.status, renew.code()),
            (409, "idempotency_lease_not_held"),
            "{store}"
        );
        let settle = |token: &str, fence: u64, text: &str| json!({"token": token, "fence": fence, "outcome": "complete", "answer": {"body": text}});
        let path = format!("/v1/claims/{id}/settle");
        let stale = server.post(&path, settle(&token, fence, "mine")).await;
        assert_eq!(
            (stale.status, stale.code()),
            (409, "idempotency_lease_not_held"),
            "{store}"
        );
        assert_eq!(
            server
                .post(&path, settle(&new_token, new_fence, "theirs"))
                .await
                .status,
            200
        );
        // Now there is an answer, which every caller gets.
        let stale = server.post(&path, settle(&token, fence, "mine")).await;
        assert_eq!(stale.status, 409);
        assert_eq!(
            stale.body["claim"]["answer"]["body"], "theirs",
            "{store}: {}",
            stale.text
        );
        assert_eq!(stale.body["retryable"], false);
    }
}

#[tokio::test]
#[ignore = "needs servers"]
async fn held_claim_of_a_crashed_owner_is_in_doubt() {
    for store in stores() {
        let server = Server::start(&store).await;
        let ask = json!({"scope": "s", "key": "k", "policy": {"lease_ms": 100, "crash": "hold", "wait_ms": 5_000}});
        let won = server.post("/v1/claims", ask.clone()).await;
        let (fence, id) = (won.lease().1, won.text("id").to_owned());
        pause(Duration::from_millis(150)).await;
        let seen = server.get(&format!("/v1/claims/{id}")).await;
        assert_eq!(
            seen.text("status"),
            "in_doubt",
            "{store}: before any claim has noticed"
        );
        let doubt = server.post("/v1/claims", ask.clone()).await;
        assert_eq!(
            (doubt.status, doubt.code()),
            (409, "idempotency_in_doubt"),
            "{store}"
        );
        assert_eq!(doubt.body["retryable"], false);

        let resolve = json!({"fence": fence, "actor": "ops", "reason": "asked the provider",
            "outcome": "completed", "answer": {"body": {"charge": "ch_9"}}});
        let wrong =
            json!({"fence": fence - 1, "actor": "ops", "reason": "typo", "outcome": "released"});
        let path = format!("/admin/v1/records/{id}/resolve");
        let moved = server.act(&path, wrong).await;
        assert_eq!((moved.status, moved.code()), (409, "moved_on"), "{store}");
        let resolved = server.act(&path, resolve).await;
        assert_eq!(resolved.status, 200, "{store}: {}", resolved.text);
        assert_eq!(
            (resolved.text("before"), resolved.text("after")),
            ("in_doubt", "completed")
        );
        let replay = server.post("/v1/claims", ask).await;
        assert_eq!(replay.body["answer"]["body"]["charge"], "ch_9", "{store}");
    }
}

#[tokio::test]
#[ignore = "needs servers"]
async fn outcomes_match_the_verdicts() {
    for store in stores() {
        let server = Server::start(&store).await;
        for (crash, outcome, state) in [
            ("takeover", "release", "released"),
            ("takeover", "retry", "released"),
            ("takeover", "doubt", "in_doubt"),
            ("takeover", "fail", "failed"),
            ("hold", "release", "released"),
            ("hold", "retry", "in_doubt"),
            ("hold", "doubt", "in_doubt"),
        ] {
            let ask = json!({"scope": "s", "key": format!("{crash}-{outcome}"), "policy": {"crash": crash}});
            let won = server.post("/v1/claims", ask).await;
            let ((token, fence), id) = (won.lease(), won.text("id"));
            let settle = json!({"token": token, "fence": fence, "outcome": outcome});
            let settled = server
                .post(&format!("/v1/claims/{id}/settle"), settle)
                .await;
            assert_eq!(settled.text("status"), state, "{store} {crash} {outcome}");
        }
    }
}

#[tokio::test]
#[ignore = "needs servers"]
async fn lease_can_be_settled_on_another_server() {
    for store in stores().into_iter().skip(1) {
        let first = Server::start(&store).await;
        let setup = Setup {
            environment: first.semel.environment().to_owned(),
            ..Setup::default()
        };
        let second = Server::with(&store, setup).await;
        let won = first
            .post("/v1/claims", json!({"scope": "s", "key": "k"}))
            .await;
        let ((token, fence), id) = (won.lease(), won.text("id").to_owned());
        let renew = json!({"token": token, "fence": fence, "checkpoint": 1});
        assert_eq!(
            second
                .post(&format!("/v1/claims/{id}/renew"), renew)
                .await
                .status,
            200
        );
        let settle = json!({"token": token, "fence": fence, "outcome": "complete",
            "answer": {"status": 201, "headers": [{"name": "Location", "value": "/c/1"}], "body_base64": "AAEC"}});
        let settled = second
            .post(&format!("/v1/claims/{id}/settle"), settle)
            .await;
        assert_eq!(settled.status, 200, "{store}: {}", settled.text);
        let lookup = first
            .post("/v1/lookups", json!({"scope": "s", "key": "k"}))
            .await;
        assert_eq!(lookup.text("id"), id);
        assert_eq!(lookup.body["answer"]["status"], 201);
        assert_eq!(
            lookup.body["answer"]["headers"],
            json!([{"name": "location", "value": "/c/1"}])
        );
        assert_eq!(lookup.body["answer"]["body_base64"], "AAEC");
    }
}

#[tokio::test]
async fn typed_library_and_api_share_keys() {
    let server = Server::start("memory://").await;
    let payload = json!({"amount": 5});
    let call = server
        .semel
        .operation("charge")
        .tenant("acme")
        .key("ord-7")
        .payload(&payload);
    let ran = call
        .run(|_| async { Ok::<_, std::io::Error>("from rust".to_owned()) })
        .await
        .unwrap();
    assert!(!ran.replayed);
    let ask = json!({"scope": "charge", "key": "ord-7", "payload": payload});
    let replay = server.post("/v1/claims", ask).await;
    assert_eq!(
        (replay.status, replay.body["answer"]["body"].as_str()),
        (200, Some("from rust"))
    );

    let won = server
        .post(
            "/v1/claims",
            json!({"scope": "charge", "key": "ord-8", "payload": [1]}),
        )
        .await;
    let ((token, fence), id) = (won.lease(), won.text("id"));
    let settle = json!({"token": token, "fence": fence, "outcome": "complete", "answer": {"body": "from python"}});
    server
        .post(&format!("/v1/claims/{id}/settle"), settle)
        .await;
    let call = server
        .semel
        .operation("charge")
        .tenant("acme")
        .key("ord-8")
        .payload(&[1]);
    let replay = call
        .run(|_| async { Ok::<_, std::io::Error>("not run".to_owned()) })
        .await
        .unwrap();
    assert_eq!(
        (replay.value.as_str(), replay.replayed),
        ("from python", true)
    );
}

#[tokio::test]
async fn disconnect_before_the_lease_leaves_the_key_free() {
    let server = Server::start("memory://").await;
    let won = server
        .post("/v1/claims", json!({"scope": "s", "key": "k"}))
        .await;
    let ((token, fence), id) = (won.lease(), won.text("id").to_owned());
    let ask = json!({"scope": "s", "key": "k", "policy": {"wait_ms": 30_000}}).to_string();
    let api = server.api.clone();
    let waits = tokio::spawn(async move {
        crate::support::call(&api, "POST", "/v1/claims", Some(crate::support::ACME), &ask).await
    });
    while server.semel.engine().waiting() == 0 {
        pause(Duration::from_millis(5)).await;
    }
    waits.abort();
    let _ = waits.await;
    // Time for the server to notice. Without it, the test would be weaker.
    pause(Duration::from_millis(100)).await;
    let release = json!({"token": token, "fence": fence, "outcome": "release"});
    server
        .post(&format!("/v1/claims/{id}/settle"), release)
        .await;
    let ask = json!({"scope": "s", "key": "k", "policy": {"wait_ms": 5_000}});
    let next = server.post("/v1/claims", ask).await;
    assert_eq!(next.status, 201, "{}", next.text);
    assert_eq!(next.body["attempt"], 1, "let go, not lapsed");
}

#[tokio::test]
async fn too_many_waiters_are_refused() {
    let setup = Setup {
        policy: Policy::default()
            .with_max_waiters_per_key(1)
            .with_on_busy(OnBusy::Wait(Duration::from_secs(5))),
        ..Setup::default()
    };
    let server = std::sync::Arc::new(Server::with("memory://", setup).await);
    let ask = json!({"scope": "s", "key": "k"});
    let won = server.post("/v1/claims", ask.clone()).await;
    let ((token, fence), id) = (won.lease(), won.text("id").to_owned());
    let (waiting, first) = (server.clone(), ask.clone());
    let waiting = tokio::spawn(async move { waiting.post("/v1/claims", first).await });
    while server.semel.engine().waiting() == 0 {
        pause(Duration::from_millis(5)).await;
    }
    let refused = server.post("/v1/claims", ask).await;
    assert_eq!(
        (refused.status, refused.code()),
        (429, "idempotency_too_many_waiters")
    );
    let attached = server.get(&format!("/v1/claims/{id}?wait_ms=1000")).await;
    assert_eq!(
        (attached.status, attached.code()),
        (429, "idempotency_too_many_waiters")
    );
    let settle = json!({"token": token, "fence": fence, "outcome": "complete"});
    server
        .post(&format!("/v1/claims/{id}/settle"), settle)
        .await;
    assert_eq!(waiting.await.unwrap().status, 200);
}

#[tokio::test]
async fn downstream_keys_are_the_same_for_every_caller() {
    let server = Server::start("memory://").await;
    let won = server
        .post(
            "/v1/claims",
            json!({"scope": "s", "key": "k", "derive": ["psp", "mail"]}),
        )
        .await;
    let id = won.text("id");
    let keys = server
        .post(
            &format!("/v1/claims/{id}/keys"),
            json!({"names": ["mail", "psp"]}),
        )
        .await;
    assert_eq!(keys.body["keys"], won.body["lease"]["downstream_keys"]);
    assert_ne!(keys.body["keys"]["psp"], keys.body["keys"]["mail"]);
    let unknown = "0".repeat(64);
    let none = server
        .post(
            &format!("/v1/claims/{unknown}/keys"),
            json!({"names": ["psp"]}),
        )
        .await;
    assert_eq!(none.status, 404);
}
