//! The statements.
//!
//! **Whose the record is** is told by an `INSERT` that succeeded (only one can), or by the token that is read back.
//! How many rows a statement is said to have affected depends on a flag of the connection (`CLIENT_FOUND_ROWS`, which
//! this client sets, and which a proxy may not): rows that were *matched*, or only those that were *changed*. For
//! `ON DUPLICATE KEY UPDATE` the flag even makes "nothing changed" look like "inserted". So that statement isn't used,
//! and every `UPDATE` here changes each row that it matches: then both counts say the same, and none of them is
//! trusted to say "not done": 0 is followed by a look at the record.

use std::sync::Arc;

use sqlx::AssertSqlSafe;

use super::row::Bound;

/// The server's time in microseconds since 1970, at the statement's beginning. In UTC whatever the session's time zone.
pub(super) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// Every column, in the order in which [`super::row`] reads them.
const COLUMNS: &str = "address, seal, token, fence, created_us, written_us, retention_ms, lease_ms, attempt, max_attempts, \
    secret_id, format, state, crash, fingerprint, environment, tenant, scope, hint, body_bytes, checkpoint, head, body";

/// The statements of the hot path, put together once.
pub(super) struct Statements {
    /// A first run, if there is no row; its fence comes back as the last inserted id.
    pub(super) insert: Arc<str>,
    /// A whole row, if there is none.
    pub(super) restore: Arc<str>,
    /// The row and the server's time.
    pub(super) look: Arc<str>,
    /// The same, locked for this transaction; refused where another has it.
    pub(super) look_locked: Arc<str>,
    /// Another row in place of exactly the one that was read.
    pub(super) swap: Arc<str>,
    /// A settlement, if the owner is the one given and the record is open. Changes the state, always.
    pub(super) settle: Arc<str>,
    /// A lease kept, if the owner is the one given and the record is running.
    pub(super) renew: Arc<str>,
    /// What a listing shows, up to its conditions.
    pub(super) list: Arc<str>,
}

impl Statements {
    pub(super) fn new() -> Self {
        let owned = format!(
            "WHERE address = ? AND seal = ? AND fence = ? AND token = ? AND format = 1 \
             AND written_us + retention_ms * 1000 > {NOW}"
        );
        let text = |text: String| Arc::<str>::from(text);
        let look = format!("SELECT {COLUMNS}, {NOW} FROM semel_records WHERE address = ?");
        Self {
            insert: text(format!(
                "INSERT INTO semel_records (fence, created_us, written_us, format, state, attempt, retention_ms, \
                 lease_ms, max_attempts, secret_id, crash, address, seal, token, fingerprint, environment, tenant, \
                 scope, hint) VALUES (LAST_INSERT_ID({NOW}), {NOW}, {NOW}, 1, 1, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, \
                 ?, ?)"
            )),
            restore: text(format!(
                "INSERT INTO semel_records (fence, created_us, written_us, retention_ms, lease_ms, attempt, \
                 max_attempts, secret_id, state, crash, token, fingerprint, environment, tenant, scope, hint, \
                 checkpoint, head, body, body_bytes, address, seal, format) VALUES ({} 1)",
                "?, ".repeat(22)
            )),
            look_locked: text(format!("{look} FOR UPDATE NOWAIT")),
            look: text(look),
            swap: text("UPDATE semel_records SET fence = ?, created_us = ?, written_us = ?, retention_ms = ?, lease_ms = ?, \
                   attempt = ?, max_attempts = ?, secret_id = ?, state = ?, crash = ?, token = ?, fingerprint = ?, \
                   environment = ?, tenant = ?, scope = ?, hint = ?, checkpoint = ?, head = ?, body = ?, \
                   body_bytes = ? \
                   WHERE address = ? AND fence = ? AND token = ? AND state = ? AND written_us = ? AND format = 1"
                .to_owned()),
            // An owner's doubt about what is in doubt already changes nothing (P18).
            settle: text(format!(
                "UPDATE semel_records SET checkpoint = IF(? = 4, checkpoint, NULL), head = ?, body = ?, \
                 body_bytes = ?, written_us = {NOW}, state = ? \
                 {owned} AND (state = 1 OR (state = 4 AND ? <> 4))"
            )),
            renew: text(format!(
                "UPDATE semel_records SET written_us = {NOW}, checkpoint = COALESCE(?, checkpoint) \
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
