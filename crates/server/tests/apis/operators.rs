//! Named operators: roles, tenants, and their names in the audit trail.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use semel_server::admin::{self, AdminConfig, AdminState};
use semel_server::operators::{Credential, Operators, new_token};
use semel_testkit::private::new_folder;
use serde_json::{Value, json};

use crate::support::{Reply, Server, call, serve};

/// The admin API with an operators file.
struct Office {
    server: Server,
    admin: String,
    file: PathBuf,
}

impl Office {
    async fn open() -> Self {
        let server = Server::start("memory://").await;
        let file = new_folder("operators").join("operators.toml");
        std::fs::write(&file, "").expect("written");
        let clock = Arc::clone(&semel::tokio_env().clock);
        let operators = Operators::open(&file, clock).expect("a file");
        let credential = Credential::Operators(operators);
        let (semel, trail) = (server.semel.clone(), server.trail.clone());
        let state = AdminState::new(semel, trail, credential, AdminConfig::default());
        let admin = serve(admin::router(state)).await;
        Self {
            server,
            admin,
            file,
        }
    }

    /// Adds an operator to the file, and returns its token.
    fn hire(&self, name: &str, more: &str) -> String {
        let (token, digest) = new_token().expect("a token");
        let mut text = std::fs::read_to_string(&self.file).expect("the file");
        text.push_str(&format!(
            "[[operator]]\nname = \"{name}\"\ntoken = \"{digest}\"\n{more}\n"
        ));
        std::fs::write(&self.file, text).expect("written");
        token
    }

    async fn see(&self, token: &str, path: &str) -> Reply {
        call(&self.admin, "GET", path, Some(token), "").await
    }

    async fn act(&self, token: &str, path: &str, body: &Value) -> Reply {
        call(&self.admin, "POST", path, Some(token), &body.to_string()).await
    }

    /// Creates a completed record of tenant `acme`, and returns its id and fence.
    async fn record(&self, key: &str) -> (String, u64) {
        let claim = json!({"scope": "charge", "key": key});
        let won = self.server.post("/v1/claims", claim).await;
        let ((token, fence), id) = (won.lease(), won.text("id").to_owned());
        let settle =
            json!({"token": token, "fence": fence, "outcome": "complete", "answer": {"body": "x"}});
        let path = format!("/v1/claims/{id}/settle");
        assert_eq!(self.server.post(&path, settle).await.status, 200);
        let seen = self.server.see(&format!("/admin/v1/records/{id}")).await;
        let fence = seen.body["fence"].as_u64().expect("a fence");
        (id, fence)
    }
}

fn signed(fence: u64) -> Value {
    json!({"fence": fence, "actor": "somebody else", "reason": "a test"})
}

#[tokio::test]
async fn roles_limit_what_operators_may_do() {
    let office = Office::open().await;
    let [read, operate, admin] =
        ["read", "operate", "admin"].map(|role| office.hire(role, &format!("role = \"{role}\"")));
    let purge = json!({"actor": "x", "reason": "a test"});
    for (token, answer, reset, purged) in [
        (&read, 403, 403, 403),
        (&operate, 200, 200, 403),
        (&admin, 200, 200, 200),
    ] {
        let (id, fence) = office.record(&format!("k-{}", &token[9..20])).await;
        let path = format!("/admin/v1/records/{id}");
        assert_eq!(office.see(token, &path).await.status, 200);
        assert_eq!(
            office
                .see(token, &format!("{path}?answer=true"))
                .await
                .status,
            answer
        );
        let done = office
            .act(token, &format!("{path}/reset"), &signed(fence))
            .await;
        assert_eq!(done.status, reset, "{}", done.text);
        let done = office.act(token, "/admin/v1/purges", &purge).await;
        assert_eq!(done.status, purged, "{}", done.text);
    }
    assert_eq!(
        office
            .see("semel_op_0000000000000000", "/admin/v1/records")
            .await
            .status,
        401
    );
}

#[tokio::test]
async fn trail_has_the_name_of_the_credential() {
    let office = Office::open().await;
    let token = office.hire("jo", "role = \"operate\"");
    let (id, fence) = office.record("k-actor").await;
    let path = format!("/admin/v1/records/{id}/reset");
    assert_eq!(office.act(&token, &path, &signed(fence)).await.status, 200);
    let entries = office.server.audited().await;
    let resets: Vec<_> = entries
        .iter()
        .filter(|entry| entry["type"] == "admin.reset")
        .collect();
    assert_eq!(resets.len(), 1);
    assert_eq!(resets[0]["actor"], "jo");
    assert_eq!(resets[0]["detail"]["said_to_be"], "somebody else");
}

