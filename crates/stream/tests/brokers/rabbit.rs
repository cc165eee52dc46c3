//! RabbitMQ.

use std::collections::HashMap;
use std::sync::Arc;

use lapin::options::{
    BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use semel_stream::consume::rabbitmq::Rabbit;

use crate::{MESSAGES, applied, clock, consume};

async fn send(channel: &Channel, queue: &str, properties: BasicProperties, payload: &str) {
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
        send(channel, queue, properties, payload).await;
    }
}

/// A new queue. It is gone with its consumer, and all is with the connection.
async fn queue(name: &str) -> (Connection, Channel, String) {
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
    (connection, channel, queue)
}

async fn consumer(channel: &Channel, queue: &str) -> Rabbit {
    // All that is in flight, and what is held back, at once.
    channel
        .basic_qos(100, BasicQosOptions::default())
        .await
        .expect("a prefetch");
    let consumer = channel.basic_consume(
        queue.into(),
        "semel".into(),
        BasicConsumeOptions::default(),
        FieldTable::default(),
    );
    Rabbit::new(consumer.await.expect("a consumer"), Arc::new(clock()))
}

async fn once(name: &str, batch: u16) {
    let (_connection, channel, queue) = queue(name).await;
    publish(&channel, &queue).await;
    let rabbit = consumer(&channel, &queue).await;
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

#[tokio::test]
async fn rabbitmq_numbers_are_read_at_any_width_and_refused_where_they_cannot_be() {
    let name = "rabbitmq numbers";
    let (_connection, channel, queue) = queue(name).await;
    let small = AMQPValue::ShortShortInt;
    let messages = [
        (AMQPValue::LongString("1".into()), None, "first"),
        (AMQPValue::ShortInt(2), None, "second"),
        // A new life of the producer. Taken for the old one, these are duplicates.
        (small(1), Some(small(1)), "third"),
        (small(2), Some(small(1)), "fourth"),
        (small(3), Some(AMQPValue::Boolean(true)), "unreadable"),
    ];
    for (sequence, epoch, payload) in messages {
        let mut headers = FieldTable::default();
        headers.insert("Semel-Session".into(), AMQPValue::LongString("a".into()));
        headers.insert("Semel-Sequence".into(), sequence);
        if let Some(epoch) = epoch {
            headers.insert("Semel-Epoch".into(), epoch);
        }
        let properties = BasicProperties::default().with_headers(headers);
        send(&channel, &queue, properties, payload).await;
    }
    let rabbit = consumer(&channel, &queue).await;
    let (sum, effects) = applied(rabbit, name, 100, HashMap::new()).await;
    assert_eq!(effects, ["first", "second", "third", "fourth"], "{sum:?}");
    assert_eq!((sum.malformed, sum.duplicates), (1, 0), "{sum:?}");
}
