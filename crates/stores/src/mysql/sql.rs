//! The SQL statements.
//!
//! The **owner of a record** is known from an `INSERT` that succeeded (only one can), or from the
//! token that is read back. The number of affected rows depends on a flag of the connection
//! (`CLIENT_FOUND_ROWS`, which this client sets, and a proxy may not): rows that were *matched*, or
//! only those that were *changed*. For `ON DUPLICATE KEY UPDATE` the flag even makes "nothing
//! changed" look like "inserted", so that statement isn't used. Every `UPDATE` here changes each
//! row that it matches, so that both counts agree. And 0 never means "not done": the record is read
//! afterwards.

use std::sync::Arc;

use sqlx::AssertSqlSafe;

use super::row::Bound;

/// The server's time in microseconds since 1970, at the statement's beginning. In UTC whatever the
/// session's time zone.
pub(super) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// Every column, in the order in which [`super::row`] reads them.
const COLUMNS: &str = "address, seal, token, fence, created_us, written_us, retention_ms, lease_ms, attempt, max_attempts, \
    secret_id, format, state, crash, fingerprint, environment, tenant, scope, hint, body_bytes, checkpoint, head, body";

/// The columns of a first run: those that the statement fills by itself, then the claim's.
pub(super) const FIRST_RUN: &str = "INSERT INTO semel_records (fence, created_us, written_us, format, state, attempt, retention_ms, \
    lease_ms, max_attempts, secret_id, crash, address, seal, token, fingerprint, environment, tenant, scope, hint)";

/// Raises the floor of fences. Committed before the record is removed, so that a claim that finds
/// the key free also finds the floor raised (P22). A claim in progress may have read the old floor.
/// Its fence is at least the time at which it began, so only records whose fence lies in the past
/// are removed.
pub(super) fn raise_floor(fence: i64) -> String {
    format!("UPDATE semel_fences SET floor = GREATEST(floor, {fence})")
}

/// The statements of the hot path, put together once.
pub(super) struct Statements {
    /// A first run, if there is no row; its fence, above the floor, comes back as the last inserted
    /// id.
    pub(super) insert: Arc<str>,
    /// A first run in a caller's transaction, with the server's time as its fence. Reading the
    /// floor there would lock it until that transaction ends, if its isolation level is higher than
    /// ours.
    pub(super) insert_inside: Arc<str>,
    /// A larger fence for that run, returned in the same way.
    pub(super) lift_inside: Arc<str>,
    /// A whole row, if there is none.
    pub(super) restore: Arc<str>,
    /// The row and the server's time.
    pub(super) look: Arc<str>,
    /// The same, locked for this transaction; refused if another has it.
    pub(super) look_locked: Arc<str>,
    /// Replaces exactly the row that was read.
    pub(super) swap: Arc<str>,
    /// A settlement, if the owner is the one given and the record is open. Changes the state,
    /// always.
    pub(super) settle: Arc<str>,
    /// A renewal, if the owner is the one given and the record is running.
    pub(super) renew: Arc<str>,
    /// What a listing shows, up to its conditions.
    pub(super) list: Arc<str>,
}

impl Statements {
    pub(super) fn new() -> Self {
        let owned = format!(
            "WHERE address = ? AND seal = ? AND fence = ? AND token = ? AND format IN (1, 2) \
             AND written_us + retention_ms * 1000 > {NOW}"
        );
        let text = |text: String| Arc::<str>::from(text);
        let look = format!("SELECT {COLUMNS}, {NOW} FROM semel_records WHERE address = ?");
        Self {
            // From a table, so that at `READ COMMITTED` the floor is read without a lock. The types
            // are said, as a server may not take those of the columns for what is selected.
            insert: text(format!(
                "{FIRST_RUN} SELECT LAST_INSERT_ID(GREATEST({NOW}, above.floor + 1)), {NOW}, {NOW}, 1, 1, 1, {} {} \
                 CAST(? AS BINARY) FROM (SELECT COALESCE(MAX(floor), 0) AS floor FROM semel_fences) above",
                "CAST(? AS SIGNED), ".repeat(5),
                "CAST(? AS BINARY), ".repeat(7)
            )),
            insert_inside: text(format!(
                "{FIRST_RUN} VALUES (LAST_INSERT_ID({NOW}), {NOW}, {NOW}, 1, 1, 1, {} ?)",
                "?, ".repeat(12)
            )),
            lift_inside: text(
                "UPDATE semel_records SET fence = LAST_INSERT_ID(?) WHERE address = ? AND token = ?".to_owned(),
            ),
            restore: text(format!(
                "INSERT INTO semel_records (fence, created_us, written_us, retention_ms, lease_ms, attempt, \
                 max_attempts, secret_id, state, crash, token, fingerprint, environment, tenant, scope, hint, \
                 checkpoint, head, body, body_bytes, format, address, seal) VALUES ({} ?)",
                "?, ".repeat(22)
            )),
            look_locked: text(format!("{look} FOR UPDATE NOWAIT")),
            look: text(look),
            swap: text("UPDATE semel_records SET fence = ?, created_us = ?, written_us = ?, retention_ms = ?, lease_ms = ?, \
                   attempt = ?, max_attempts = ?, secret_id = ?, state = ?, crash = ?, token = ?, fingerprint = ?, \
                   environment = ?, tenant = ?, scope = ?, hint = ?, checkpoint = ?, head = ?, body = ?, \
                   body_bytes = ?, format = ? \
                   WHERE address = ? AND fence = ? AND token = ? AND state = ? AND written_us = ? AND format IN (1, 2)"
                .to_owned()),
            // An owner's doubt about what is in doubt already changes nothing (P18).
            settle: text(format!(
                "UPDATE semel_records SET checkpoint = IF(? = 4, checkpoint, NULL), head = ?, body = ?, \
                 body_bytes = ?, format = IF(? = 4, format, ?), written_us = {NOW}, state = ? \
                 {owned} AND (state = 1 OR (state = 4 AND ? <> 4))"
            )),
            renew: text(format!(
                "UPDATE semel_records SET written_us = {NOW}, checkpoint = COALESCE(?, checkpoint), \
                 format = COALESCE(?, format) \
                 {owned} AND state = 1"
            )),
            list: text(format!("SELECT {COLUMNS}, {NOW} FROM semel_records WHERE address > ?")),
        }
    }
}

/// A statement that is prepared once for each connection.
pub(super) fn prepared(text: &Arc<str>) -> Bound {
    sqlx::query(AssertSqlSafe(Arc::clone(text)))
}

/// A statement that isn't worth preparing.
pub(super) fn once(text: String) -> Bound {
    sqlx::query(AssertSqlSafe(text)).persistent(false)
}
