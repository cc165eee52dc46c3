//! RabbitMQ.

use std::sync::Arc;
use std::time::Duration;

use lapin::options::{
    BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use semel_core::clock::{Sleep, SystemTime};
use semel_core::{Clock, Tick, Timestamp};
use semel_stream::consume::rabbitmq::Rabbit;

use crate::{MESSAGES, consume};

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

async fn publish(channel: &Channel, queue: &str) {
    for (session, sequence, key, payload) in MESSAGES {
        let mut headers = FieldTable::default();
        for (name, value) in [("Semel-Session", *session), ("Semel-Sequence", *sequence)] {
            if !value.is_empty() {
                headers.insert(name.into(), AMQPValue::LongString(value.into()));
            }
        }
        let mut properties = BasicProperties::default().with_headers(headers);
        if !key.is_empty() {
            properties = properties.with_message_id((*key).into());
        }
        let options = BasicPublishOptions::default();
        let sent = channel.basic_publish(
            "".into(),
            queue.into(),
            options,
            payload.as_bytes(),
            properties,
        );
        sent.await.expect("it is sent").await.expect("it is kept");
    }
}

async fn once(name: &str, batch: u16) {
    let url = std::env::var("SEMEL_TEST_RABBITMQ_URL")
        .expect("SEMEL_TEST_RABBITMQ_URL: see `cargo xtask services up rabbitmq`");
    let connection = Connection::connect(&url, ConnectionProperties::default());
    let connection = connection.await.expect("the server");
    let channel = connection.create_channel().await.expect("a channel");
    let queue = format!("{name} {}", std::process::id());
    let options = QueueDeclareOptions {
        auto_delete: true,
        ..QueueDeclareOptions::default()
    };
    let declared = channel.queue_declare(queue.as_str().into(), options, FieldTable::default());
    declared.await.expect("a queue");
    publish(&channel, &queue).await;
    // All that is on its way, and what is held back, at once.
    channel
        .basic_qos(100, BasicQosOptions::default())
        .await
        .expect("a prefetch");
    let consumer = channel.basic_consume(
        queue.as_str().into(),
        "semel".into(),
        BasicConsumeOptions::default(),
        FieldTable::default(),
    );
    let clock = Arc::new(TokioClock(SystemTime::default()));
    let rabbit = Rabbit::new(consumer.await.expect("a consumer"), clock);
    consume(rabbit, name, batch.into()).await;
}

#[tokio::test]
async fn rabbitmq_messages_are_applied_once_in_large_batches() {
    once("rabbitmq large", 100).await;
}

#[tokio::test]
async fn rabbitmq_messages_are_applied_once_one_by_one() {
    once("rabbitmq small", 1).await;
}
