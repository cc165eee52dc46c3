//! Claims and settlements that come at the same time share statements.

use semel_core::Settled;
use semel_testkit::private::MariaDbServer;
use semel_testkit::proxy::Proxy;
use sqlx::Row as _;
use sqlx::mysql::MySqlPool;

use crate::groups_shared::{self as shared, settle_all, win_all};
use crate::open;
use crate::support::fresh;

/// How many statements of a kind the server has executed.
async fn statements(pool: &MySqlPool, kind: &str) -> u64 {
    let text = "SHOW GLOBAL STATUS WHERE variable_name = ?";
    let row = sqlx::query(text).bind(kind).fetch_one(pool).await;
    let count: String = row.expect("a server").get(1);
    count.parse().expect("a number")
}

#[tokio::test]
async fn simultaneous_calls_share_statements() {
    let server = MariaDbServer::start(&[]).await;
    let store = open(&server.url()).await;
    let pool = MySqlPool::connect(&server.url()).await.expect("a server");
    let kinds = ["Com_insert_select", "Com_update", "Com_update_multi"];
    let mut before = Vec::new();
    for kind in kinds {
        before.push(statements(&pool, kind).await);
    }
    let claims: Vec<_> = (0..200).map(|_| fresh()).collect();
    let grants = win_all(&store, &claims).await;
    for settled in settle_all(&store, &claims, &grants).await {
        assert_eq!(settled, Settled::Done);
    }
    let mut sent = Vec::new();
    for (kind, before) in kinds.into_iter().zip(before) {
        sent.push(statements(&pool, kind).await - before);
    }
    assert!(sent[0] * 3 < 200, "{sent:?} statements to claim 200 keys");
    assert!(
        (sent[1] + sent[2]) * 3 < 200,
        "{sent:?} statements to settle 200 keys"
    );
}

#[tokio::test]
async fn each_key_has_one_owner() {
    let server = MariaDbServer::start(&[]).await;
    shared::each_key_has_one_owner(&open(&server.url()).await).await;
}

#[tokio::test]
async fn caller_that_leaves_takes_nobody_along() {
    let server = MariaDbServer::start(&[]).await;
    shared::caller_that_leaves_takes_nobody_along(&open(&server.url()).await).await;
}

#[tokio::test]
async fn lost_reply_doubts_nobody() {
    let server = MariaDbServer::start(&[]).await;
    let proxy = Proxy::to(server.address(), semel::tokio_env().clock).await;
    let proxy = proxy.expect("a port");
    let store = open(&MariaDbServer::url_at(proxy.address())).await;
    shared::lost_reply_doubts_nobody(&proxy, &store).await;
}
