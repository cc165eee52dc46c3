//! Copies of the audit trail, on private servers that are stopped and restarted.

mod support;

use std::sync::Arc;
use std::time::Duration;

use semel_server::audit::{Entry, NatsSink, PostgresSink, Sink};
use semel_testkit::private::{NatsServer, PostgresServer};

use support::{Trailing, entry, nats, nats_entries, nats_stream, pause, until};

const DAYS_90: Duration = Duration::from_secs(90 * 24 * 60 * 60);

fn postgres(server: &PostgresServer) -> PostgresSink {
    PostgresSink::new(&server.url(), DAYS_90, semel::tokio_env().clock).expect("a URL")
}

fn count(server: &PostgresServer) -> usize {
    let counted = server.try_sql("semel", "select count(*) from semel_audit");
    counted.ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_copy_catches_up_after_an_outage() {
    let mut server = PostgresServer::start(&[]).await;
    let trailing = Trailing::start(vec![Arc::new(postgres(&server))]);
    trailing.write(300).await;
    until(|| count(&server) > 100).await;
    server.kill();
    trailing.write(2_000).await;
    assert_eq!(
        trailing.trail.lost(),
        0,
        "nobody waits for a copy that is away"
    );
    until(|| trailing.copy().failing).await;
    assert!(trailing.copy().behind_bytes > 0);
    server.restart().await;
    trailing.write(100).await;
    until(|| count(&server) == trailing.ids().len()).await;
    until(|| trailing.copy().behind_bytes == 0).await;
    let ids = server.sql(
        "semel",
        "select string_agg(event_id, ',' order by at, event_id) from semel_audit",
    );
    let mut there: Vec<&str> = ids.split(',').collect();
    there.sort_unstable();
    assert_eq!(there, trailing.ids());
    assert!(!trailing.copy().failing);
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_copy_catches_up_after_an_outage() {
    let mut server = NatsServer::start().await;
    let trailing = Trailing::start(vec![Arc::new(NatsSink::new(nats(&server)))]);
    trailing.write(300).await;
    until(|| trailing.copy().sent > 100).await;
    server.kill();
    trailing.write(2_000).await;
    assert_eq!(
        trailing.trail.lost(),
        0,
        "nobody waits for a copy that is away"
    );
    until(|| trailing.copy().failing).await;
    server.restart().await;
    trailing.write(100).await;
    until(|| trailing.copy().sent >= 2_400 && trailing.copy().behind_bytes == 0).await;
    let there = nats_entries(&server).await;
    let mut ids: Vec<&str> = there.iter().map(|entry| entry.event_id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids, trailing.ids(), "at least once each");
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_entries_are_kept_once() {
    let (database, stream) = (PostgresServer::start(&[]).await, NatsServer::start().await);
    let (table, messages) = (postgres(&database), NatsSink::new(nats(&stream)));
    let lot: Vec<Entry> = (0..50)
        .map(|number| entry(number, "2026-11-15", None))
        .collect();
    for _ in 0..3 {
        table.write(&lot).await.expect("taken");
        messages.write(&lot).await.expect("taken");
    }
    assert_eq!(count(&database), 50);
    assert_eq!(nats_entries(&stream).await.len(), 50);
    let history = table.history("ab12", 10).await.expect("an answer");
    assert_eq!((history.entries.len(), history.complete), (10, false));
    assert_eq!(
        history.entries[9], lot[49],
        "as it was written, the newest last"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_expire_after_their_retention() {
    let (database, stream) = (PostgresServer::start(&[]).await, NatsServer::start().await);
    let today = database.sql(
        "semel",
        "select to_char(now() at time zone 'UTC', 'YYYY-MM-DD')",
    );
    let of = |days: u32| {
        database.sql(
            "semel",
            &format!(
                "select to_char((now() - interval '{days} days') at time zone 'UTC', 'YYYY-MM-DD')"
            ),
        )
    };
    let lot = [
        entry(1, &of(120), None),
        entry(2, &of(91), None),
        entry(3, &of(89), None),
        entry(4, &today, None),
    ];
    postgres(&database).write(&lot).await.expect("taken");
    let left = database.sql(
        "semel",
        "select string_agg(event_id, ' ' order by at) from semel_audit",
    );
    assert_eq!(left, "0000000000000000-3 0000000000000000-4");
    let partitions = database.sql(
        "semel",
        "select count(*) from pg_inherits where inhparent = 'semel_audit'::regclass",
    );
    assert_eq!(partitions, "2", "dropped whole");
    // A late entry of a dropped day is accepted.
    postgres(&database).write(&lot).await.expect("taken");

    let mut config = nats(&stream);
    config.retention = Duration::from_secs(1);
    let sink = NatsSink::new(config);
    sink.write(&lot).await.expect("taken");
    for _ in 0..200 {
        // Messages are only counted, because one may expire before it is read.
        if nats_stream(&stream).await.1 == 0 {
            return;
        }
        pause().await;
    }
    panic!("NATS keeps what its retention is over for");
}

#[tokio::test(flavor = "multi_thread")]
async fn erasure_applies_to_every_copy() {
    let (database, mut stream) = (PostgresServer::start(&[]).await, NatsServer::start().await);
    let copies: Vec<Arc<dyn Sink>> = vec![
        Arc::new(postgres(&database)),
        Arc::new(NatsSink::new(nats(&stream))),
    ];
    let trailing = Trailing::start(copies);
    trailing.act("agent_7", 20).await;
    trailing.act("agent_8", 10).await;
    let all = trailing.ids().len() as u64;
    until(|| trailing.trail.copies().iter().all(|copy| copy.sent == all)).await;

    // 20 in the file, 20 in the table, 20 in the stream.
    assert_eq!(trailing.trail.erase("agent_7").await.expect("erased"), 60);
    let named = |name: &str| {
        database.sql("semel", &format!("select count(*) from semel_audit where actor = '{name}' or entry::text like '%{name}%'"))
    };
    assert_eq!(
        (
            named("agent_7").as_str(),
            named("agent_8").as_str(),
            named("erased").as_str()
        ),
        ("0", "10", "20")
    );
    let mut there = nats_entries(&stream).await;
    there.retain(|entry| entry.kind != "audit.checkpoint");
    assert_eq!(
        there.len(),
        10,
        "a message can't be changed, so it is removed"
    );
    assert!(
        there
            .iter()
            .all(|entry| entry.actor.as_deref() == Some("agent_8"))
    );

    // An unreachable copy causes an error, and the entries that wait for it have no name.
    stream.kill();
    trailing.act("agent_8", 5).await;
    let failed = trailing
        .trail
        .erase("agent_8")
        .await
        .expect_err("a server is away");
    assert!(failed.to_string().contains("nats"), "{failed}");
    assert_eq!(named("agent_8"), "0");
    stream.restart().await;
    assert!(
        trailing.trail.erase("agent_8").await.is_ok(),
        "asking again is safe"
    );
    until(|| {
        trailing
            .trail
            .copies()
            .iter()
            .all(|copy| copy.behind_bytes == 0)
    })
    .await;
    let there = nats_entries(&stream).await;
    assert!(
        there
            .iter()
            .all(|entry| entry.actor.as_deref() != Some("agent_8")),
        "{there:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_continues_after_a_restart() {
    let server = PostgresServer::start(&[]).await;
    let trailing = Trailing::start(vec![Arc::new(postgres(&server))]);
    trailing.write(100).await;
    let before = trailing.ids().len();
    until(|| trailing.copy().behind_bytes == 0 && trailing.copy().sent == before as u64).await;
    let folder = trailing.end().await;
    let trailing = Trailing::again(folder, vec![Arc::new(postgres(&server))]);
    trailing.write(50).await;
    // The reported state lags behind the content.
    let (all, fresh) = (trailing.ids().len(), (trailing.ids().len() - before) as u64);
    until(|| count(&server) == all && trailing.copy().sent >= fresh).await;
    assert_eq!(trailing.copy().sent, fresh, "not all of it again");
}
