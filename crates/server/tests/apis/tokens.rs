//! The file of tokens for the protocol API and the jobs API.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use semel_server::api::{self, ApiConfig, ApiState};
use semel_server::web::{Access, NewEntry, Tokens};
use semel_testkit::private::new_folder;
use serde_json::json;

use crate::support::{Server, call, serve};

/// The protocol API with a tokens file.
struct Door {
    api: String,
    file: PathBuf,
    _server: Server,
}

impl Door {
    async fn open() -> Self {
        let server = Server::start("memory://").await;
        let file = new_folder("tokens").join("tokens.toml");
        std::fs::write(&file, "").expect("written");
        let access = Access::Tokens(open(&file).expect("a file"));
        let state = ApiState::new(server.semel.clone(), access, ApiConfig::default());
        Self {
            api: serve(api::router(state)).await,
            file,
            _server: server,
        }
    }

    /// The status of a question about a key that nobody has used: 404 with a valid token.
    async fn ask(&self, token: &str, tenant: Option<&str>) -> u16 {
        let mut lookup = json!({"scope": "charge", "key": "k-1"});
        if let Some(tenant) = tenant {
            lookup["tenant"] = tenant.into();
        }
        let body = lookup.to_string();
        let reply = call(&self.api, "POST", "/v1/lookups", Some(token), &body).await;
        reply.status
    }
}

fn open(file: &Path) -> Result<Tokens, String> {
    let clock = Arc::clone(&semel::tokio_env().clock);
    Tokens::open(file, clock).map_err(|error| error.to_string())
}

/// A token and its entry.
fn entry(name: &str, tenant: Option<&str>) -> (String, String) {
    let new = NewEntry {
        name,
        tenant,
        expires: None,
    };
    let made = Tokens::create_entry(new, &*semel::tokio_env().clock).expect("an entry");
    (made.token, made.entry)
}

#[tokio::test]
async fn revoked_and_expired_tokens_are_refused_at_once() {
    let door = Door::open().await;
    let (acme, acme_entry) = entry("acme's worker", Some("acme"));
    assert_eq!(door.ask(&acme, None).await, 401, "not listed yet");
    std::fs::write(&door.file, &acme_entry).expect("written");
    assert_eq!(door.ask(&acme, None).await, 404);
    assert_eq!(door.ask(&acme, Some("other")).await, 403);

    let (plain, plain_entry) = entry("no tenant", None);
    std::fs::write(&door.file, format!("{acme_entry}{plain_entry}")).expect("written");
    assert_eq!(door.ask(&plain, Some("acme")).await, 403);
    assert_eq!(door.ask(&plain, None).await, 404);

    std::fs::write(&door.file, "[[token]]\nnam").expect("written");
    assert_eq!(door.ask(&plain, None).await, 404, "as it was");
    let expired = format!("{acme_entry}expires = \"2020-01-01\"\n{plain_entry}");
    std::fs::write(&door.file, expired).expect("written");
    assert_eq!(door.ask(&acme, None).await, 401, "expired");
    assert_eq!(door.ask(&plain, None).await, 404);
    std::fs::write(&door.file, &acme_entry).expect("written");
    assert_eq!(door.ask(&plain, None).await, 401, "revoked");
    assert_eq!(door.ask(&acme, None).await, 404);
}

#[test]
fn tokens_file_holds_digests_only() {
    let (token, good) = entry("jo", Some("acme"));
    assert!(!good.contains(&token), "{good}");
    let wrong_tenant = good.replace("acme", &"a".repeat(300));
    for (text, why) in [
        ("acme the-token-of-acme-1\n".to_owned(), "semel token"),
        ("acme\n".to_owned(), "line 1"),
        (good.replace("blake3:", ""), "not a digest"),
        (good.replace("token = ", "key = "), "missing field"),
        (format!("{good}role = \"read\"\n"), "unknown field"),
        (good.replace("[[token]]", "[[operator]]"), "unknown field"),
        (format!("{good}{good}"), "twice"),
        (
            format!("{good}{}", good.replace("\"jo\"", "\"al\"")),
            "twice",
        ),
        (format!("{good}expires = \"2027-13-01\"\n"), "expiry date"),
        (format!("{good}expires = 7\n"), "no string"),
        (wrong_tenant, "tenant"),
    ] {
        let file = new_folder("tokens").join("tokens.toml");
        std::fs::write(&file, &text).expect("written");
        let error = open(&file).expect_err(&text);
        assert!(error.contains(why), "{text}: {error}");
        assert!(!error.contains("the-token-of-acme-1"), "{error}");
    }
}

#[test]
fn new_entry_is_one_that_the_file_accepts() {
    let clock = semel::tokio_env().clock;
    let good = NewEntry {
        name: "jo",
        tenant: Some("acme"),
        expires: Some("2999-01-31"),
    };
    assert!(Tokens::create_entry(good, &*clock).is_ok());
    let long = "n".repeat(129);
    for (new, why) in [
        (NewEntry { name: "", ..good }, "name"),
        (
            NewEntry {
                name: "jö", ..good
            },
            "name",
        ),
        (
            NewEntry {
                name: &long,
                ..good
            },
            "name",
        ),
        (
            NewEntry {
                tenant: Some("a\u{0}b"),
                ..good
            },
            "tenant",
        ),
        (
            NewEntry {
                expires: Some("soon"),
                ..good
            },
            "expiry date",
        ),
        (
            NewEntry {
                expires: Some("2020-01-31"),
                ..good
            },
            "never be valid",
        ),
    ] {
        let error = Tokens::create_entry(new, &*clock).expect_err(why);
        assert!(error.to_string().contains(why), "{error}");
    }
}
