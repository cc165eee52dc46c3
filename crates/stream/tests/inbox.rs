//! Marks and keys in PostgreSQL, in the transaction of the effect.

use std::time::Duration;

use semel_stream::postgres::{Inbox, InboxAdmission, InboxError, migrate};
use semel_stream::{Epoch, Mark, Order, SeqNo, SessionId, StreamKey, StreamOperation, Tenant};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use InboxAdmission::{Apply, Duplicate, Gap, Stale};

/// The shared server, and an inbox of the test's own there.
async fn inbox(name: &str, order: Order) -> (PgPool, Inbox) {
    let url = std::env::var("SEMEL_TEST_POSTGRES_URL")
        .expect("SEMEL_TEST_POSTGRES_URL: see `cargo xtask services up postgres`");
    let pool = PgPoolOptions::new().max_connections(8).connect(&url).await;
    let pool = pool.expect("the database");
    migrate(&pool).await.expect("tables");
    let name = format!("{name} {}", std::process::id());
    let consumer = Inbox::new(&name, order).expect("a name");
    for table in ["stream_sessions", "stream_inbox"] {
        let clear = format!("DELETE FROM semel.{table} WHERE consumer = $1");
        let clear = sqlx::query(sqlx::AssertSqlSafe(clear)).bind(&name);
        clear.execute(&pool).await.expect("an empty inbox");
    }
    (pool, consumer)
}

fn at(session: &str, epoch: u64, seqno: u64) -> StreamOperation {
    StreamOperation::sequenced(SessionId::named(session), Mark::new(epoch, seqno))
}

fn keyed(key: u128) -> StreamOperation {
    StreamOperation::keyed(StreamKey(key))
}

/// In a transaction of its own, committed.
async fn admit(
    pool: &PgPool,
    inbox: &Inbox,
    operations: &[StreamOperation],
) -> Vec<InboxAdmission> {
    let mut transaction = pool.begin().await.expect("a transaction");
    let admissions = inbox.admit(&mut transaction, operations).await;
    transaction.commit().await.expect("a commit");
    admissions.expect("an answer")
}

#[tokio::test]
async fn a_batch_is_judged_in_its_order_and_known_afterwards() {
    let (pool, inbox) = inbox("batch", Order::Contiguous).await;
    let gap = |n| Gap { expected: SeqNo(n) };
    let table = [
        (at("a", 0, 1), Apply),
        (at("a", 0, 1), Duplicate),
        (at("a", 0, 3), gap(2)),
        (at("a", 0, 2), Apply),
        (at("b", 0, 1).with_key(StreamKey(1)), Apply),
        (keyed(2), Apply),
        (keyed(2), Duplicate),
        (at("a", 1, 1), Apply),
        (at("a", 0, 3), Stale { current: Epoch(1) }),
        // The same key, under the number that is next: skipped, and the number is used up.
        (at("b", 0, 2).with_key(StreamKey(1)), Duplicate),
        (at("b", 0, 3), Apply),
    ];
    let operations: Vec<StreamOperation> = table.iter().map(|(operation, _)| *operation).collect();
    let expected: Vec<InboxAdmission> = table.iter().map(|(_, admission)| *admission).collect();
    assert_eq!(admit(&pool, &inbox, &operations).await, expected);
    // Again, as after a commit that nobody heard of.
    let again = admit(&pool, &inbox, &operations).await;
    assert!(
        again.iter().all(|admission| !admission.applies()),
        "{again:?}"
    );
}

#[tokio::test]
async fn what_is_rolled_back_was_never_there() {
    let (pool, inbox) = inbox("rollback", Order::Contiguous).await;
    let operations = [at("a", 0, 1), keyed(1)];
    let mut transaction = pool.begin().await.unwrap();
    let first = inbox.admit(&mut transaction, &operations).await.unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!(first, [Apply, Apply]);
    assert_eq!(admit(&pool, &inbox, &operations).await, [Apply, Apply]);
}

#[tokio::test]
async fn numbers_that_only_grow_say_what_they_pass_over() {
    let (pool, inbox) = inbox("monotonic", Order::Monotonic).await;
    let skips = InboxAdmission::Skips {
        first: SeqNo(1),
        missing: 4,
    };
    let admissions = admit(&pool, &inbox, &[at("a", 0, 5), at("a", 0, 3)]).await;
    assert_eq!(admissions, [skips, Duplicate]);
}

