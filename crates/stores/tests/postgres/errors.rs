//! Every error of the server's: a settlement that is refused by it is settled in the end, and the
//! effect runs once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use semel::{Failure, Semel};
use semel_core::Store as _;
use semel_stores::ServerError;
use semel_stores::postgres::ERRORS;
use semel_testkit::private::PostgresServer;

use crate::open;
use crate::support::{complete, fresh, won};

/// Settlements fail with the code in `refusal` for as many times as its sequence says; a sequence
/// counts also what is rolled back.
const REFUSAL: &str = "
    create table refusal (code text not null, times bigint not null);
    insert into refusal values ('', 0);
    create sequence refused;
    create function refuse() returns trigger language plpgsql as $$
    declare wanted refusal;
    begin
        select * into wanted from refusal;
        if old.state = 1 and new.state <> 1 and wanted.times > 0 and nextval('refused') <= wanted.times then
            raise exception 'refused by a test' using errcode = wanted.code;
        end if;
        return new;
    end $$;
    create trigger refuse before update on semel.records for each row execute function refuse();";

/// More often than a store sends a statement again by itself.
const TIMES: u32 = 4;

async fn start() -> PostgresServer {
    let server = PostgresServer::start(&[]).await;
    drop(open(&server.url()).await);
    server.sql("semel", REFUSAL);
    server
}

fn refuse(server: &PostgresServer, code: &str, times: u32) {
    let text = format!(
        "select setval('refused', 1, false); update refusal set code = '{code}', times = {times}"
    );
    server.sql("semel", &text);
}

/// A code that the row is about.
fn example(row: &ServerError) -> String {
    match row.code.strip_suffix('*') {
        Some("") => "22012".to_owned(),
        Some(beginning) => format!("{beginning:0<5}"),
        None => row.code.to_owned(),
    }
}

#[tokio::test]
async fn every_error_is_what_the_table_says() {
    let server = start().await;
    let store = open(&server.url()).await;
    for row in ERRORS {
        let code = example(row);
        let found = ServerError::find(ERRORS, &code);
        assert_eq!(found, Some(row), "{code} is another row's");
        let lease = won(&store, &fresh()).await;
        refuse(&server, &code, u32::MAX);
        let error = store.settle(&lease, &complete("once")).await;
        let error = error.expect_err("the trigger refuses");
        assert_eq!(
            (error.kind, error.certainty),
            (row.kind, row.certainty),
            "{code}: {error:?}"
        );
        refuse(&server, &code, 0);
    }
}

#[tokio::test]
async fn a_settlement_that_is_refused_is_settled_in_the_end() {
    let server = start().await;
    let semel = Semel::open(&server.url()).await.expect("a store");
    for row in ERRORS {
        let code = example(row);
        refuse(&server, &code, TIMES);
        let runs = Arc::new(AtomicU32::new(0));
        let run = async || {
            let runs = Arc::clone(&runs);
            let call = semel.operation("errors").key(&code).payload(&1);
            let effect =
                move || async move { Ok::<_, Failure>(runs.fetch_add(1, Ordering::SeqCst)) };
            call.run(move |_| effect()).await
        };
        let first = run().await;
        assert!(first.is_ok(), "{code}: {first:?}");
        let refused = server.sql("semel", "select last_value from refused");
        let refused: u32 = refused.parse().expect("a number");
        assert!(refused >= TIMES, "{code} was met {refused} times");
        let second = run().await;
        let second = second.unwrap_or_else(|error| panic!("{code}: {error:?}"));
        assert!(second.replayed, "{code}");
        assert_eq!(runs.load(Ordering::SeqCst), 1, "{code}");
    }
}
