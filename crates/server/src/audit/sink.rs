//! [`Sink`]: the interface of destinations of audit entries.

use std::io;

use semel_core::BoxFuture;
use serde::Serialize;
use utoipa::ToSchema;

use super::entry::Entry;

/// A destination of audit entries. One task calls it, outside of the request path, so it may be
/// slow.
///
/// # Contract
///
/// - `write` keeps the entries of a batch in order. After `Ok`, the batch is as durable as the sink
///   guarantees. After an error, a part may be kept, and the same batch is sent again. An entry may
///   therefore come twice, with the same `event_id`.
/// - `erase` replaces the name of an actor in every kept entry, and keeps the entry.
/// - A sink returns an error for operations that it does not support.
pub trait Sink: Send + Sync + 'static {
    /// The name of the sink, for people.
    fn name(&self) -> &'static str;

    /// Keeps a batch of entries.
    fn write<'a>(&'a self, batch: &'a [Entry]) -> BoxFuture<'a, io::Result<()>>;

    /// Replaces the name of `actor` by [`ERASED`](super::ERASED), and returns the number of changed
    /// entries.
    fn erase<'a>(&'a self, actor: &'a str) -> BoxFuture<'a, io::Result<u64>>;

    /// The last entries about the record with this id, oldest first.
    fn history<'a>(&'a self, id: &'a str, most: usize) -> BoxFuture<'a, io::Result<AuditHistory>>;

    /// Sends waiting entries before the process ends, within a time limit. The default does
    /// nothing.
    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// The state of the copies of the trail.
    fn copies(&self) -> Vec<CopyStatus> {
        Vec::new()
    }
}

/// The entries of a sink about one key.
#[derive(Clone, Debug, Default)]
pub struct AuditHistory {
    /// The entries, oldest first.
    pub entries: Vec<Entry>,
    /// Whether these are all entries that the sink has kept.
    pub complete: bool,
}

/// The state of a copy of the trail.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Shipping)]
pub struct CopyStatus {
    /// The kind of copy.
    #[schema(value_type = String)]
    pub sink: &'static str,
    /// The number of bytes of the files that it does not have yet.
    pub behind_bytes: u64,
    /// The number of entries that it has accepted since the start.
    pub sent: u64,
    /// Whether the last attempt failed.
    pub failing: bool,
}

/// A sink that keeps nothing, so that the trail is in memory only.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryOnlySink;

impl Sink for MemoryOnlySink {
    fn name(&self) -> &'static str {
        "none"
    }

    fn write<'a>(&'a self, _: &'a [Entry]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn erase<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<u64>> {
        Box::pin(std::future::ready(Ok(0)))
    }

    fn history<'a>(&'a self, _: &'a str, _: usize) -> BoxFuture<'a, io::Result<AuditHistory>> {
        Box::pin(std::future::ready(Ok(AuditHistory::default())))
    }
}
