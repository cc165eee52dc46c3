//! The sink that the configuration asks for.

use std::path::PathBuf;
use std::sync::Arc;

use semel_core::Env;

use super::file::{FileConfig, FileSink};
use super::nats::{NatsConfig, NatsSink};
use super::postgres::PostgresSink;
use super::ship::Shipped;
use super::sink::{Nowhere, Sink};
use crate::config;
use crate::start::StartError;

/// Files, and copies of them where that is asked for. Copies connect later, and whenever they have to: the process starts
/// without them.
pub(crate) fn open(audit: &config::Audit, env: &Env) -> Result<Arc<dyn Sink>, StartError> {
    let Some(file) = &audit.file else {
        return Ok(Arc::new(Nowhere));
    };
    let mut settings = FileConfig::new(file);
    settings.retention = audit.retention.0;
    let files = FileSink::open(settings, Arc::clone(&env.clock));
    let files = files.map_err(|error| StartError::File {
        what: "audit.file",
        message: format!("{file}: {error}"),
    })?;
    let mut copies: Vec<Arc<dyn Sink>> = Vec::new();
    let postgres = &audit.postgres;
    if let Some(url) = url("audit.postgres.url_file", &postgres.url, &postgres.url_file)? {
        let sink = PostgresSink::new(&url, audit.retention.0, Arc::clone(&env.clock));
        // What is wrong with a URL is not said: it may have a password in it.
        let sink = sink.map_err(|_| StartError::File {
            what: "audit.postgres.url",
            message: "this is no URL of a PostgreSQL database".to_owned(),
        })?;
        copies.push(Arc::new(sink));
    }
    let nats = &audit.nats;
    if let Some(url) = url("audit.nats.url_file", &nats.url, &nats.url_file)? {
        copies.push(Arc::new(NatsSink::new(NatsConfig {
            url,
            credentials_file: nats.credentials_file.as_ref().map(PathBuf::from),
            stream: nats.stream.clone(),
            subject: nats.subject.clone(),
            retention: audit.retention.0,
        })));
    }
    if copies.is_empty() {
        return Ok(Arc::new(files));
    }
    Ok(Arc::new(Shipped::start(files, copies, env)))
}

fn url(
    what: &'static str,
    url: &Option<String>,
    file: &Option<String>,
) -> Result<Option<String>, StartError> {
    match (url, file) {
        (Some(url), _) => Ok(Some(url.clone())),
        (None, None) => Ok(None),
        (None, Some(file)) => match std::fs::read_to_string(file) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) => Err(StartError::File {
                what,
                message: format!("{file}: {error}"),
            }),
        },
    }
}
