//! Real brokers: what they deliver twice, too early, without a name, or to an effect that fails.

mod jetstream;
mod rabbit;
mod swallowed;

use std::collections::HashMap;
use std::time::Duration;

use semel_core::clock::{Sleep, SystemTime};
use semel_core::{Clock, Tick, Timestamp};
use semel_stream::consume::{Broker, BrokerError, Consumer, ConsumerOptions, Effect, TurnReport};
use semel_stream::postgres::{Inbox, migrate};
use semel_stream::{Order, StreamOperation};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgConnection, PgPool};

/// What to send: session, number and key as headers, empty ones left out; and the payload.
type Sent = (&'static str, &'static str, &'static str, &'static str);

/// In the order in which they are sent.
const MESSAGES: &[Sent] = &[
    ("a", "1", "", "a1"),
    ("a", "1", "", "a1"),
    ("a", "3", "", "a3"),
    ("", "", "k", "k"),
    ("", "", "k", "k"),
    ("", "", "", "nameless"),
    ("b", "1", "", "b1"),
    ("b", "2", "", "b2"),
    ("a", "2", "", "a2"),
];

struct TokioClock(SystemTime);

impl Clock for TokioClock {
    fn now(&self) -> Tick {
        self.0.now()
    }

    fn wall(&self) -> Timestamp {
        self.0.wall()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn sleep(&self, for_time: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(for_time))
    }
}

fn clock() -> TokioClock {
    TokioClock(SystemTime::default())
}

async fn note(consumer: &str, payload: &str, to: &mut PgConnection) -> Result<(), BrokerError> {
    let note = sqlx::query("INSERT INTO stream_effects (consumer, payload) VALUES ($1, $2)");
    note.bind(consumer).bind(payload).execute(to).await?;
    Ok(())
}

/// Notes the payload; fails the first times for some.
struct Note {
    consumer: String,
    fails: HashMap<&'static str, u32>,
}

impl Effect for Note {
    async fn apply(
        &mut self,
        transaction: &mut PgConnection,
        _: &StreamOperation,
        payload: &[u8],
    ) -> Result<(), BrokerError> {
        let payload = std::str::from_utf8(payload)?;
        note(&self.consumer, payload, transaction).await?;
        // After its write, which must not stay.
        if let Some(times) = self.fails.get_mut(payload).filter(|times| **times > 0) {
            *times -= 1;
            return Err("it fails at first".into());
        }
        Ok(())
    }
}

async fn database() -> PgPool {
    let url = std::env::var("SEMEL_TEST_POSTGRES_URL")
        .expect("SEMEL_TEST_POSTGRES_URL: see `cargo xtask services up postgres`");
    let pool = PgPoolOptions::new().max_connections(4).connect(&url).await;
    let pool = pool.expect("the database");
    migrate(&pool).await.expect("tables");
    let table = "SELECT pg_advisory_xact_lock(7306637); \
         CREATE TABLE IF NOT EXISTS stream_effects (id bigserial, consumer text, payload text)";
    sqlx::raw_sql(table).execute(&pool).await.expect("a table");
    pool
}

/// So many messages in a transaction, and little patience.
fn options(batch: usize) -> ConsumerOptions {
    ConsumerOptions::default()
        .with_batch(batch)
        .with_wait(Duration::from_millis(300))
        .with_again(Duration::from_millis(50))
}

/// Turns until nothing comes any more. → their sum.
async fn until_quiet<B: Broker, E: Effect>(work: &mut Consumer<B, E>) -> TurnReport {
    let mut sum = TurnReport::default();
    let mut quiet = 0;
    while quiet < 5 {
        let turn = work.turn().await.expect("a turn");
        quiet = if turn == TurnReport::default() {
            quiet + 1
        } else {
            0
        };
        sum.applied += turn.applied;
        sum.duplicates += turn.duplicates;
        sum.gaps += turn.gaps;
        sum.malformed += turn.malformed;
        sum.failed += turn.failed;
    }
    sum
}

/// What a consumer has done, in its order.
async fn effects(pool: &PgPool, consumer: &str) -> Vec<String> {
    let question = "SELECT payload FROM stream_effects WHERE consumer = $1 ORDER BY id";
    let question = sqlx::query_scalar::<_, String>(question).bind(consumer);
    question.fetch_all(pool).await.expect("effects")
}

/// Consumes until nothing comes any more. → what became of all, and what was done.
async fn applied<B: Broker>(
    broker: B,
    name: &str,
    batch: usize,
    fails: HashMap<&'static str, u32>,
) -> (TurnReport, Vec<String>) {
    let pool = database().await;
    let consumer = format!("{name} {}", std::process::id());
    let effect = Note {
        consumer: consumer.clone(),
        fails,
    };
    let inbox = Inbox::new(&consumer, Order::Contiguous).expect("a name");
    let mut work = Consumer::new(broker, pool.clone(), inbox, effect, options(batch));
    let sum = until_quiet(&mut work).await;
    (sum, effects(&pool, &consumer).await)
}

/// Consumes [`MESSAGES`], with `batch` of them in a transaction: all that can be is applied.
async fn consume<B: Broker>(broker: B, name: &str, batch: usize) {
    let fails = HashMap::from([("b1", 2), ("k", 2)]);
    let (sum, effects) = applied(broker, name, batch, fails).await;
    assert_eq!((sum.applied, sum.malformed), (6, 1), "{sum:?}");
    assert!(
        sum.duplicates == 2 && sum.gaps >= 1 && sum.failed >= 2,
        "{sum:?}"
    );
    let of = |first: char| -> Vec<&str> {
        let texts = effects.iter().map(String::as_str);
        texts.filter(|text| text.starts_with(first)).collect()
    };
    assert_eq!(of('a'), ["a1", "a2", "a3"]);
    assert_eq!(of('b'), ["b1", "b2"]);
    assert_eq!(of('k'), ["k"]);
    assert_eq!(effects.len(), 6);
}
