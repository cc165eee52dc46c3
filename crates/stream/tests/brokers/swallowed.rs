//! Effects that spoil the transaction and say that all is well.

use semel_stream::consume::nats::JetStream;
use semel_stream::consume::{BrokerError, Consumer, Effect};
use semel_stream::postgres::Inbox;
use semel_stream::{Order, StreamOperation};
use semel_testkit::private::NatsServer;
use sqlx::PgConnection;

use crate::{Sent, database, effects, jetstream, note, options, until_quiet};

const MESSAGES: &[Sent] = &[
    ("a", "1", "", "a1"),
    ("b", "1", "", "b1"),
    ("c", "1", "", "c1"),
];

/// Notes the payload. After the last of them it runs a statement that spoils the transaction, so
/// many times.
struct Spoil {
    consumer: String,
    statement: &'static str,
    times: u32,
}

impl Effect for Spoil {
    async fn apply(
        &mut self,
        transaction: &mut PgConnection,
        _: &StreamOperation,
        payload: &[u8],
    ) -> Result<(), BrokerError> {
        let payload = std::str::from_utf8(payload)?;
        note(&self.consumer, payload, transaction).await?;
        if payload == "c1" && self.times > 0 {
            self.times -= 1;
            // Whatever comes of it is swallowed.
            let _ = sqlx::query(self.statement).execute(transaction).await;
        }
        Ok(())
    }
}

async fn spoiled(name: &str, statement: &'static str) {
    let server = NatsServer::start().await;
    let broker = JetStream::new(jetstream::sent(&server.url(), MESSAGES).await);
    let pool = database().await;
    let consumer = format!("{name} {}", std::process::id());
    let effect = Spoil {
        consumer: consumer.clone(),
        statement,
        // In the transaction of all, and in its own.
        times: 2,
    };
    let inbox = Inbox::new(&consumer, Order::Contiguous).expect("a name");
    let mut work = Consumer::new(broker, pool.clone(), inbox, effect, options(100));
    let first = work.turn().await.expect("a turn");
    assert_eq!((first.applied, first.failed), (2, 1), "{first:?}");
    assert_eq!(effects(&pool, &consumer).await, ["a1", "b1"]);
    // It was not acknowledged, so it comes again; and it was not recorded, so it is applied.
    let later = until_quiet(&mut work).await;
    assert_eq!((later.applied, later.duplicates), (1, 0), "{later:?}");
    assert_eq!(effects(&pool, &consumer).await, ["a1", "b1", "c1"]);
}

#[tokio::test]
async fn an_effect_that_swallows_an_error_has_failed_and_the_others_are_applied() {
    // An id is never null.
    let refused = "INSERT INTO stream_effects (id) VALUES (NULL)";
    spoiled("swallowed", refused).await;
}

#[tokio::test]
async fn an_effect_that_rolls_back_itself_has_failed_and_the_others_are_applied() {
    spoiled("rolled back", "ROLLBACK").await;
}
