//! Whether the server is fit to keep records: asked at start, and again every half minute.
//!
//! A Redis that evicts keys when its memory is full forgets what was done, and the next retry does it
//! again. That is refused at start, and noticed when somebody changes it later.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use semel_core::{Certainty, Clock, StoreError, StoreErrorKind, StoreResult};

use super::Inner;
use super::error::unexpected;
use super::link::Link;

const LOOK_EVERY: Duration = Duration::from_secs(30);

/// What is known of the server.
pub(super) struct Server {
    /// Its name and version, such as `Redis 7.0.15`.
    pub(super) version: String,
    /// Whether it has `SET … IFEQ`.
    pub(super) has_ifeq: bool,
    evicts: AtomicBool,
}

impl Server {
    /// Refuses while the server is set to evict keys.
    pub(super) fn is_fit(&self) -> StoreResult<()> {
        if self.evicts.load(Ordering::Relaxed) {
            Err(evicting())
        } else {
            Ok(())
        }
    }
}

fn evicting() -> StoreError {
    let said = "the server evicts keys when its memory is full, and would forget what was done; \
                set maxmemory-policy to noeviction";
    StoreError::new(StoreErrorKind::Rejected, Certainty::Definite, said)
}

/// Looks the server over.
pub(super) async fn check(link: &Link) -> StoreResult<Server> {
    let info = info(link, "server").await?;
    let field = |name: &str| value(&info, name);
    let (name, version) = match (field("valkey_version"), field("redis_version")) {
        (Some(version), _) => ("Valkey", version),
        (None, Some(version)) => ("Redis", version),
        (None, None) => return Err(unexpected("INFO without a version")),
    };
    let number = numbers(version);
    if number < (7, 0) {
        let said = format!("{name} {version} is too old: 7.0 or newer is needed for SET NX GET");
        return Err(StoreError::new(
            StoreErrorKind::Rejected,
            Certainty::Definite,
            said,
        ));
    }
    let has_ifeq = number >= if name == "Valkey" { (8, 1) } else { (8, 4) };
    let evicts = AtomicBool::new(evicts(link).await?);
    let server = Server {
        version: format!("{name} {version}"),
        has_ifeq,
        evicts,
    };
    server.is_fit()?;
    Ok(server)
}

/// Looks again every half minute, for as long as the store is in use.
pub(super) fn watch_over(inner: &Arc<Inner>, clock: Arc<dyn Clock>) {
    let inner: Weak<Inner> = Arc::downgrade(inner);
    tokio::spawn(async move {
        loop {
            clock.sleep(LOOK_EVERY).await;
            let Some(inner) = inner.upgrade() else { return };
            // No answer says nothing about eviction; claims find out for themselves.
            if let Ok(evicts) = evicts(&inner.link).await {
                inner.server.evicts.store(evicts, Ordering::Relaxed);
            }
        }
    });
}

async fn evicts(link: &Link) -> StoreResult<bool> {
    let info = info(link, "memory").await?;
    Ok(value(&info, "maxmemory_policy").is_some_and(|policy| policy != "noeviction"))
}

async fn info(link: &Link, section: &str) -> StoreResult<String> {
    let reply = link.query(redis::cmd("INFO").arg(section)).await?;
    redis::from_redis_value(reply).map_err(|_| unexpected("INFO"))
}

fn value<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

fn numbers(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}
