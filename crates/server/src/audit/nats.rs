//! [`NatsSink`]: a copy of the audit trail in a NATS JetStream stream.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::jetstream::{self, Context, stream};
use async_nats::{ConnectOptions, HeaderMap, header};
use semel_core::BoxFuture;
use tokio::sync::Mutex;

use super::entry::Entry;
use super::sink::{AuditHistory, Sink};
use crate::web::hex;

/// How long the server may take for a call.
const LIMIT: Duration = Duration::from_secs(5);

/// The server's duplicate window. Readers detect later duplicates by their `event_id`.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(10 * 60);

/// The settings of a copy in NATS.
#[derive(Clone, Debug)]
pub struct NatsConfig {
    /// The URL of the server, or several, separated by commas.
    pub url: String,
    /// A credentials file, if the server requires one.
    pub credentials_file: Option<PathBuf>,
    /// The name of the stream. It is created if needed; an existing stream stays unchanged.
    pub stream: String,
    /// The prefix of subjects. A hash of the actor follows.
    pub subject: String,
    /// The retention of a created stream.
    pub retention: Duration,
}

/// A copy of the trail in NATS. It connects at the first write.
pub struct NatsSink {
    config: NatsConfig,
    context: Mutex<Option<Context>>,
}

impl NatsSink {
    /// A copy with these settings.
    #[must_use]
    pub fn new(config: NatsConfig) -> Self {
        Self {
            config,
            context: Mutex::new(None),
        }
    }

    /// The connection. The first call connects and creates the stream.
    async fn connect(&self) -> io::Result<Context> {
        let mut cached = self.context.lock().await;
        if let Some(context) = &*cached {
            return Ok(context.clone());
        }
        let config = &self.config;
        let mut options = ConnectOptions::new()
            .name("semel-audit")
            .connection_timeout(LIMIT);
        if let Some(file) = &config.credentials_file {
            options = options.credentials_file(file).await?;
        }
        let urls: Vec<&str> = config.url.split(',').map(str::trim).collect();
        let client = options.connect(urls).await.map_err(io::Error::other)?;
        let mut context = jetstream::new(client);
        context.set_timeout(LIMIT);
        let wanted = stream::Config {
            name: config.stream.clone(),
            subjects: vec![format!("{}.>", config.subject)],
            max_age: config.retention,
            duplicate_window: DUPLICATE_WINDOW.min(config.retention),
            ..stream::Config::default()
        };
        let created = context.get_or_create_stream(wanted).await;
        created.map_err(io::Error::other)?;
        *cached = Some(context.clone());
        Ok(context)
    }

    /// The subject of an entry. The entries of one actor have one subject, so that an erasure can
    /// remove them, because messages cannot be changed. Entries of operators stay.
    fn entry_subject(&self, entry: &Entry) -> String {
        match &entry.actor {
            _ if entry.is_by_operator() => format!("{}.operators", self.config.subject),
            None => format!("{}.nobody", self.config.subject),
            Some(actor) => self.actor_subject(actor),
        }
    }

    fn actor_subject(&self, actor: &str) -> String {
        let hash = blake3::hash(actor.as_bytes());
        let digest = hex(hash.as_bytes().get(..16).unwrap_or_default());
        format!("{}.{digest}", self.config.subject)
    }

    async fn publish(&self, batch: &[Entry]) -> io::Result<()> {
        let context = self.connect().await?;
        let mut acks = Vec::with_capacity(batch.len());
        for entry in batch {
            let mut headers = HeaderMap::new();
            headers.insert(header::NATS_MESSAGE_ID, entry.event_id.as_str());
            let subject = self.entry_subject(entry);
            let payload = serde_json::to_vec(entry)?.into();
            let sent = context
                .publish_with_headers(subject, headers, payload)
                .await;
            acks.push(sent.map_err(io::Error::other)?);
        }
        for ack in acks {
            ack.await.map_err(io::Error::other)?;
        }
        Ok(())
    }
}

impl Sink for NatsSink {
    fn name(&self) -> &'static str {
        "nats"
    }

    fn write<'a>(&'a self, batch: &'a [Entry]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let published = self.publish(batch).await;
            if published.is_err() {
                // The stream may be gone, or the server may be another one, so reconnect.
                *self.context.lock().await = None;
            }
            published
        })
    }

    /// Removes the actor's entries, because messages cannot be changed. The files keep them without
    /// the name.
    fn erase<'a>(&'a self, actor: &'a str) -> BoxFuture<'a, io::Result<u64>> {
        Box::pin(async move {
            let context = self.connect().await?;
            let stream = context.get_stream(&self.config.stream).await;
            let stream = stream.map_err(io::Error::other)?;
            let purged = stream.purge().filter(self.actor_subject(actor)).await;
            Ok(purged.map_err(io::Error::other)?.purged)
        })
    }

    /// Always empty: histories come from the files.
    fn history<'a>(&'a self, _: &'a str, _: usize) -> BoxFuture<'a, io::Result<AuditHistory>> {
        Box::pin(std::future::ready(Ok(AuditHistory::default())))
    }
}
