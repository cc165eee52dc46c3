//! Erasing the stored responses of a tenant or a subject, through the admin API (P49).

use semel::Encryption;
use semel::encrypted::{DataKeyUse, EncryptionKey, Keyring, WriteKey};
use serde_json::{Value, json};

use crate::support::{OTHER, Reply, Server, Setup, call};

const SUBJECT: &str = "customer-4711";

async fn server() -> Server {
    let key = EncryptionKey::new(1, &[7; 32]).expect("a key");
    let keys = Keyring::new(vec![key], WriteKey::Newest).expect("a ring");
    let setup = Setup {
        encryption: Some(Encryption::new(keys).data_keys(DataKeyUse::Subject)),
        ..Setup::default()
    };
    Server::with("memory://", setup).await
}

/// Runs a claim of the token's tenant to its end.
async fn run(server: &Server, token: &str, key: &str) -> String {
    let ask = json!({"scope": "charge", "key": key}).to_string();
    let won = call(&server.api, "POST", "/v1/claims", Some(token), &ask).await;
    let ((lease, fence), id) = (won.lease(), won.text("id").to_owned());
    let settle = json!({"token": lease, "fence": fence, "outcome": "complete"});
    let path = format!("/v1/claims/{id}/settle");
    let settled = call(&server.api, "POST", &path, Some(token), &settle.to_string()).await;
    assert_eq!(settled.status, 200, "{}", settled.text);
    id
}

async fn ask(server: &Server, token: &str, key: &str) -> Reply {
    let ask = json!({"scope": "charge", "key": key}).to_string();
    call(&server.api, "POST", "/v1/claims", Some(token), &ask).await
}

async fn erase(server: &Server, what: Value) -> Reply {
    let mut body = json!({"actor": "jo", "reason": "asked for it"});
    for (name, value) in what.as_object().expect("an object") {
        body[name] = value.clone();
    }
    server.act("/admin/v1/data-erasures", body).await
}

#[tokio::test]
async fn erased_tenant_is_gone_and_runs_nothing_again() {
    let server = server().await;
    let acme = crate::support::ACME;
    let id = run(&server, acme, "k-1").await;
    run(&server, OTHER, "k-1").await;
    // The second replay comes from memory.
    for _ in 0..2 {
        assert_eq!(ask(&server, acme, "k-1").await.status, 200);
    }
    let erased = erase(&server, json!({"tenant": "acme"})).await;
    assert_eq!(
        (erased.status, erased.body["destroyed"].as_u64()),
        (200, Some(1)),
        "{}",
        erased.text
    );
    let gone = ask(&server, acme, "k-1").await;
    assert_eq!(
        (
            gone.status,
            gone.body["code"].as_str(),
            gone.body["retryable"].as_bool()
        ),
        (410, Some("idempotency_answer_erased"), Some(false)),
        "{}",
        gone.text
    );
    assert_eq!(ask(&server, OTHER, "k-1").await.status, 200, "untouched");
    // Operators see the record, and why its content is not there.
    let record = server.see(&format!("/admin/v1/records/{id}")).await;
    assert_eq!(record.status, 200, "{}", record.text);
    assert!(record.text.contains("\"erased\""), "{}", record.text);
    let again = erase(&server, json!({"tenant": "acme"})).await;
    let counts = (
        again.body["destroyed"].as_u64(),
        again.body["before"].as_u64(),
    );
    assert_eq!(counts, (Some(0), Some(1)));
}

#[tokio::test]
async fn null_as_a_subject_does_not_erase_the_tenant() {
    let server = server().await;
    let acme = crate::support::ACME;
    run(&server, acme, "k-1").await;
    let refused = erase(&server, json!({"tenant": "acme", "subject": null})).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    assert_eq!(ask(&server, acme, "k-1").await.status, 200);
}

#[tokio::test]
async fn erased_subject_is_named_nowhere() {
    let server = server().await;
    let charge = |subject: &str| {
        let charge = server.semel.operation("charge").tenant("acme");
        charge.subject(subject).key(subject).payload(&100)
    };
    for subject in [SUBJECT, "customer-2"] {
        let ran = charge(subject).run(|_| async { Ok::<_, std::io::Error>("receipt".to_owned()) });
        ran.await.expect("an answer");
    }
    let erased = erase(&server, json!({"tenant": "acme", "subject": SUBJECT})).await;
    assert_eq!(erased.body["destroyed"], 1, "{}", erased.text);
    let again = |subject: &str| {
        charge(subject).run(|_| async { Ok::<_, std::io::Error>("twice".to_owned()) })
    };
    let refused = again(SUBJECT).await.expect_err("erased");
    assert!(
        !refused.is_retryable() && refused.to_string().contains("erased"),
        "{refused}"
    );
    let kept = again("customer-2").await.expect("an answer");
    assert_eq!((kept.value.as_str(), kept.replayed), ("receipt", true));
    let lines = server.audited().await;
    let entries: Vec<_> = lines
        .iter()
        .filter(|line| {
            line["type"]
                .as_str()
                .is_some_and(|kind| kind.starts_with("admin.erase_data"))
        })
        .collect();
    assert_eq!(entries.len(), 2);
    for entry in entries {
        assert_eq!(entry["detail"]["digest"], erased.body["digest"]);
        assert_eq!(
            (&entry["detail"]["erases"], &entry["actor"]),
            (&json!("subject"), &json!("jo"))
        );
        assert!(!entry.to_string().contains(SUBJECT));
    }
}

#[tokio::test]
async fn unusable_erasures_are_refused() {
    let server = server().await;
    for (what, status) in [
        (json!({"tenant": "acme", "subject": ""}), 400),
        (json!({"tenant": "acme", "subject": "x".repeat(257)}), 400),
        (json!({"tenant": "x".repeat(129)}), 400),
        (json!({"subject": SUBJECT}), 400),
    ] {
        let refused = erase(&server, what).await;
        assert_eq!(refused.status, status, "{}", refused.text);
        assert!(!refused.text.contains(SUBJECT));
    }
    let plain = Server::start("memory://").await;
    let refused = erase(&plain, json!({"tenant": "acme"})).await;
    assert_eq!(refused.body["code"], "request_refused", "{}", refused.text);
}
