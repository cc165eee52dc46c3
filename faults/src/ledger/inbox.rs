//! The stream inbox: messages that are delivered many times, and applied in the transaction that
//! admits them.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use semel_stream::postgres::Inbox;
use semel_stream::{Order, StreamKey, StreamOperation};
use sqlx::{AssertSqlSafe, PgPool};

use super::client::Client;
use crate::clock::pass;

const CONSUMER: &str = "ledger";
pub(super) const DOOR: &str = "inbox";

/// Delivers messages repeatedly.
pub(super) async fn consume(client: Arc<Client>, pool: PgPool, mut rng: StdRng) {
    loop {
        let name = client.name(&mut rng);
        match deliver(&client, &pool, &name).await {
            Ok(()) => client.tell(DOOR, &name, "applied"),
            Err(_) => pass(Duration::from_millis(20)).await,
        }
    }
}

/// One delivery: applied, recognized as a duplicate, or failed and delivered again.
pub(super) async fn deliver(client: &Client, pool: &PgPool, name: &str) -> anyhow::Result<()> {
    let inbox = Inbox::new(CONSUMER, Order::Contiguous)?;
    let operation = StreamOperation::keyed(StreamKey::from_text(name.as_bytes()));
    let mut tx = pool.begin().await?;
    let admitted = inbox.admit(&mut tx, &[operation]).await?;
    if admitted.iter().all(|admission| admission.applies()) {
        let insert = client.entry(DOOR, name).insert(0);
        sqlx::raw_sql(AssertSqlSafe(insert))
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(())
}
