//! The statements for claims and settlements of several callers. MariaDB only: they wait for no
//! lock, which MySQL can't be told for one statement.

use std::sync::Arc;

use semel_core::identity::Address;
use semel_core::store::StoreResult;
use semel_core::{Fence, StoreError};
use sqlx::Row as _;
use sqlx::mysql::MySqlRow;

use super::Inner;
use super::error::{store_error, unexpected};
use super::row::{Bound, bind_answer, bytes, signed};
use super::sql::{FIRST_RUN, NOW, prepared};
use super::statements::bind_claim;
use crate::sql::group::{Claims, Ending, Endings, Grouped, Groups, Inserted, Settled};
use crate::sql::row::format_of;

/// How many rows a shared statement has. Each is a prepared statement; rows that nobody needs are
/// left empty.
const SIZES: [usize; 4] = [4, 16, 32, 64];

/// Fails at once where a row is locked.
const NO_WAIT: &str = "SET STATEMENT innodb_lock_wait_timeout = 0 FOR";

/// A shared statement, for each size.
pub(super) struct Sized([Arc<str>; SIZES.len()]);

impl Sized {
    /// `{rows}` in the text stands for the rows.
    fn new(text: &str, row: &str) -> Self {
        Self(SIZES.map(|size| {
            let rows = vec![format!("SELECT {row}"); size].join(" UNION ALL ");
            format!("{NO_WAIT} {}", text.replace("{rows}", &rows)).into()
        }))
    }

    /// The statement for so many rows, and how many have to be left empty.
    fn of(&self, rows: usize) -> (Bound, usize) {
        let mut sizes = SIZES.iter().zip(&self.0);
        let fit = sizes.find(|(size, _)| **size >= rows);
        let (size, text) = fit.unwrap_or((&SIZES[SIZES.len() - 1], &self.0[SIZES.len() - 1]));
        (prepared(text), size.saturating_sub(rows))
    }
}

/// The statements.
pub(super) struct GroupStatements {
    insert: Sized,
    settle: Sized,
}

impl GroupStatements {
    pub(super) fn new() -> Self {
        let number = |name: &str| format!("CAST(? AS SIGNED) AS {name}");
        let binary = |name: &str| format!("CAST(? AS BINARY) AS {name}");
        let numbers = ["retention", "lease", "most", "secret", "crash"].map(number);
        let texts = [
            "address",
            "seal",
            "token",
            "fingerprint",
            "environment",
            "tenant",
            "scope",
            "hint",
        ];
        let claim = [numbers.join(", "), texts.map(binary).join(", ")].join(", ");
        let ending = [
            binary("address"),
            binary("seal"),
            number("fence"),
            binary("token"),
            number("state"),
            binary("head"),
            binary("body"),
            number("body_bytes"),
            number("format"),
        ];
        Self {
            // In the order of addresses, so that two processes meet no deadlock. A key whose record
            // is uncommitted looks free; inserting it finds the lock.
            insert: Sized::new(
                &format!(
                    "{FIRST_RUN} SELECT GREATEST({NOW}, above.floor + 1), {NOW}, {NOW}, 1, 1, 1, a.* FROM \
                     (SELECT COALESCE(MAX(floor), 0) AS floor FROM semel_fences) above, ({{rows}}) a \
                     WHERE a.address <> '' AND NOT EXISTS \
                     (SELECT 1 FROM semel_records r WHERE r.address = a.address) ORDER BY a.address \
                     RETURNING address, token, fence"
                ),
                &claim,
            ),
            settle: Sized::new(
                &format!(
                    "UPDATE semel_records r JOIN ({{rows}}) a ON r.address = a.address \
                     SET r.checkpoint = IF(a.state = 4, r.checkpoint, NULL), r.head = a.head, r.body = a.body, \
                     r.body_bytes = a.body_bytes, r.format = IF(a.state = 4, r.format, a.format), \
                     r.written_us = {NOW}, r.state = a.state \
                     WHERE a.address <> '' AND r.seal = a.seal AND r.fence = a.fence AND r.token = a.token \
                     AND r.format IN (1, 2) AND r.written_us + r.retention_ms * 1000 > {NOW} \
                     AND (r.state = 1 OR (r.state = 4 AND a.state <> 4))"
                ),
                &ending.join(", "),
            ),
        }
    }
}

impl Grouped for Inner {
    fn groups(&self) -> Option<&Groups> {
        self.groups.as_ref()
    }

    fn strong(&self) -> Option<Arc<Self>> {
        self.myself.upgrade()
    }

    async fn insert_all(&self, _: usize, claims: &Claims) -> StoreResult<Inserted> {
        let statement = || {
            let (query, empty) = self.group_sql.insert.of(claims.len());
            let query = claims
                .iter()
                .fold(query, |query, waiting| bind_claim(query, &waiting.call));
            (0..empty).fold(query, |query, _| bind_empty_claim(query))
        };
        let rows = self.link.rows(statement).await?;
        rows.iter().map(inserted).collect()
    }

    /// The server says only how many rows it changed. If one is missing, each caller looks by
    /// itself.
    async fn settle_all(&self, _: usize, endings: &Endings) -> StoreResult<Settled> {
        let statement = || {
            let (query, empty) = self.group_sql.settle.of(endings.len());
            let query = endings
                .iter()
                .fold(query, |query, waiting| bind_ending(query, &waiting.call));
            (0..empty).fold(query, |query, _| bind_empty_ending(query))
        };
        let reply = self.link.send(statement, false).await;
        let reply = reply.map_err(StoreError::from)?;
        if reply.affected != endings.len() as u64 {
            return Ok(Settled::default());
        }
        let addresses = endings
            .iter()
            .map(|waiting| waiting.call.lease.identity.address());
        Ok(addresses.map(|address| (address, false)).collect())
    }

    /// Nobody is told through the record.
    fn wake(&self, _: Address) {}
}

fn inserted(row: &MySqlRow) -> StoreResult<((Address, u128), Fence)> {
    let fixed = |index: usize| -> StoreResult<[u8; 16]> {
        let bytes: &[u8] = row.try_get(index).map_err(store_error)?;
        bytes
            .try_into()
            .map_err(|_| unexpected("no address or token"))
    };
    let fence: i64 = row.try_get(2).map_err(store_error)?;
    let token = u128::from_be_bytes(fixed(1)?);
    Ok(((fixed(0)?, token), Fence(fence.unsigned_abs())))
}

fn bind_empty_claim(query: Bound) -> Bound {
    let query = (0..5).fold(query, |query, _| query.bind(0_i64));
    (0..8).fold(query, |query, _| query.bind(Vec::<u8>::new()))
}

fn bind_ending(query: Bound, ending: &Ending) -> Bound {
    let (lease, answer) = (&ending.lease, ending.answer());
    let query = query
        .bind(lease.identity.address().to_vec())
        .bind(lease.identity.seal().to_vec())
        .bind(signed(lease.fence.0))
        .bind(bytes(lease.token))
        .bind(ending.settlement.state() as i8);
    bind_answer(query, answer).bind(format_of(None, answer.map(|answer| &answer.head[..])))
}

fn bind_empty_ending(query: Bound) -> Bound {
    let query = query
        .bind(Vec::<u8>::new())
        .bind(Vec::<u8>::new())
        .bind(0_i64)
        .bind(Vec::<u8>::new())
        .bind(0_i8);
    bind_answer(query, None).bind(1_i16)
}
