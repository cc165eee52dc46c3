//! NATS JetStream.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use semel_stream::consume::nats::JetStream;
use semel_testkit::private::NatsServer;

use crate::{MESSAGES, consume};

async fn sent(server: &NatsServer) -> PullConsumer {
    let client = async_nats::connect(server.url()).await.expect("the server");
    let context = jetstream::new(client);
    let stream = context.create_stream(jetstream::stream::Config {
        name: "operations".to_owned(),
        subjects: vec!["operations".to_owned()],
        ..Default::default()
    });
    let stream = stream.await.expect("a stream");
    for (session, sequence, key, payload) in MESSAGES {
        let mut headers = HeaderMap::new();
        let named = [
            ("Semel-Session", *session),
            ("Semel-Sequence", *sequence),
            ("Idempotency-Key", *key),
        ];
        for (name, value) in named.into_iter().filter(|(_, value)| !value.is_empty()) {
            headers.insert(name, value);
        }
        let publish = context.publish_with_headers("operations", headers, (*payload).into());
        let acknowledgement = publish.await.expect("it is sent");
        acknowledgement.await.expect("it is kept");
    }
    let consumer = stream.create_consumer(pull::Config {
        durable_name: Some("effects".to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: Duration::from_secs(5),
        ..Default::default()
    });
    consumer.await.expect("a consumer")
}

#[tokio::test]
async fn jetstream_messages_are_applied_once_in_large_batches() {
    let server = NatsServer::start().await;
    consume(JetStream::new(sent(&server).await), "jetstream large", 100).await;
}

#[tokio::test]
async fn jetstream_messages_are_applied_once_one_by_one() {
    let server = NatsServer::start().await;
    consume(JetStream::new(sent(&server).await), "jetstream small", 1).await;
}