#[tokio::test]
async fn tenant_operator_sees_only_its_tenant() {
    let office = Office::open().await;
    let own = office.hire("acmes", "role = \"admin\"\ntenant = \"acme\"");
    let others = office.hire("others", "role = \"admin\"\ntenant = \"other\"");
    let (id, fence) = office.record("k-tenant").await;
    let path = format!("/admin/v1/records/{id}");
    assert_eq!(office.see(&own, &path).await.status, 200);
    assert_eq!(office.see(&others, &path).await.status, 404);
    let reset = office
        .act(&others, &format!("{path}/reset"), &signed(fence))
        .await;
    assert_eq!(reset.status, 404, "{}", reset.text);
    let entries = |reply: Reply| reply.body["entries"].as_array().map(Vec::len);
    assert_eq!(
        entries(office.see(&others, &format!("{path}/history")).await),
        Some(0)
    );
    assert_ne!(
        entries(office.see(&own, &format!("{path}/history")).await),
        Some(0)
    );
    let listed = |reply: Reply| reply.body["records"].as_array().map(Vec::len);
    assert_eq!(listed(office.see(&own, "/admin/v1/records").await), Some(1));
    assert_eq!(
        listed(office.see(&others, "/admin/v1/records").await),
        Some(0)
    );
    assert_eq!(
        office
            .see(&others, "/admin/v1/records?tenant=acme")
            .await
            .status,
        403
    );
    let lookup = json!({"tenant": "acme", "scope": "charge", "key": "k-tenant"});
    assert_eq!(
        office.act(&own, "/admin/v1/lookups", &lookup).await.status,
        200
    );
    assert_eq!(
        office
            .act(&others, "/admin/v1/lookups", &lookup)
            .await
            .status,
        403
    );
    for all in ["/admin/v1/stats", "/admin/v1/events?limit=1&recent=1"] {
        assert_eq!(office.see(&own, all).await.status, 403, "{all}");
    }
}

#[tokio::test]
async fn operators_file_reloads_unless_it_is_broken() {
    let office = Office::open().await;
    let jo = office.hire("jo", "role = \"read\"");
    assert_eq!(office.see(&jo, "/admin/v1/records").await.status, 200);
    let past = office.hire("past", "role = \"read\"\nexpires = \"2020-01-01\"");
    assert_eq!(office.see(&past, "/admin/v1/records").await.status, 401);
    let later = office.hire("later", "role = \"read\"\nexpires = \"2999-01-01\"");
    assert_eq!(office.see(&later, "/admin/v1/records").await.status, 200);
    std::fs::write(&office.file, "[[operator]]\nnam").expect("written");
    assert_eq!(
        office.see(&jo, "/admin/v1/records").await.status,
        200,
        "as it was"
    );
    std::fs::write(&office.file, "").expect("written");
    assert_eq!(office.see(&jo, "/admin/v1/records").await.status, 401);
    // A deleted file revokes all of them, until it is there again.
    let lee = office.hire("lee", "role = \"read\"");
    assert_eq!(office.see(&lee, "/admin/v1/records").await.status, 200);
    let entries = std::fs::read(&office.file).expect("a file");
    std::fs::remove_file(&office.file).expect("deleted");
    assert_eq!(office.see(&lee, "/admin/v1/records").await.status, 401);
    std::fs::write(&office.file, entries).expect("written");
    assert_eq!(office.see(&lee, "/admin/v1/records").await.status, 200);
}

#[test]
fn unusable_operators_file_has_a_reason() {
    let (_, digest) = new_token().expect("a token");
    let line = |more: &str| format!("[[operator]]\nname = \"jo\"\nrole = \"read\"\n{more}\n");
    let good = line(&format!("token = \"{digest}\""));
    for (text, why) in [
        (line("token = \"a-token-in-the-clear\""), "not a digest"),
        (
            line(&format!("token = \"{digest}\"\nexpires = \"soon\"")),
            "expiry date",
        ),
        (format!("{good}{good}"), "twice"),
        (good.replace("read", "root"), "unknown variant"),
        (good.replace("role", "rule"), "unknown field"),
    ] {
        let file = new_folder("operators").join("operators.toml");
        std::fs::write(&file, &text).expect("written");
        let error = open(&file).expect_err(&text);
        assert!(error.contains(why), "{text}: {error}");
    }
}

fn open(file: &Path) -> Result<Operators, String> {
    let clock = Arc::clone(&semel::tokio_env().clock);
    Operators::open(file, clock).map_err(|error| error.to_string())
}
