//! [`Sink`]: where audit entries go.

use std::io;

use semel_core::BoxFuture;

use super::entry::Entry;
use super::ship::Shipping;

/// Takes audit entries. Called by one task, off the hot path; may take its time.
///
/// # Contract
///
/// - `write` takes a lot in order. *After* `Ok`, the lot is kept as durably as the sink says. An error may leave
///   part of it kept: the same lot is sent again, so an entry may come twice, with the same `event_id`.
/// - `erase` makes every kept entry of an actor nameless, and keeps the entry.
/// - What a sink can't do, it says.
pub trait Sink: Send + Sync + 'static {
    /// Its name, for people.
    fn name(&self) -> &'static str;

    /// Keeps a lot of entries.
    fn write<'a>(&'a self, lot: &'a [Entry]) -> BoxFuture<'a, io::Result<()>>;

    /// Replaces the name of `actor` by [`ERASED`](super::ERASED) wherever it is kept; answers in how many entries.
    fn erase<'a>(&'a self, actor: &'a str) -> BoxFuture<'a, io::Result<u64>>;

    /// The last entries about the key with this hash, oldest first.
    fn history<'a>(&'a self, id: &'a str, most: usize) -> BoxFuture<'a, io::Result<History>>;

    /// Before the process ends: sends what waits, for a while. A sink that keeps a lot when it is written has nothing to do.
    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Copies of the trail elsewhere, and how far behind they are.
    fn copies(&self) -> Vec<Shipping> {
        Vec::new()
    }
}

/// What a sink knows of one key.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Oldest first.
    pub entries: Vec<Entry>,
    /// Whether that is all that the sink ever kept about it.
    pub complete: bool,
}

/// Keeps nothing: the trail is in memory alone, and says so.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nowhere;

impl Sink for Nowhere {
    fn name(&self) -> &'static str {
        "none"
    }

    fn write<'a>(&'a self, _: &'a [Entry]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn erase<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<u64>> {
        Box::pin(std::future::ready(Ok(0)))
    }

    fn history<'a>(&'a self, _: &'a str, _: usize) -> BoxFuture<'a, io::Result<History>> {
        Box::pin(std::future::ready(Ok(History::default())))
    }
}
