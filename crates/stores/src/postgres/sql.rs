//! The statements, each in four forms: a client that knows the address names the partition itself,
//! which spares the server the search for it.

use std::sync::Arc;

use semel_core::identity::Address;
use sqlx::AssertSqlSafe;

use super::row::Bound;
use crate::sql::group::{LANES, lane_of};

/// How many partitions the table of records has. Each is a lane: a shared statement writes to one.
pub(super) const PARTITIONS: usize = LANES;

/// A statement in its four forms.
pub(super) struct Statement {
    texts: [Arc<str>; PARTITIONS],
    named: bool,
}

impl Statement {
    /// `{records}` in the text stands for the partition.
    pub(super) fn new(text: &str, named: bool) -> Self {
        let of = |index: usize| text.replace("{records}", &partition(index)).into();
        Self {
            texts: std::array::from_fn(of),
            named,
        }
    }

    /// The form for `address`.
    pub(super) fn at(&self, address: &Address) -> Bound {
        self.within(lane_of(address))
    }

    /// The form for a partition.
    pub(super) fn within(&self, partition: usize) -> Bound {
        let text = Arc::clone(&self.texts[partition]);
        sqlx::query(AssertSqlSafe(text)).persistent(self.named)
    }
}

/// The name of a partition.
pub(super) fn partition(index: usize) -> String {
    format!("semel.records_{index}")
}

/// Every column, in the order in which [`super::row`] reads them.
pub(super) const COLUMNS: &str = "fence, coalesce(created_us, written_us), written_us, retention_ms, lease_ms, attempt, max_attempts, \
    secret_id, format, state, crash, seal, token, fingerprint, environment, tenant, scope, hint, checkpoint, head, \
    body, body_bytes, body_day, semel.now_us(), address";

/// The fence of a first run: larger than those of records that are gone, whatever became of the
/// clock (P22).
macro_rules! first_fence {
    () => {
        "greatest(semel.now_us(), (SELECT floor + 1 FROM semel.fence_floor))"
    };
}

/// The fence of a first run that was written. The statement saw the floor of its beginning; if a
/// record has gone since, it is rolled back, as one that lost a race, and sent again.
pub(super) const WRITTEN_FENCE: &str = "semel.above_floor(fence) AS fence";

/// Columns and values of a first run, in the order in which a claim binds them.
pub(super) const FIRST_RUN: (&str, &str) = (
    "INSERT INTO {records} (fence, written_us, retention_ms, lease_ms, attempt, max_attempts, \
     secret_id, format, state, crash, address, seal, token, fingerprint, environment, tenant, scope, hint)",
    concat!(
        first_fence!(),
        ", semel.now_us(), $1, $2, 1, $3, $4, 1, 1, $5, $6, $7, $8, $9, $10, $11, $12, $13"
    ),
);

/// Several first runs: claims as rows of arrays, bound in this order. The list is left open.
pub(super) const CLAIMS: &str = "unnest($1::bigint[], $2::int[], $3::smallint[], $4::smallint[], $5::smallint[], \
    $6::uuid[], $7::uuid[], $8::uuid[], $9::bytea[], $10::text[], $11::text[], $12::text[], $13::text[]";
pub(super) const CLAIM_COLUMNS: &str = "retention, lease, max_attempts, secret, crash, address, seal, token, \
    fingerprint, environment, tenant, scope, hint";

/// The values of several first runs, from those columns.
pub(super) const FIRST_RUNS: &str = concat!(
    "SELECT ",
    first_fence!(),
    ", semel.now_us(), retention, lease, 1, max_attempts, secret, 1, 1, crash, address, seal, token, \
     fingerprint, environment, tenant, scope, hint"
);

/// [`semel_core::record::SEALED_MAGIC`].
macro_rules! sealed_magic {
    () => {
        "decode('f57365616c656402', 'hex')"
    };
}
const SEALED_MAGIC_SQL: &str = sealed_magic!();

/// Whether an argument is an encrypted field.
macro_rules! is_sealed {
    ($argument:literal) => {
        concat!(
            "substring($",
            $argument,
            "::bytea FROM 1 FOR 8) = ",
            sealed_magic!()
        )
    };
}

/// The format of a row with these two fields, checkpoint and head.
macro_rules! format_of {
    ($checkpoint:literal, $head:literal) => {
        concat!(
            "CASE WHEN ",
            is_sealed!($checkpoint),
            " OR ",
            is_sealed!($head),
            " THEN 2 ELSE 1 END"
        )
    };
}

