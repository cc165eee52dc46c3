//! Opening the sink of the configuration.

use std::path::PathBuf;
use std::sync::Arc;

use semel_core::Env;

use super::file::FileSink;
use super::file_config::FileConfig;
use super::nats::{NatsConfig, NatsSink};
use super::postgres::PostgresSink;
use super::replicate::ReplicatedSink;
use super::sink::{MemoryOnlySink, Sink};
use crate::config::{self, SettingError};

/// Opens the files, and starts the replication to copies. Copies connect later, so the process
/// starts without them.
pub(crate) fn open(audit: &config::Audit, env: &Env) -> Result<Arc<dyn Sink>, SettingError> {
    let Some(file) = &audit.file else {
        return Ok(Arc::new(MemoryOnlySink));
    };
    let mut settings = FileConfig::new(file);
    settings.retention = audit.retention.0;
    let files = FileSink::open(settings, Arc::clone(&env.clock));
    let files =
        files.map_err(|error| SettingError::file("audit.file", format!("{file}: {error}")))?;
    let mut copies: Vec<Arc<dyn Sink>> = Vec::new();
    let postgres = &audit.postgres;
    if let Some(url) = read_url("audit.postgres.url_file", &postgres.url, &postgres.url_file)? {
        let sink = PostgresSink::new(&url, audit.retention.0, Arc::clone(&env.clock));
        // The error is not shown, because the URL may contain a password.
        let sink = sink.map_err(|_| {
            let message = "this is not the URL of a PostgreSQL database".to_owned();
            SettingError::url("audit.postgres.url", message)
        })?;
        copies.push(Arc::new(sink));
    }
    let nats = &audit.nats;
    if let Some(url) = read_url("audit.nats.url_file", &nats.url, &nats.url_file)? {
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
    Ok(Arc::new(ReplicatedSink::start(files, copies, env)))
}

fn read_url(
    setting: &'static str,
    url: &Option<String>,
    file: &Option<String>,
) -> Result<Option<String>, SettingError> {
    match (url, file) {
        (Some(url), _) => Ok(Some(url.clone())),
        (None, None) => Ok(None),
        (None, Some(file)) => match std::fs::read_to_string(file) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) => Err(SettingError::file(setting, format!("{file}: {error}"))),
        },
    }
}
