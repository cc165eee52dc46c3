//! Producers that send many things twice, and again what they heard nothing of.

use async_nats::HeaderMap;
use async_nats::jetstream::{self, Context};
use futures_util::StreamExt as _;
use futures_util::stream;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::STREAM;

const SESSIONS: u64 = 20;

/// Messages that wait for their acknowledgement at once.
const AT_ONCE: usize = 64;

/// Sends `operations` of twenty sessions and of one that has keys instead of numbers. → how many
/// messages that took.
pub(crate) async fn send(url: String, operations: u64) -> u64 {
    let client = async_nats::connect(url).await.expect("the server");
    let context = jetstream::new(client);
    let mut random = StdRng::seed_from_u64(1);
    let mut messages = Vec::new();
    for n in 0..operations {
        let (session, seqno) = (n % (SESSIONS + 1), n / (SESSIONS + 1) + 1);
        messages.push((session, seqno));
        while random.random_bool(0.2) {
            // A duplicate, of this or of something before it.
            let before = random.random_range(0..messages.len().min(1_000));
            messages.push(messages[messages.len() - 1 - before]);
        }
    }
    let total = messages.len() as u64;
    let sent = stream::iter(messages).map(|(session, seqno)| publish(&context, session, seqno));
    let again: u64 = sent
        .buffered(AT_ONCE)
        .fold(0, async |sum, again| sum + again)
        .await;
    total + again
}

/// Until it is acknowledged. → how many times it was sent again.
async fn publish(context: &Context, session: u64, seqno: u64) -> u64 {
    let mut again = 0;
    loop {
        let mut headers = HeaderMap::new();
        let name = if session == SESSIONS {
            "keyed".to_owned()
        } else {
            format!("session-{session}")
        };
        if session == SESSIONS {
            headers.insert("Idempotency-Key", format!("keyed-{seqno}"));
        } else {
            headers.insert("Semel-Session", name.as_str());
            headers.insert("Semel-Sequence", seqno.to_string());
        }
        let payload = format!("{name} {seqno}");
        let sent = context
            .publish_with_headers(STREAM, headers, payload.into())
            .await;
        if let Ok(acknowledgement) = sent
            && acknowledgement.await.is_ok()
        {
            return again;
        }
        again += 1;
    }
}