/// Another row in place of exactly the one that was read.
pub(super) const SWAP: &str = concat!(
    "UPDATE {records} SET fence = $6, created_us = $7, written_us = $8, retention_ms = $9, \
    lease_ms = $10, attempt = $11, max_attempts = $12, secret_id = $13, state = $14, crash = $15, \
    token = $16, fingerprint = $17, environment = $18, tenant = $19, scope = $20, hint = $21, \
    checkpoint = $22, head = $23, body = $24, body_bytes = $25, body_day = $26, \
    waited = waited AND $14 <> 1, format = ",
    format_of!(22, 23),
    " WHERE address = $1 AND fence = $2 AND token = $3 AND state = $4 AND written_us = $5 AND format IN (1, 2)"
);

/// With the rows that are `gone`: no fence after them may be smaller than theirs (P22). The largest
/// number of all is left out, as none comes after it.
pub(super) const RAISED_FLOOR: &str = "raised AS (UPDATE semel.fence_floor f SET floor = most.fence FROM \
    (SELECT max(fence) AS fence FROM gone) most WHERE f.floor < most.fence AND most.fence < 9223372036854775807)";

const OWNED: &str = "WHERE address = $1 AND seal = $2 AND fence = $3 AND token = $4 AND format IN (1, 2) \
    AND written_us + retention_ms * 1000 > semel.now_us()";

/// A settlement, if the owner is the one given and the record is open.
pub(super) fn settle_text() -> String {
    // An owner's doubt about what is in doubt already changes nothing (P18).
    format!(
        "UPDATE {{records}} SET state = $5, head = $6, body = $7, body_bytes = $8, body_day = $9, \
         checkpoint = CASE WHEN $5 = 4 THEN checkpoint END, created_us = coalesce(created_us, written_us), \
         format = CASE WHEN $5 = 4 THEN format WHEN {} THEN 2 ELSE 1 END, \
         written_us = semel.now_us() {OWNED} AND (state = 1 OR (state = 4 AND $5 <> 4))",
        is_sealed!(6)
    )
}

/// Settlements of several leases, as rows of arrays. Leaves out those whose key an open transaction
/// has in hand, so that no settlement waits for that transaction because of another.
fn settle_all_text() -> String {
    format!(
        "UPDATE {{records}} r SET state = a.state, head = a.head, body = a.body, body_bytes = a.body_bytes, \
         body_day = NULL, checkpoint = CASE WHEN a.state = 4 THEN r.checkpoint END, \
         created_us = coalesce(r.created_us, r.written_us), format = CASE WHEN a.state = 4 THEN r.format \
         WHEN substring(a.head FROM 1 FOR 8) = {SEALED_MAGIC_SQL} THEN 2 ELSE 1 END, written_us = semel.now_us() \
         FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::uuid[], $5::smallint[], $6::bytea[], $7::bytea[], \
         $8::bigint[], $9::bigint[]) AS a (address, seal, fence, token, state, head, body, body_bytes, lock) \
         WHERE r.address = a.address AND r.seal = a.seal AND r.fence = a.fence AND r.token = a.token \
         AND r.format IN (1, 2) AND r.written_us + r.retention_ms * 1000 > semel.now_us() \
         AND (r.state = 1 OR (r.state = 4 AND a.state <> 4)) AND pg_try_advisory_xact_lock(a.lock) \
         RETURNING r.address, r.waited"
    )
}

/// All statements of the hot path.
pub(super) struct Statements {
    /// A first run, if there is no row and nobody else has the key in hand.
    pub(super) insert: Statement,
    /// First runs of several claims, each as with `insert`. → addresses, tokens and fences.
    pub(super) insert_all: Statement,
    /// A whole row, if there is none and it has not expired.
    pub(super) restore: Statement,
    /// The row and the server's time.
    pub(super) look: Statement,
    /// The same, and whether this transaction is the one that may write.
    pub(super) look_inside: Statement,
    /// Another row in place of exactly the one that was read.
    pub(super) swap: Statement,
    /// The same for a claim: only if nobody else has the key in hand.
    pub(super) take: Statement,
    /// A settlement, if the owner is the one given and the record is open.
    pub(super) settle: Statement,
    /// Settlements of several leases. → addresses, and whether somebody waited.
    pub(super) settle_all: Statement,
    /// A settlement, if this transaction made the claim.
    pub(super) settle_inside: Statement,
    /// Whether this transaction is the one that made the claim.
    pub(super) is_own: Statement,
    /// A lease kept, if the owner is the one given and the record is running.
    pub(super) renew: Statement,
    /// Somebody waits for this record; waits for nobody who has it in hand. → whether what was
    /// waited for has happened.
    pub(super) mark: Statement,
    /// Forgets a record, and a body that is kept apart. → whether it was live, and whether somebody
    /// waited.
    pub(super) delete: Statement,
    named: bool,
}

