//! MariaDB and MySQL: one row per key, claimed by one `INSERT`.
//!
//! - **Claim** is a plain `INSERT`, which succeeds for one claim only. A claim that loses takes a
//!   second step: it reads the record and the server's time, lets
//!   [`protocol`](semel_core::protocol) decide, and, to write, replaces exactly the row that was
//!   read (compare-and-swap) and reads back the owner.
//! - **Settle** and **renew** are one `UPDATE` each, fenced by its condition.
//! - **Time** is the server's.
//! - Claims and settlements that come **at the same time** share statements on MariaDB
//!   (`sql::group`).
//! - A statement that lost a deadlock or a lock wait (1213, 1205) is retried.
//! - Waiters of one process poll all their records with one statement.
//!
//! With [`MySqlTransactional`] the claim, the caller's own writes and the settlement are one
//! transaction.
//!
//! The tables are in `migrations/mysql`; their names begin with `semel_`.

mod admin;
mod diagnosis;
mod error;
mod group;
mod health;
mod options;
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
use semel_core::wake::Hub;
use semel_core::{Answer, Clock};

pub use error::ERRORS;
#[doc(hidden)]
pub use error::is_broken;
pub use schema::{MIGRATIONS, pending};
pub use size::MySqlUsage;
pub use transaction::{MySqlTransactional, MySqlTx};

use crate::sql::group::Groups;
use crate::sql::link;
use crate::sql::records::impl_store;
use error::My;
use group::GroupStatements;
use options::Options;
use sql::Statements;
use sweep::Sweeper;
use wakes::Wakes;

/// Checks that the URL can be parsed, without connecting. For `fuzz/`.
///
/// # Errors
/// As [`MySqlStore::open`] has them.
#[doc(hidden)]
pub fn check_url(url: &str) -> StoreResult<()> {
    Options::parse(url).map(drop)
}

/// Records in MariaDB or MySQL. Cheap to clone.
#[derive(Clone)]
pub struct MySqlStore {
    inner: Arc<Inner>,
}

type Link = link::Link<My>;
type Session = link::Session<My>;

struct Inner {
    link: Link,
    sql: Statements,
    group_sql: GroupStatements,
    hub: Hub,
    wakes: Arc<Wakes>,
    /// `None` on MySQL, which can't be told to wait for no lock.
    groups: Option<Groups>,
    /// A reference to itself, for tasks.
    myself: Weak<Inner>,
    sweeper: Sweeper,
    server: String,
    max_answer_bytes: usize,
}

impl MySqlStore {
    /// Connects to the database at `url`, such as `mysql://user@127.0.0.1/app`, brings the tables
    /// up to date, and checks that the server is fit.
    ///
    /// | option in the URL | meaning |
    /// |---|---|
    /// | `max_connections=20` | the most connections, 10 unless set |
    /// | `migrate=off` | the tables are made by somebody else, from the files in `migrations/mysql` |
    /// | `archive=on` | the sweeper notes removed records in `semel_archive` |
    /// | `ssl-mode`, `ssl-ca`, `ssl-cert`, `ssl-key` | as the servers' own clients have them |
    /// | `socket` | the path of a Unix socket |
    ///
    /// # Errors
    /// If it can't be reached, or would lose records: a server that may only be read, or one that
    /// doesn't write its log at every commit.
    pub async fn open(url: &str, clock: Arc<dyn Clock>) -> StoreResult<Self> {
        let options = Options::parse(url)?;
        let link = options.open(Arc::clone(&clock)).await?;
        let found = health::check(&link).await?;
        schema::prepare(&link, options.migrate).await?;
        let wakes = Arc::new(Wakes::default());
        let inner = Arc::new_cyclic(|myself| Inner {
            myself: Weak::clone(myself),
            groups: found.is_mariadb.then(Groups::new),
            link,
            sql: Statements::new(),
            group_sql: GroupStatements::new(),
            hub: Hub::new(),
            wakes: Arc::clone(&wakes),
            sweeper: Sweeper::new(options.archive),
            server: found.server,
            max_answer_bytes: found.max_answer_bytes,
        });
        wakes::start_poller(&inner, wakes, clock);
        Ok(Self { inner })
    }
}

impl_store!(MySqlStore, |self| {
    watch(identity): {
        let wakeup = self.inner.hub.watch(identity);
        self.inner.wakes.watch(identity.address());
        wakeup
    },
    capabilities: {
        let largest = Answer::MAX_HEAD_BYTES + Answer::MAX_BODY_BYTES;
        Capabilities::new("mysql")
            .with_durable(true)
            .with_shared(true)
            .with_wake(Wake::Hint)
            .with_lists_once(true)
            .with_max_answer_bytes(self.inner.max_answer_bytes.min(largest))
    },
});

impl std::fmt::Debug for MySqlStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MySqlStore({})", self.inner.server)
    }
}
