//! SQLite, on real files: the rules, and what goes wrong. Several processes on one file, and
//! processes that are killed, are in `tests/tests/sqlite.rs`.
#![cfg(feature = "sqlite")]

#[path = "../encrypted/mod.rs"]
mod encrypted;
mod file;
mod keys;
mod refusals;
mod sealed;
mod suite;
#[path = "../sql/support.rs"]
mod support;
mod traps;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use semel_core::{Clock, StoreResult};
use semel_stores::sqlite::SqliteStore;
use semel_testkit::private::new_folder;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection as _, SqliteConnection};

/// A folder of the test's own, with a file in it.
pub(crate) struct Place {
    folder: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            folder: new_folder("sqlite"),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join("keys.db")
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite://{}", self.path().display())
    }

    pub(crate) async fn open(&self) -> SqliteStore {
        open(&self.url()).await.expect("a file that is fit")
    }

    /// A connection that knows nothing of ours.
    pub(crate) async fn raw(&self) -> SqliteConnection {
        raw(&self.path()).await
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Left-over files are no reason to fail a test.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(crate) async fn open(url: &str) -> StoreResult<SqliteStore> {
    let clock: Arc<dyn Clock> = semel::tokio_env().clock;
    SqliteStore::open(url, clock).await
}

pub(crate) async fn raw(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true);
    SqliteConnection::connect_with(&options)
        .await
        .expect("a file")
}
