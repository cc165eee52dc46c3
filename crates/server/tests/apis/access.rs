//! Access control and isolation of tenants.

use serde_json::json;

use crate::support::{ACME, ADMIN, OTHER, Server, Setup, call, read, send, stores};

#[tokio::test]
async fn invalid_token_reveals_nothing() {
    let server = Server::start("memory://").await;
    let ask = json!({"scope": "s", "key": "k"}).to_string();
    for token in [None, Some("token-of-nobody-00000"), Some(""), Some(ADMIN)] {
        for (method, path, body) in [
            ("POST", "/v1/claims", ask.as_str()),
            ("POST", "/v1/lookups", ask.as_str()),
            ("GET", "/v1/claims/0", ""),
        ] {
            let reply = call(&server.api, method, path, token, body).await;
            assert_eq!(
                (reply.status, reply.code()),
                (401, "unauthorized"),
                "{method} {path}"
            );
            assert_eq!(reply.headers["www-authenticate"], "Bearer realm=\"semel\"");
        }
    }
    for token in [None, Some(ACME), Some("token-of-nobody-00000")] {
        for path in [
            "/admin/v1/records",
            "/admin/v1/stats",
            "/admin/v1/events",
            "/admin/v1/records/0",
        ] {
            let reply = call(&server.admin, "GET", path, token, "").await;
            assert_eq!(
                (reply.status, reply.code()),
                (401, "unauthorized"),
                "{path}"
            );
        }
        for path in ["unlock", "resolve", "reset"] {
            let path = format!("/admin/v1/records/{}/{path}", "0".repeat(64));
            assert_eq!(
                call(&server.admin, "POST", &path, token, "{}").await.status,
                401
            );
        }
        for path in [
            "/admin/v1/erasures",
            "/admin/v1/data-erasures",
            "/admin/v1/purges",
            "/admin/v1/lookups",
        ] {
            assert_eq!(
                call(&server.admin, "POST", path, token, "{}").await.status,
                401,
                "{path}"
            );
        }
    }
    assert_eq!(
        server.see("/admin/v1/records").await.body["records"],
        json!([]),
        "nothing was done"
    );
    let two = format!("Bearer {ACME}");
    let headers = [
        ("authorization", two.as_str()),
        ("authorization", two.as_str()),
    ];
    assert_eq!(
        read(send(&server.api, "GET", "/v1/claims/0", &headers, "").await)
            .await
            .status,
        401
    );
}

#[tokio::test]
#[ignore = "needs servers"]
async fn tenants_are_isolated() {
    for store in stores() {
        let server = Server::start(&store).await;
        let ask = json!({"scope": "s", "key": "k", "payload": 1});
        let won = server.post("/v1/claims", ask.clone()).await;
        let ((token, fence), id) = (won.lease(), won.text("id").to_owned());
        let other = |path: String, body: serde_json::Value| {
            let api = server.api.clone();
            async move { call(&api, "POST", &path, Some(OTHER), &body.to_string()).await }
        };
        // The same key of another tenant is another key.
        let theirs = other("/v1/claims".into(), ask).await;
        assert_eq!(theirs.status, 201, "{store}");
        assert_ne!(theirs.text("id"), id);
        let named = json!({"scope": "s", "key": "k2", "tenant": "acme"});
        let named = other("/v1/claims".into(), named).await;
        assert_eq!((named.status, named.code()), (403, "forbidden"));
        let named = json!({"scope": "s", "key": "k", "tenant": "acme"});
        assert_eq!(other("/v1/lookups".into(), named).await.status, 403);
        // Even with id, token and fence, another tenant gets 404.
        let seen = call(
            &server.api,
            "GET",
            &format!("/v1/claims/{id}"),
            Some(OTHER),
            "",
        )
        .await;
        assert_eq!((seen.status, seen.code()), (404, "not_found"), "{store}");
        let keys = other(format!("/v1/claims/{id}/keys"), json!({"names": ["psp"]})).await;
        assert_eq!(keys.status, 404);
        let renew = json!({"token": token, "fence": fence, "checkpoint": "stolen"});
        let renewed = other(format!("/v1/claims/{id}/renew"), renew).await;
        assert_eq!(
            (renewed.status, renewed.code()),
            (409, "idempotency_lease_not_held")
        );
        let settle = json!({"token": token, "fence": fence, "outcome": "complete"});
        let settled = other(format!("/v1/claims/{id}/settle"), settle.clone()).await;
        assert_eq!(
            (settled.status, settled.code()),
            (409, "idempotency_lease_not_held")
        );
        assert!(settled.body.get("claim").is_none());
        assert_eq!(
            server.get(&format!("/v1/claims/{id}")).await.text("status"),
            "running"
        );
        assert_eq!(
            server
                .post(&format!("/v1/claims/{id}/settle"), settle)
                .await
                .status,
            200
        );
    }
}

#[tokio::test]
async fn open_api_accepts_any_tenant_on_loopback_names_only() {
    let setup = Setup {
        open: true,
        ..Setup::default()
    };
    let server = Server::with("memory://", setup).await;
    let ask = |tenant: &str| json!({"scope": "s", "key": "k", "tenant": tenant}).to_string();
    for tenant in ["a", "b"] {
        assert_eq!(
            call(&server.api, "POST", "/v1/claims", None, &ask(tenant))
                .await
                .status,
            201
        );
    }
    let headers = [
        ("host", "rebound.example"),
        ("content-type", "application/json"),
    ];
    let reply = read(send(&server.api, "POST", "/v1/claims", &headers, &ask("c")).await).await;
    assert_eq!((reply.status, reply.code()), (403, "forbidden"));
}
