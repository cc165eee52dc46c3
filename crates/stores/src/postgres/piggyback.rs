//! Extra SQL executed in the claim's or the settlement's own statement, atomically (used by
//! `semel-jobs`).
//!
//! [`super::PostgresTransactional`] joins a claim with a caller's transaction of any length. This
//! joins it with one statement that is known beforehand: it takes one round trip, for any number of
//! first runs at once.

use std::sync::Arc;

use semel_core::store::StoreResult;
use semel_core::{Claim, Claimed, Grant, Record, Settlement, State, Timestamp, protocol};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres, Row as _};

use super::error::{store_error, unexpected};
use super::sql::{
    CLAIM_COLUMNS, CLAIMS, FIRST_RUN, FIRST_RUNS, SWAP, Statement, WRITTEN_FENCE, settle_text,
};
use super::statements::{insert, insert_all, settle, swap};
use super::{BEGIN, PostgresStore};
use crate::cas::{self, Cell, Snapshot, Start, Swap};
use crate::sql::records::Statements as _;

/// A statement with its arguments so far.
pub type Bound = Query<'static, Postgres, PgArguments>;

/// How many arguments of a claim come before the caller's.
const CLAIM_ARGUMENTS: usize = 13;
const SWAP_ARGUMENTS: usize = 26;
const SETTLE_ARGUMENTS: usize = 9;

/// A claim with extra SQL: the rest of a statement, in which `won (n, fence)` are the claims that
/// won, with `n` counted from 1. The arguments of the extra SQL are `$+1`, `$+2` and so on.
pub struct ClaimStatement {
    one: Statement,
    many: Arc<str>,
    instead: Statement,
    named: bool,
}

/// A settlement with extra SQL.
pub struct SettlementStatement {
    statement: Statement,
}

/// The outcome of a settlement with extra SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JointSettlement {
    /// Both were written.
    Both,
    /// Neither was written: the caller's row doesn't match.
    NotLocked,
    /// Neither was written: the record belongs to another lease.
    NotHeld,
}

/// The outcome of a claim that met a record.
pub type ReclaimOutcome = (Claimed, Vec<PgRow>);

/// Numbers the arguments: `$+1` is the first one after `own` others.
fn numbered(text: &str, own: usize) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    let mut parts = text.split("$+");
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let number: usize = part[..digits].parse().unwrap_or(0);
        out.push_str(&format!("${}{}", own + number, &part[digits..]));
    }
    out
}

impl PostgresStore {
    /// Prepares a claim with extra SQL.
    #[must_use]
    pub fn with_claim(&self, rest: &str) -> ClaimStatement {
        let named = self.inner.sql.named();
        let (columns, values) = FIRST_RUN;
        let rest_of = |own| numbered(rest, own);
        let one = format!(
            "WITH claimed AS ({columns} VALUES ({values}) ON CONFLICT (address) DO NOTHING RETURNING {WRITTEN_FENCE}), \
             won AS (SELECT 1::bigint AS n, fence FROM claimed){}",
            rest_of(CLAIM_ARGUMENTS)
        );
        // In the order of addresses, to avoid deadlocks between processes.
        let many = format!(
            "WITH asked AS (SELECT * FROM {CLAIMS}) WITH ORDINALITY AS a ({CLAIM_COLUMNS}, n)), \
             claimed AS ({} {FIRST_RUNS} FROM asked ORDER BY address \
             ON CONFLICT (address) DO NOTHING RETURNING address, token, {WRITTEN_FENCE}), \
             won AS (SELECT n, claimed.fence FROM claimed JOIN asked USING (address, token)){}",
            columns.replace("{records}", "semel.records"),
            rest_of(CLAIM_ARGUMENTS)
        );
        let instead = format!(
            "WITH swapped AS ({SWAP} RETURNING fence), won AS (SELECT 1::bigint AS n, fence FROM swapped){}",
            rest_of(SWAP_ARGUMENTS)
        );
        ClaimStatement {
            one: Statement::new(&one, named),
            many: many.into(),
            instead: Statement::new(&instead, named),
            named,
        }
    }

