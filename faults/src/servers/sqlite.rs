//! A SQLite file that several processes share, on a small disk if one can be made.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rand::RngExt as _;
use rand::rngs::StdRng;
use semel::core::BoxFuture;
use semel_testkit::private::Private;
use semel_testkit::proxy::Proxy;
use sqlx::Connection as _;

use super::disk::Disk;
use super::faketime::FakeTime;
use super::{Backend, Shared, disk, faketime};
use crate::clock::pass;
use crate::kinds::Kind;
use crate::place::WorkerPlace;
use crate::report::LeftOut;

/// The file.
pub(super) struct Sqlite {
    disk: Disk,
    /// The clock of all processes.
    clock: Option<FakeTime>,
}

impl Sqlite {
    pub(super) fn start() -> Result<Self> {
        Ok(Self {
            disk: Disk::new("sqlite", disk::SIZE),
            clock: FakeTime::new()?,
        })
    }

    fn file(&self) -> PathBuf {
        self.disk.folder().join("records.db")
    }

    async fn lock(&self, for_time: Duration) -> Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("lock").arg(self.file());
        let mut process = Private::start(&mut command);
        pass(for_time).await;
        process.kill();
        Ok(())
    }
}

/// Takes the write lock, writes half of something, and stays.
pub(crate) async fn hold_lock(file: &Path) -> Result<()> {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
    let options = options.busy_timeout(Duration::from_secs(5));
    let mut connection = sqlx::SqliteConnection::connect_with(&options).await?;
    let write = "BEGIN IMMEDIATE; UPDATE records SET record = x'00' WHERE rowid IN (SELECT rowid FROM records LIMIT 100)";
    sqlx::raw_sql(write)
        .execute(&mut connection)
        .await
        .context("no lock")?;
    std::future::pending::<()>().await;
    Ok(())
}

impl Backend for Sqlite {
    fn place(&self) -> WorkerPlace {
        // The processes' own clock decides: one of them with another would break the store's rule,
        // not the store.
        let clock = self.clock.as_ref();
        WorkerPlace::OneClock {
            url: format!("sqlite://{}", self.file().display()),
            environment: clock.map(FakeTime::shared_environment).unwrap_or_default(),
        }
    }

    fn ways(&self) -> &[Proxy] {
        &[]
    }

    fn kinds(&self) -> Vec<Kind> {
        let mut kinds = vec![Kind::WriteLock];
        if self.disk.is_small() {
            kinds.push(Kind::DiskFull);
        }
        if self.clock.is_some() {
            kinds.extend([Kind::ClockForward, Kind::ClockBack]);
        }
        kinds
    }

    fn left_out(&self) -> Vec<LeftOut> {
        let clock = faketime::left_out(self.clock.is_some());
        [clock, disk::left_out(self.disk.is_small())].concat()
    }

    fn strike<'a>(
        &'a mut self,
        kind: Kind,
        rng: &'a mut StdRng,
        windows: &'a Shared,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let a_while = Duration::from_millis(rng.random_range(300..1_500));
            match kind {
                Kind::DiskFull => self.disk.fill(a_while).await?,
                Kind::ClockForward | Kind::ClockBack => {
                    return match &mut self.clock {
                        Some(clock) => clock.jump(kind, windows).await,
                        None => Ok(0),
                    };
                }
                _ => self.lock(a_while).await?,
            }
            Ok(1)
        })
    }
}