#[tokio::test]
async fn i15_a_duplicate_by_its_key_passes_over_nothing() {
    let (pool, inbox) = inbox("passed over", Order::Monotonic).await;
    let with = |seqno, key| at("a", 0, seqno).with_key(StreamKey(key));
    assert_eq!(admit(&pool, &inbox, &[with(1, 7)]).await, [Apply]);
    // 2 to 4 are still on their way.
    assert_eq!(admit(&pool, &inbox, &[with(5, 7)]).await, [Duplicate]);
    assert_eq!(admit(&pool, &inbox, &[at("a", 0, 2)]).await, [Apply]);
    let batch = [with(5, 7), with(3, 3), with(4, 3), with(6, 6), keyed(3)];
    let passes_over_5 = InboxAdmission::Skips {
        first: SeqNo(5),
        missing: 1,
    };
    let expected = [Duplicate, Apply, Duplicate, passes_over_5, Duplicate];
    assert_eq!(admit(&pool, &inbox, &batch).await, expected);
    assert_eq!(admit(&pool, &inbox, &batch).await, [Duplicate; 5]);
    assert_eq!(admit(&pool, &inbox, &[at("a", 0, 7)]).await, [Apply]);
}

#[tokio::test]
async fn of_many_transactions_at_once_one_applies() {
    let (pool, inbox) = inbox("race", Order::Contiguous).await;
    for round in 1..=20 {
        let mut racing = tokio::task::JoinSet::new();
        for n in 0..8 {
            let (pool, inbox) = (pool.clone(), inbox.clone());
            racing.spawn(async move {
                let mut operations = [at("a", 0, round), at("b", 0, round), keyed(round.into())];
                // Each in another order: they must not wait for each other in a circle.
                operations.rotate_left(n % 3);
                admit(&pool, &inbox, &operations).await
            });
        }
        let outcomes = racing.join_all().await;
        let applied = outcomes
            .iter()
            .flatten()
            .filter(|admission| admission.applies());
        assert_eq!(applied.count(), 3, "round {round}");
    }
}

#[tokio::test]
async fn a_fence_ends_earlier_epochs_for_all_consumers_of_the_name() {
    let (pool, inbox) = inbox("fence", Order::Contiguous).await;
    admit(&pool, &inbox, &[at("a", 0, 1), at("a", 0, 2)]).await;
    let (tenant, session) = (Tenant::default(), SessionId::named("a"));
    let mut connection = pool.acquire().await.unwrap();
    for epoch in [3, 3] {
        let mark = inbox
            .fence(&mut connection, tenant, session, Epoch(epoch))
            .await;
        assert_eq!(mark.unwrap(), Mark::new(0, 2));
    }
    let earlier = inbox
        .fence(&mut connection, tenant, session, Epoch(2))
        .await;
    assert!(matches!(earlier, Err(InboxError::Stale)));
    let admissions = admit(
        &pool,
        &inbox,
        &[at("a", 0, 3), at("a", 2, 1), at("a", 3, 1)],
    )
    .await;
    let stale = Stale { current: Epoch(3) };
    assert_eq!(admissions, [stale, stale, Apply]);
}

#[tokio::test]
async fn tenants_and_consumers_never_meet() {
    let (pool, one) = inbox("one", Order::Contiguous).await;
    let (_, other) = inbox("other", Order::Contiguous).await;
    let operations = [at("a", 0, 1), keyed(1)];
    let theirs = operations.map(|operation| operation.with_tenant(Tenant::named("acme")));
    assert_eq!(admit(&pool, &one, &operations).await, [Apply, Apply]);
    assert_eq!(admit(&pool, &one, &theirs).await, [Apply, Apply]);
    assert_eq!(admit(&pool, &other, &operations).await, [Apply, Apply]);
    assert_eq!(admit(&pool, &one, &theirs).await, [Duplicate, Duplicate]);
}

#[tokio::test]
async fn old_keys_are_swept_and_marks_stay() {
    let (pool, inbox) = inbox("sweep", Order::Contiguous).await;
    let operations: Vec<StreamOperation> = (1..=25).map(keyed).chain([at("a", 0, 1)]).collect();
    admit(&pool, &inbox, &operations).await;
    let mut connection = pool.acquire().await.unwrap();
    let day = Duration::from_secs(86_400);
    assert_eq!(inbox.sweep(&mut connection, day, 10).await.unwrap(), 0);
    let mut swept = Vec::new();
    while swept.last() != Some(&0) {
        swept.push(
            inbox
                .sweep(&mut connection, Duration::ZERO, 10)
                .await
                .unwrap(),
        );
    }
    assert_eq!(swept, [10, 10, 5, 0]);
    assert_eq!(
        admit(&pool, &inbox, &[keyed(1), at("a", 0, 1)]).await,
        [Apply, Duplicate]
    );
}

#[tokio::test]
async fn names_and_numbers_have_bounds() {
    let (pool, inbox) = inbox("bounds", Order::Contiguous).await;
    for name in [String::new(), "x".repeat(129)] {
        assert!(matches!(
            Inbox::new(&name, Order::Contiguous),
            Err(InboxError::Name)
        ));
    }
    let mut transaction = pool.begin().await.unwrap();
    let large = inbox.admit(&mut transaction, &[at("a", 0, u64::MAX)]).await;
    assert!(matches!(large, Err(InboxError::TooLarge)));
}
