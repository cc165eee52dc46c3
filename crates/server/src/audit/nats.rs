//! [`NatsSink`]: a copy of the audit trail in a JetStream stream.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::jetstream::{self, Context, stream};
use async_nats::{ConnectOptions, HeaderMap, header};
use semel_core::BoxFuture;
use tokio::sync::Mutex;

use super::entry::Entry;
use super::sink::{History, Sink};
use crate::api::hex;

/// How long the server may take to take an entry.
const LIMIT: Duration = Duration::from_secs(5);

/// For how long the server tells duplicates by itself; later ones are told by their `event_id`.
const DUPLICATES: Duration = Duration::from_secs(10 * 60);

/// Where the copy is.
#[derive(Clone, Debug)]
pub struct NatsConfig {
    /// The server's URL, or several with commas between them.
    pub url: String,
    /// A file of credentials, where the server wants them.
    pub credentials_file: Option<PathBuf>,
    /// The stream. Made where it isn't there; one that is there is left as it is.
    pub stream: String,
    /// How subjects begin; what follows stands for the actor.
    pub subject: String,
    /// How long the stream keeps entries, where it is made.
    pub retention: Duration,
}

/// A copy of the trail in NATS. Connects when it is first written to.
pub struct NatsSink {
    config: NatsConfig,
    context: Mutex<Option<Context>>,
}

impl NatsSink {
    /// A copy there.
    #[must_use]
    pub fn new(config: NatsConfig) -> Self {
        Self {
            config,
            context: Mutex::new(None),
        }
    }

    /// The connection, and the stream made sure of, once.
    async fn context(&self) -> io::Result<Context> {
        let mut known = self.context.lock().await;
        if let Some(context) = &*known {
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
            duplicate_window: DUPLICATES.min(config.retention),
            ..stream::Config::default()
        };
        let made = context.get_or_create_stream(wanted).await;
        made.map_err(io::Error::other)?;
        *known = Some(context.clone());
        Ok(context)
    }

    /// All that one actor asked for is under one subject, so that it can be removed: a message can't be changed. What
    /// operators did stays.
    fn subject_of(&self, entry: &Entry) -> String {
        match &entry.actor {
            _ if entry.is_of_an_operator() => format!("{}.operators", self.config.subject),
            None => format!("{}.nobody", self.config.subject),
            Some(actor) => self.subject(actor),
        }
    }

    fn subject(&self, actor: &str) -> String {
        let hash = blake3::hash(actor.as_bytes());
        let whose = hex(hash.as_bytes().get(..16).unwrap_or_default());
        format!("{}.{whose}", self.config.subject)
    }

    async fn publish(&self, lot: &[Entry]) -> io::Result<()> {
        let context = self.context().await?;
        let mut taken = Vec::with_capacity(lot.len());
        for entry in lot {
            let mut headers = HeaderMap::new();
            headers.insert(header::NATS_MESSAGE_ID, entry.event_id.as_str());
            let subject = self.subject_of(entry);
            let payload = serde_json::to_vec(entry)?.into();
            let sent = context
                .publish_with_headers(subject, headers, payload)
                .await;
            taken.push(sent.map_err(io::Error::other)?);
        }
        for ack in taken {
            ack.await.map_err(io::Error::other)?;
        }
        Ok(())
    }
}

impl Sink for NatsSink {
    fn name(&self) -> &'static str {
        "nats"
    }

    fn write<'a>(&'a self, lot: &'a [Entry]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let published = self.publish(lot).await;
            if published.is_err() {
                // The stream may be gone, or the server another one: begin anew.
                *self.context.lock().await = None;
            }
            published
        })
    }

    /// Removes the actor's entries: messages can't be changed. The files keep them, without the name.
    fn erase<'a>(&'a self, actor: &'a str) -> BoxFuture<'a, io::Result<u64>> {
        Box::pin(async move {
            let context = self.context().await?;
            let stream = context.get_stream(&self.config.stream).await;
            let stream = stream.map_err(io::Error::other)?;
            let purged = stream.purge().filter(self.subject(actor)).await;
            Ok(purged.map_err(io::Error::other)?.purged)
        })
    }

    /// Not asked: the files know as much.
    fn history<'a>(&'a self, _: &'a str, _: usize) -> BoxFuture<'a, io::Result<History>> {
        Box::pin(std::future::ready(Ok(History::default())))
    }
}
