//! Removes expired records.
//!
//! Walks the table by its primary key, a batch of rows at a time. An index on the expiry isn't
//! used, because every settlement would have to maintain it.

use std::fmt::Write as _;

use parking_lot::Mutex;
use semel_core::identity::Address;
use semel_core::store::StoreResult;
use sqlx::Row as _;

use super::Inner;
use super::error::store_error;
use super::sql::{NOW, once, raise_floor};

/// How many rows one transaction reads, and how many it removes at most.
const STRETCH: usize = 5_000;
const AT_ONCE: usize = 500;
/// How many times a batch is retried after a deadlock or a lock wait.
const GIVE_WAY: usize = 3;

/// The position of this process's sweeper. Rows that another sweeper has locked are skipped (`SKIP
/// LOCKED`).
pub(super) struct Sweeper {
    archive: bool,
    place: Mutex<Address>,
}

impl Sweeper {
    pub(super) const fn new(archive: bool) -> Self {
        Self {
            archive,
            place: Mutex::new([0; 16]),
        }
    }
}

/// The result of one batch.
struct SweepBatch {
    removed: usize,
    /// Where the next batch begins; `None` at the end of the table.
    end: Option<Address>,
    /// Whether there may be more in this one.
    is_full: bool,
}

impl Inner {
    /// Goes on from where the last sweep ended, at most once round.
    pub(super) async fn sweep(&self, most: usize) -> StoreResult<usize> {
        let first = *self.sweeper.place.lock();
        let (mut place, mut has_turned, mut removed) = (first, false, 0);
        while removed < most {
            let swept = self
                .sweep_once_more(place, (most - removed).min(AT_ONCE))
                .await?;
            removed += swept.removed;
            if swept.is_full {
                continue;
            }
            place = swept.end.unwrap_or_default();
            has_turned |= swept.end.is_none();
            *self.sweeper.place.lock() = place;
            if has_turned && place >= first {
                break;
            }
        }
        Ok(removed)
    }

    /// Sweeps one batch, and retries if it lost a lock to another session.
    async fn sweep_once_more(&self, place: Address, most: usize) -> StoreResult<SweepBatch> {
        for _ in 0..GIVE_WAY {
            match self.sweep_stretch(place, most).await {
                Err(error) if error.is_transient() => {}
                swept => return swept,
            }
        }
        self.sweep_stretch(place, most).await
    }

    async fn sweep_stretch(&self, after: Address, most: usize) -> StoreResult<SweepBatch> {
        let after = hex(&after);
        let boundary = format!(
            "SELECT address FROM semel_records WHERE address >= {after} ORDER BY address LIMIT {STRETCH}, 1"
        );
        let row = self.link.row(|| once(boundary.clone())).await?;
        let end = row.map(|row| address(&row, 0)).transpose()?;
        let within = end.map_or(String::new(), |end| format!("AND address < {}", hex(&end)));
        let expired = format!(
            "FROM semel_records WHERE address >= {after} {within} AND format IN (1, 2) \
             AND written_us + retention_ms * 1000 <= {NOW}"
        );
        let Some(highest) = self.highest_fence(&expired).await? else {
            return Ok(SweepBatch {
                removed: 0,
                end,
                is_full: false,
            });
        };
        self.link.send(|| once(raise_floor(highest)), false).await?;
        let mut session = self.link.session(None).await?;
        session.script("START TRANSACTION").await?;
        // What has expired since stays for the next time.
        let rows = format!(
            "SELECT address {expired} AND fence <= {highest} AND fence < {NOW} LIMIT {most} FOR UPDATE SKIP LOCKED"
        );
        let rows = session.script(&rows).await?;
        let gone: StoreResult<Vec<Address>> = rows.iter().map(|row| address(row, 0)).collect();
        let gone = gone?;
        if !gone.is_empty() {
            let these = list(&gone);
            if self.sweeper.archive {
                session.script(&archive(&these)).await?;
            }
            let delete = format!("DELETE FROM semel_records WHERE address IN ({these})");
            session.script(&delete).await?;
        }
        session.script("COMMIT").await?;
        session.give_back();
        Ok(SweepBatch {
            removed: gone.len(),
            end,
            is_full: gone.len() >= most,
        })
    }
}

impl Inner {
    /// Of what has expired; `None` if nothing has.
    async fn highest_fence(&self, expired: &str) -> StoreResult<Option<i64>> {
        let text = format!("SELECT MAX(fence) {expired}");
        let row = self.link.row(|| once(text.clone())).await?;
        let highest = row.map(|row| row.try_get(0)).transpose();
        Ok(highest.map_err(store_error)?.flatten())
    }
}

fn archive(these: &str) -> String {
    format!(
        "INSERT INTO semel_archive (address, environment, tenant, scope, hint, state, attempt, fence, created_us, \
         written_us, archived_us) SELECT address, environment, tenant, scope, hint, state, attempt, fence, created_us, \
         written_us, {NOW} FROM semel_records WHERE address IN ({these})"
    )
}

pub(super) fn hex(address: &Address) -> String {
    format!("x'{:032x}'", u128::from_be_bytes(*address))
}

/// Addresses as a statement has them.
pub(super) fn list(addresses: &[Address]) -> String {
    let mut text = String::new();
    for (index, address) in addresses.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        // Writing to a string doesn't fail.
        let _ = write!(text, "{comma}{}", hex(address));
    }
    text
}

pub(super) fn address(row: &sqlx::mysql::MySqlRow, index: usize) -> StoreResult<Address> {
    let bytes: &[u8] = row.try_get(index).map_err(store_error)?;
    Address::try_from(bytes).map_err(|_| super::error::unexpected("an address of another length"))
}