    /// Prepares a settlement with extra SQL: `lock` selects the caller's row for update, and `then`
    /// changes it, only if the record was written.
    #[must_use]
    pub fn with_settlement(&self, lock: &str, then: &str) -> SettlementStatement {
        let text = format!(
            "WITH locked AS ({}), record AS ({} AND EXISTS (SELECT 1 FROM locked) RETURNING waited), \
             written AS ({} AND EXISTS (SELECT 1 FROM record)) \
             SELECT EXISTS (SELECT 1 FROM locked), (SELECT waited FROM record)",
            numbered(lock, SETTLE_ARGUMENTS),
            settle_text(),
            numbered(then, SETTLE_ARGUMENTS)
        );
        SettlementStatement {
            statement: Statement::new(&text, self.inner.sql.named()),
        }
    }

    /// Claims those of `asks` that have no record yet, each with its extra SQL, and returns the
    /// rows of the statement. The others are for [`Self::reclaim_with`], one by one.
    ///
    /// # Errors
    /// If the server gives no answer; a retry is safe.
    pub async fn claim_with(
        &self,
        with: &ClaimStatement,
        asks: &[Claim],
        bind: impl Fn(Bound) -> Bound,
    ) -> StoreResult<Vec<PgRow>> {
        let statement = || match asks {
            [ask] => bind(insert(&with.one, ask)),
            many => {
                let text = AssertSqlSafe(Arc::clone(&with.many));
                bind(insert_all(
                    sqlx::query(text).persistent(with.named),
                    &many.iter(),
                ))
            }
        };
        self.inner.link.rows(statement).await
    }

    /// Claims a key that has a record, as the protocol decides, and runs the extra SQL if the claim
    /// wins. `None` if the record is gone meanwhile: claim again.
    ///
    /// # Errors
    /// As with a claim.
    pub async fn reclaim_with(
        &self,
        with: &ClaimStatement,
        ask: &Claim,
        bind: impl Fn(Bound) -> Bound + Sync,
    ) -> StoreResult<Option<ReclaimOutcome>> {
        self.claim_as_if_released(with, ask, |_| false, bind).await
    }

    /// As [`Self::reclaim_with`], but treats a record for which `is_free` is true as released, in
    /// any state. For callers that may take an answer back. Replaces exactly the record that
    /// `is_free` saw.
    ///
    /// # Errors
    /// As with a claim.
    pub async fn claim_as_if_released(
        &self,
        with: &ClaimStatement,
        ask: &Claim,
        is_free: impl Fn(&Record) -> bool + Sync,
        bind: impl Fn(Bound) -> Bound + Sync,
    ) -> StoreResult<Option<ReclaimOutcome>> {
        self.reclaim(with, ask, &is_free, &bind).await
    }

    async fn reclaim(
        &self,
        with: &ClaimStatement,
        ask: &Claim,
        is_free: &(dyn Fn(&Record) -> bool + Sync),
        bind: &(dyn Fn(Bound) -> Bound + Sync),
    ) -> StoreResult<Option<ReclaimOutcome>> {
        let cell = ReclaimCell {
            store: self,
            with,
            ask,
            bind,
        };
        let decide = |found: Option<&Record>, now| {
            let freed = found.filter(|record| is_free(record)).map(|record| Record {
                state: State::Released,
                ..record.clone()
            });
            protocol::claim(freed.as_ref().or(found), ask, now)
        };
        let start = Start::Read { write_sent: false };
        let change = cas::drive(&cell, start, decide).await?;
        Ok(match change {
            None => Some((protocol::overtaken(), Vec::new())),
            Some(change) => match change.written {
                None => Some((change.answer, Vec::new())),
                Some(Some(rows)) => Some((change.answer, rows)),
                Some(None) => None,
            },
        })
    }

