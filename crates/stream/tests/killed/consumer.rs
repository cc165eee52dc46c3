//! The process that is killed: an ordinary consumer, as an application would have it.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use semel_core::clock::{Sleep, SystemTime};
use semel_core::{Clock, Tick, Timestamp};
use semel_stream::consume::nats::JetStream;
use semel_stream::consume::{BrokerError, Consumer, ConsumerOptions, Effect};
use semel_stream::postgres::Inbox;
use semel_stream::{Order, StreamOperation};
use sqlx::PgConnection;
use sqlx::postgres::PgPoolOptions;

use crate::{DURABLE, STREAM};

/// Notes each operation; twice, if it is told to twice.
struct Note;

impl Effect for Note {
    async fn apply(
        &mut self,
        transaction: &mut PgConnection,
        operation: &StreamOperation,
        payload: &[u8],
    ) -> Result<(), BrokerError> {
        let (session, seqno) = std::str::from_utf8(payload)?
            .split_once(' ')
            .ok_or("no space")?;
        let seqno: i64 = seqno.parse()?;
        if operation
            .place()
            .is_some_and(|(_, at)| i64::try_from(at.seqno.0) != Ok(seqno))
        {
            return Err("the headers are of another message".into());
        }
        let note = sqlx::query("INSERT INTO effects (session, seqno) VALUES ($1, $2)");
        note.bind(session).bind(seqno).execute(transaction).await?;
        Ok(())
    }
}

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

pub(crate) async fn consume(nats: &str, postgres: &str) {
    let pool = PgPoolOptions::new()
        .max_connections(2)
        .connect(postgres)
        .await;
    let pool = pool.expect("the database");
    // The server may be about to restart.
    let broker = loop {
        if let Ok(consumer) = consumer(nats).await {
            break JetStream::new(consumer);
        }
        tokio::task::yield_now().await;
    };
    let inbox = Inbox::new(DURABLE, Order::Contiguous).expect("a name");
    let options = ConsumerOptions::default().with_batch(200);
    let clock = Arc::new(TokioClock(SystemTime::default()));
    let forever = std::future::pending();
    let mut consumer = Consumer::new(broker, pool, inbox, Note, options);
    consumer.run(clock, forever, drop).await;
}

async fn consumer(url: &str) -> Result<jetstream::consumer::PullConsumer, BrokerError> {
    let client = async_nats::connect(url).await?;
    let stream = jetstream::new(client).get_stream(STREAM).await?;
    stream.get_consumer(DURABLE).await
}