impl Statements {
    /// A statement that names no partition.
    pub(super) fn plain(&self, text: &'static str) -> Bound {
        sqlx::query(text).persistent(self.named)
    }

    /// The same, for a text that is put together here.
    pub(super) fn made(&self, text: String) -> Bound {
        sqlx::query(AssertSqlSafe(text)).persistent(self.named)
    }

    /// Whether statements are prepared under a name.
    pub(super) const fn named(&self) -> bool {
        self.named
    }

    pub(super) fn new(named: bool) -> Self {
        let (columns, values) = FIRST_RUN;
        let conflict = format!("ON CONFLICT (address) DO NOTHING RETURNING {WRITTEN_FENCE}");
        let owned = OWNED;
        let settle = settle_text();
        let of = |text: &str| Statement::new(text, named);
        Self {
            insert: of(&format!(
                "{columns} SELECT {values} WHERE pg_try_advisory_xact_lock($14) {conflict}"
            )),
            // In the order of addresses, to avoid deadlocks between processes.
            insert_all: of(&format!(
                "{columns} {FIRST_RUNS} FROM {CLAIMS}, $14::bigint[]) AS a ({CLAIM_COLUMNS}, lock) \
                 WHERE pg_try_advisory_xact_lock(lock) ORDER BY address \
                 ON CONFLICT (address) DO NOTHING RETURNING address, token, {WRITTEN_FENCE}"
            )),
            restore: of(&format!(
                "INSERT INTO {{records}} (address, seal, fence, created_us, written_us, retention_ms, lease_ms, \
                 attempt, max_attempts, secret_id, state, crash, token, fingerprint, environment, tenant, scope, hint, \
                 checkpoint, head, body, body_bytes, body_day, format) SELECT {}, {} WHERE $5 + $6 * 1000 > semel.now_us() \
                 ON CONFLICT (address) DO NOTHING RETURNING waited",
                numbered(23),
                format_of!(19, 20)
            )),
            look: of(&format!(
                "SELECT {COLUMNS} FROM {{records}} WHERE address = $1"
            )),
            look_inside: of(&format!(
                "SELECT {COLUMNS}, pg_try_advisory_xact_lock($2) FROM (SELECT 1) one \
                 LEFT JOIN {{records}} ON address = $1"
            )),
            swap: of(&format!("{SWAP} RETURNING waited")),
            take: of(&format!(
                "{SWAP} AND pg_try_advisory_xact_lock($27) RETURNING waited"
            )),
            settle: of(&format!("{settle} RETURNING waited")),
            settle_all: of(&settle_all_text()),
            settle_inside: of(&format!(
                "{settle} AND xmin = pg_current_xact_id()::xid RETURNING waited"
            )),
            is_own: of("SELECT 1 FROM {records} WHERE address = $1 AND token = $2 \
                 AND xmin = pg_current_xact_id_if_assigned()::xid"),
            renew: of(&format!(
                "UPDATE {{records}} SET created_us = coalesce(created_us, written_us), \
                 written_us = semel.now_us(), checkpoint = coalesce($5, checkpoint), \
                 format = CASE WHEN $5::bytea IS NULL THEN format WHEN {} THEN 2 ELSE 1 END \
                 {owned} AND state = 1 RETURNING 1",
                is_sealed!(5)
            )),
            mark: of(
                "WITH marked AS (UPDATE {records} SET waited = true WHERE address = (SELECT address FROM {records} \
                WHERE address = $1 AND state IN (1, 4) AND NOT waited FOR UPDATE SKIP LOCKED)) \
                SELECT NOT EXISTS (SELECT 1 FROM {records} WHERE address = $1 AND state = 1) \
                AND pg_try_advisory_xact_lock($2)",
            ),
            delete: of(&format!(
                "WITH gone AS (DELETE FROM {{records}} WHERE address = $1 AND seal = $2 RETURNING address, fence, \
                body_day, waited, written_us + retention_ms * 1000 > semel.now_us() AS live), body AS \
                (DELETE FROM semel.bodies b USING gone WHERE b.day = gone.body_day AND b.address = gone.address), \
                {RAISED_FLOOR} SELECT live, waited FROM gone"
            )),
            named,
        }
    }
}

/// `$1, $2, …`
fn numbered(count: usize) -> String {
    let all: Vec<String> = (1..=count).map(|number| format!("${number}")).collect();
    all.join(", ")
}