    /// Settles with extra SQL. The answer must be small enough to be kept in the row.
    ///
    /// # Errors
    /// If the server gives no answer; a retry is safe.
    pub async fn settle_with(
        &self,
        with: &SettlementStatement,
        lease: &Grant,
        settlement: &Settlement,
        bind: impl Fn(Bound) -> Bound,
    ) -> StoreResult<JointSettlement> {
        let statement = || bind(settle(&with.statement, lease, settlement, None));
        let row = self.inner.link.row(statement).await?;
        let row = row.ok_or_else(|| unexpected("no row"))?;
        let locked: bool = row.try_get(0).map_err(store_error)?;
        let waited: Option<bool> = row.try_get(1).map_err(store_error)?;
        let address = lease.identity.address();
        match (locked, waited) {
            (false, _) => Ok(JointSettlement::NotLocked),
            (true, None) => Ok(JointSettlement::NotHeld),
            (true, Some(waited)) => {
                self.inner.hub.wake(&address);
                if waited {
                    self.inner.tell(address);
                }
                Ok(JointSettlement::Both)
            }
        }
    }

    /// Sends a statement of the caller's on the store's own connections. It is retried if a
    /// connection breaks, so it must be idempotent.
    ///
    /// # Errors
    /// If the server refuses, or gives no answer.
    pub async fn rows(
        &self,
        text: &'static str,
        bind: impl Fn(Bound) -> Bound,
    ) -> StoreResult<Vec<PgRow>> {
        let statement = || bind(self.inner.sql.plain(text));
        self.inner.link.rows(statement).await
    }

    /// As [`Self::rows`], in a transaction that holds this advisory lock: the statement sees all
    /// writes of earlier holders.
    ///
    /// # Errors
    /// If the server refuses, or gives no answer: then it may have happened.
    pub async fn rows_under_lock(
        &self,
        lock: i64,
        text: &'static str,
        bind: impl Fn(Bound) -> Bound,
    ) -> StoreResult<Vec<PgRow>> {
        let mut session = self.inner.link.session(BEGIN).await?;
        let locked = self.inner.sql.plain("SELECT pg_advisory_xact_lock($1)");
        session.rows(locked.bind(lock)).await.map_err(store_error)?;
        let rows = session.rows(bind(self.inner.sql.plain(text))).await;
        let rows = rows.map_err(store_error)?;
        session.commit().await?;
        Ok(rows)
    }

    /// Reads a column of a row.
    ///
    /// # Errors
    /// If it is not of that type.
    pub fn column<'r, T>(row: &'r PgRow, index: usize) -> StoreResult<T>
    where
        T: sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres>,
    {
        row.try_get(index).map_err(store_error)
    }
}

/// The compare-and-swap cell of a claim with extra SQL.
struct ReclaimCell<'a> {
    store: &'a PostgresStore,
    with: &'a ClaimStatement,
    ask: &'a Claim,
    bind: &'a (dyn Fn(Bound) -> Bound + Sync),
}

impl Cell for ReclaimCell<'_> {
    type Version = ();
    /// The statement's rows; `None` if the record is gone.
    type Written = Option<Vec<PgRow>>;

    const ATTEMPTS: u32 = 16;

    async fn read(&self) -> StoreResult<Snapshot<()>> {
        let seen = self.store.inner.look(&self.ask.identity).await?;
        if let Some(seen) = &seen {
            protocol::check_keys(Some(&seen.record), self.ask, seen.now)?;
        }
        Ok(seen.map_or(Snapshot::absent(Timestamp::default()), Into::into))
    }

    async fn swap(&self, seen: &Snapshot<()>, new: Record) -> StoreResult<Swap<Self>> {
        let Some(old) = seen.record() else {
            return Ok(Swap::Done(None));
        };
        let address = self.ask.identity.address();
        let statement = || (self.bind)(swap(&self.with.instead, address, old, &new, None));
        let rows = self.store.inner.link.rows(statement).await?;
        Ok(match rows.is_empty() {
            true => Swap::Lost(None),
            false => Swap::Done(Some(rows)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::numbered;

    #[test]
    fn arguments_are_numbered_after_the_statements_own() {
        assert_eq!(numbered("a $+1, $+12 b", 13), "a $14, $25 b");
        assert_eq!(numbered("none", 13), "none");
    }
}
