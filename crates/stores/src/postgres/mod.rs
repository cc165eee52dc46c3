//! PostgreSQL: one row per key, claimed by one `INSERT`.
//!
//! - **Claim** is `INSERT … ON CONFLICT DO NOTHING`: it wins, or it writes nothing and locks
//!   nothing. Only a claim that loses takes a second step: it reads the record and the server's
//!   time, lets [`protocol`](semel_core::protocol) decide, and, if that says to write, replaces
//!   exactly the row that was read.
//! - **Settle** and **renew** are one `UPDATE` each, fenced by its condition.
//! - Claims and settlements that come **at the same time** share statements
//!   (`sql::group`).
//! - **Time** is `clock_timestamp()` of the server.
//! - A waiter in another process marks the row, and the settlement of a marked row notifies it.
//!
//! With [`PostgresTransactional`] the claim, the caller's own writes and the settlement are one
//! transaction.
//!
//! The tables are in `migrations/postgres`, in a schema of their own, `semel`.

mod admin;
mod bodies;
mod diagnosis;
mod error;
mod group;
mod health;
mod options;
mod piggyback;
mod row;
mod schema;
mod size;
mod sql;
mod statements;
mod sweep;
mod transaction;
mod wakes;

use std::sync::{Arc, Weak};

use semel_core::store::{Capabilities, StoreResult, Wake};
use semel_core::wake::{Hub, Wakeup};
use semel_core::{Answer, Clock};

pub use crate::sql::transaction::TxError;
pub use error::ERRORS;
#[doc(hidden)]
pub use error::is_broken;
pub use piggyback::{Bound, ClaimStatement, JointSettlement, ReclaimOutcome, SettlementStatement};
pub use schema::{File, MIGRATIONS, pending};
pub use size::PostgresUsage;
pub use transaction::{PostgresTransactional, PostgresTx};

use crate::sql::group::Groups;
use crate::sql::link;
use crate::sql::records::impl_store;
use error::Pg;
use options::Options;
use sql::Statements;
use sweep::Sweeper;
use wakes::Wakes;

/// Checks that the URL can be parsed, without connecting. For `fuzz/`.
///
/// # Errors
/// As [`PostgresStore::open`] has them.
#[doc(hidden)]
pub fn check_url(url: &str) -> StoreResult<()> {
    Options::parse(url).map(drop)
}

/// Records in PostgreSQL. Cheap to clone.
#[derive(Clone)]
pub struct PostgresStore {
    inner: Arc<Inner>,
}

/// Begins a transaction of our own.
const BEGIN: Option<&str> = Some("BEGIN");

type Link = link::Link<Pg>;
type Session = link::Session<Pg>;

struct Inner {
    link: Link,
    sql: Statements,
    hub: Hub,
    wakes: Option<Wakes>,
    days: bodies::Days,
    /// `None` behind a pooler in transaction mode: the shared statements need settings of the
    /// session.
    groups: Option<Groups>,
    sweeper: Sweeper,
    server: String,
    migrates: bool,
    /// A reference to itself, for background tasks.
    telling: Weak<Inner>,
}

impl PostgresStore {
    /// Connects to the database at `url`, such as `postgres://user@127.0.0.1/app`, brings the
    /// tables up to date, and checks that the server is fit.
    ///
    /// | option in the URL | meaning |
    /// |---|---|
    /// | `max_connections=20` | the most connections, 10 unless set |
    /// | `pooler=transaction` | behind PgBouncer in transaction mode: keeps no session state |
    /// | `listen=HOST:PORT` | where to listen for wake-ups past the pooler |
    /// | `migrate=off` | the tables are made by somebody else, from the files in `migrations/postgres` |
    /// | `archive=on` | the sweeper notes removed records in `semel.archive` |
    /// | `sslmode`, `sslrootcert`, `sslcert`, `sslkey` | as libpq has them |
    ///
    /// # Errors
    /// If it can't be reached, or would lose records: a replica, `fsync` or `synchronous_commit`
    /// off.
    pub async fn open(url: &str, clock: Arc<dyn Clock>) -> StoreResult<Self> {
        let options = Options::parse(url)?;
        let link = options.open(Arc::clone(&clock)).await?;
        let server = health::check(&link).await?;
        schema::prepare(&link, MIGRATIONS, options.migrate).await?;
        let (wakes, watched) = Wakes::new(&options);
        let inner = Arc::new_cyclic(|telling| Inner {
            telling: Weak::clone(telling),
            sql: Statements::new(options.named()),
            link,
            hub: Hub::new(),
            wakes,
            days: bodies::Days::default(),
            groups: (!options.pooled).then(Groups::new),
            sweeper: Sweeper::new(options.archive),
            server,
            migrates: options.migrate,
        });
        let store = Self { inner };
        if let Some(listen) = options.listen() {
            wakes::listen(&store.inner, listen, watched, clock);
        }
        Ok(store)
    }

    /// Applies the schema migrations of another crate: files by name and text, in order.
    ///
    /// # Errors
    /// If some are missing and the URL says `migrate=off`, or if the server rejects them.
    pub async fn prepare(&self, files: &[schema::File]) -> StoreResult<()> {
        schema::prepare(&self.inner.link, files, self.inner.migrates).await
    }
}

impl_store!(PostgresStore, |self| {
    watch(identity): {
        let Some(wakes) = &self.inner.wakes else {
            return Wakeup::never();
        };
        let wakeup = self.inner.hub.watch(identity);
        wakes.watch(identity.address());
        wakeup
    },
    capabilities: {
        let wakes = self.inner.wakes.as_ref();
        Capabilities::new("postgres")
            .with_durable(true)
            .with_shared(true)
            .with_wake(wakes.map_or(Wake::Never, |_| Wake::Hint))
            .with_lists_once(true)
            .with_max_answer_bytes(Answer::MAX_HEAD_BYTES + Answer::MAX_BODY_BYTES)
    },
});

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PostgresStore({})", self.inner.server)
    }
}
