//! NATS JetStream.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::{self, Context};
use semel_stream::consume::Broker as _;
use semel_stream::consume::nats::JetStream;
use semel_testkit::private::NatsServer;
use semel_testkit::proxy::{Cut, Proxy};
use tokio::time::timeout;

use crate::{MESSAGES, Sent, clock, consume};

async fn connect(url: &str) -> Context {
    jetstream::new(async_nats::connect(url).await.expect("the server"))
}

async fn publish(context: &Context, messages: &[Sent]) {
    for (session, sequence, key, payload) in messages {
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
}

/// A consumer of a new stream with these messages.
pub(crate) async fn sent(url: &str, messages: &[Sent]) -> PullConsumer {
    let context = connect(url).await;
    let stream = context.create_stream(jetstream::stream::Config {
        name: "operations".to_owned(),
        subjects: vec!["operations".to_owned()],
        ..Default::default()
    });
    let stream = stream.await.expect("a stream");
    publish(&context, messages).await;
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
    let consumer = sent(&server.url(), MESSAGES).await;
    consume(JetStream::new(consumer), "jetstream large", 100).await;
}

#[tokio::test]
async fn jetstream_messages_are_applied_once_one_by_one() {
    let server = NatsServer::start().await;
    let consumer = sent(&server.url(), MESSAGES).await;
    consume(JetStream::new(consumer), "jetstream small", 1).await;
}

#[tokio::test]
async fn jetstream_is_asked_again_where_its_answer_is_lost_with_the_connection() {
    let server = NatsServer::start().await;
    let url = server.url();
    let address: SocketAddr = url["nats://".len()..].parse().expect("an address");
    let proxy = Proxy::to(address, Arc::new(clock())).await.expect("a way");
    let consumer = sent(&format!("nats://{}", proxy.address()), &[]).await;
    let mut broker = JetStream::new(consumer);
    let (wait, patience) = (Duration::from_millis(300), Duration::from_secs(30));
    // The server says that there is nothing, and nobody hears it. The client connects again by
    // itself.
    proxy.cut(Cut::BeforeReply);
    let fetched = timeout(patience, broker.fetch(10, wait)).await;
    let fetched = fetched.expect("it ends").expect("no error");
    assert!(fetched.is_empty() && proxy.cuts() == 1);
    publish(&connect(&url).await, &MESSAGES[..1]).await;
    let fetched = timeout(patience, broker.fetch(10, wait)).await;
    let fetched = fetched.expect("it ends").expect("no error");
    assert_eq!(fetched.len(), 1);
}
