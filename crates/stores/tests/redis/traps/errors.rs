//! Every error that a server is known to answer, at each step of a run.

use semel::Semel;
use semel_core::{StoreError, StoreErrorKind};
use semel_stores::ServerError;
use semel_stores::redis::ERRORS;
use semel_testkit::private::RedisServer;

use super::refusals::Effect;
use crate::interceptor::{Interceptor, is_write};

/// What a server says that means `row`.
fn line(row: &ServerError) -> String {
    match row.code.strip_suffix('*') {
        Some("") => "-SOMETHING new".to_owned(),
        Some(beginning) => format!("-{beginning} of a test"),
        // As a redirection has it.
        None => format!("-{} 1 127.0.0.1:1", row.code),
    }
}

/// What the store is said to have answered, wherever in the causes that stands.
fn store_error_kind(told: &semel::Error) -> Option<StoreErrorKind> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(told);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<StoreError>() {
            return Some(found.kind);
        }
        cause = error.source();
    }
    None
}

async fn intercepted() -> (RedisServer, Interceptor, Semel) {
    let server = RedisServer::start(&[]).await;
    let way = Interceptor::to(server.address()).await;
    let semel = Semel::open(&way.url()).await.expect("a server");
    (server, way, semel)
}

#[tokio::test(flavor = "multi_thread")]
async fn effect_is_settled_after_any_server_error() {
    let (_server, way, semel) = intercepted().await;
    for row in ERRORS {
        for times in [1, 2] {
            let key = format!("{}-{times}", row.code.replace([' ', '*'], "_"));
            let effect = Effect::default();
            let asked = effect.ask(&semel, &key);
            effect.begun.notified().await;
            way.answer(times, is_write, &line(row));
            effect.may_end.notify_one();
            effect.is_recorded(asked, &semel, &key).await;
            assert_eq!(way.answers_left(), 0, "{key}: it never came to that");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_sent_again_exactly_where_the_table_says() {
    let (_server, way, semel) = intercepted().await;
    for row in ERRORS {
        let key = row.code.replace([' ', '*'], "_");
        let effect = Effect::default();
        way.answer(1, is_write, &line(row));
        effect.may_end.notify_one();
        let asked = effect.ask(&semel, &key);
        if row.kind.is_retried_for_claim() {
            effect.is_recorded(asked, &semel, &key).await;
        } else {
            let told = asked.await.unwrap().expect_err("not sent again");
            assert_eq!(store_error_kind(&told), Some(row.kind), "{key}: {told:?}");
            // Nothing was begun, and the key is as new.
            let asked = effect.ask(&semel, &key);
            effect.is_recorded(asked, &semel, &key).await;
        }
        assert_eq!(way.answers_left(), 0, "{key}: it never came to that");
    }
}
