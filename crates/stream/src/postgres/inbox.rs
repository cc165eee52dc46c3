//! [`Inbox`]: what a consumer has applied, in the database where it applies it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use sqlx::types::Uuid;
use sqlx::{PgConnection, Row as _};

use super::InboxError;
use crate::key::{Epoch, SeqNo, SessionId, StreamKey};
use crate::marks::{Mark, MarkCheck, Order, Progress};
use crate::operation::{StreamOperation, Tenant};

/// What to do with an operation, once the transaction that it was asked in is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboxAdmission {
    /// Apply it, in the same transaction.
    Apply,
    /// The same; it passes over `missing` operations from `first` on ([`Order::Monotonic`]).
    Skips {
        /// The first that is missing.
        first: SeqNo,
        /// How many are.
        missing: u64,
    },
    /// It was applied before.
    Duplicate,
    /// It comes too early.
    Gap {
        /// Whom it must wait for.
        expected: SeqNo,
    },
    /// It is from a life of its producer that is over.
    Stale {
        /// The first epoch that counts.
        current: Epoch,
    },
}

impl InboxAdmission {
    /// Whether to apply the operation.
    #[must_use]
    pub const fn applies(self) -> bool {
        matches!(self, Self::Apply | Self::Skips { .. })
    }
}

/// The marks and keys of one consumer: those of two never meet.
#[derive(Clone, Debug)]
pub struct Inbox {
    consumer: String,
    order: Order,
}

type KnownProgress = BTreeMap<(Tenant, SessionId), Progress>;

/// The keys that were asked about: whether each is new, and recorded now.
type AskedKeys = HashMap<(Tenant, StreamKey), bool>;

// Locks the sessions' rows, and makes those that aren't there. In one order, so that no two wait
// for each other.
const LOCK: &str = "INSERT INTO semel.stream_sessions AS s (consumer, tenant, session, epoch, seqno, fence) \
     SELECT $1, w.tenant, w.session, 0, 0, 0 FROM unnest($2::uuid[], $3::uuid[]) AS w (tenant, session) \
     ORDER BY w.tenant, w.session \
     ON CONFLICT (consumer, tenant, session) DO UPDATE SET fence = s.fence \
     RETURNING tenant, session, epoch, seqno, fence";

const MOVE: &str = "UPDATE semel.stream_sessions AS s SET epoch = w.epoch, seqno = w.seqno, fence = w.fence \
     FROM unnest($2::uuid[], $3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[]) \
     AS w (tenant, session, epoch, seqno, fence) \
     WHERE s.consumer = $1 AND s.tenant = w.tenant AND s.session = w.session";

const KEYS: &str = "INSERT INTO semel.stream_inbox (consumer, tenant, key) \
     SELECT $1, w.tenant, w.key FROM unnest($2::uuid[], $3::uuid[]) AS w (tenant, key) \
     ORDER BY w.tenant, w.key ON CONFLICT DO NOTHING RETURNING tenant, key";

// A limited number, so that no transaction is a long one.
const SWEEP: &str = "DELETE FROM semel.stream_inbox WHERE ctid = ANY (ARRAY(\
     SELECT ctid FROM semel.stream_inbox \
     WHERE consumer = $1 AND applied < clock_timestamp() - make_interval(secs => $2) \
     LIMIT $3 FOR UPDATE SKIP LOCKED))";

impl Inbox {
    /// The inbox of the consumer of this name. Processes that share the work share the name.
    ///
    /// # Errors
    /// [`InboxError::Name`].
    pub fn new(consumer: &str, order: Order) -> Result<Self, InboxError> {
        if consumer.is_empty() || consumer.len() > 128 {
            return Err(InboxError::Name);
        }
        Ok(Self {
            consumer: consumer.to_owned(),
            order,
        })
    }

    /// What to do with each of these, in their order, and records it: all in the caller's
    /// transaction, in three statements at most; in a few more only if a known key comes under a
    /// number that would pass over others. Apply what is to be applied in that transaction, in the
    /// same order, and commit; or roll back, and nothing was recorded.
    ///
    /// Roll back wherever one of your own statements failed. A `COMMIT` after that is no error, but
    /// rolls back: whoever swallowed the failure would acknowledge what was never applied.
    ///
    /// Waits for other transactions that hold one of the sessions or keys.
    ///
    /// # Errors
    /// [`InboxError`]; roll back then.
    pub async fn admit(
        &self,
        transaction: &mut PgConnection,
        operations: &[StreamOperation],
    ) -> Result<Vec<InboxAdmission>, InboxError> {
        let sessions: BTreeSet<_> = operations.iter().filter_map(of_session).collect();
        let before = self.lock(transaction, &sessions).await?;
        let mut asked = AskedKeys::new();
        // Judged as if all keys were new, and again with what is known of them: a mark that a
        // duplicate did not move lets through what would have come too late behind it, and that may
        // have a key to ask about. What was let through once stays so, or its key goes to one
        // before it: no key is recorded in vain.
        let (mut known, admissions) = loop {
            let judged = judge_all(&before, operations, &asked, self.order)?;
            let wanted = unasked(operations, &judged.1, &asked);
            if wanted.is_empty() {
                break judged;
            }
            self.record_keys(transaction, wanted, &mut asked).await?;
        };
        known.retain(|session, progress| before.get(session) != Some(progress));
        self.store(transaction, &known).await?;
        Ok(admissions)
    }

    /// Ends all epochs of a session before `epoch`, in the caller's transaction. → the last
    /// operation that was applied, from which the restarted producer goes on.
    ///
    /// # Errors
    /// [`InboxError::Stale`] if a later epoch has begun.
    pub async fn fence(
        &self,
        transaction: &mut PgConnection,
        tenant: Tenant,
        session: SessionId,
        epoch: Epoch,
    ) -> Result<Mark, InboxError> {
        let session = (tenant, session);
        let mut known = self.lock(transaction, &BTreeSet::from([session])).await?;
        let progress = known.entry(session).or_default();
        if epoch < progress.fence {
            return Err(InboxError::Stale);
        }
        progress.fence = epoch;
        let mark = progress.mark;
        self.store(transaction, &known).await?;
        Ok(mark)
    }

    /// Forgets keys that were applied longer than `keep` ago, at most `most` of them. → how many.
    /// Do so from time to time, until it says 0; keep them for longer than a duplicate can be in
    /// flight.
    ///
    /// # Errors
    /// [`InboxError::Database`].
    pub async fn sweep(
        &self,
        connection: &mut PgConnection,
        keep: Duration,
        most: u32,
    ) -> Result<u64, InboxError> {
        let sweep = sqlx::query(SWEEP).persistent(false).bind(&self.consumer);
        let sweep = sweep.bind(keep.as_secs_f64()).bind(i64::from(most));
        Ok(sweep.execute(connection).await?.rows_affected())
    }

    async fn lock(
        &self,
        transaction: &mut PgConnection,
        sessions: &BTreeSet<(Tenant, SessionId)>,
    ) -> Result<KnownProgress, InboxError> {
        if sessions.is_empty() {
            return Ok(KnownProgress::new());
        }
        let (tenants, ids): (Vec<_>, Vec<_>) = sessions.iter().copied().map(uuids).unzip();
        let lock = sqlx::query(LOCK).persistent(false).bind(&self.consumer);
        let rows = lock.bind(tenants).bind(ids).fetch_all(transaction).await?;
        let mut known = KnownProgress::new();
        for row in rows {
            let (tenant, session): (Uuid, Uuid) = (row.try_get(0)?, row.try_get(1)?);
            let number = |at: usize| -> Result<u64, InboxError> {
                u64::try_from(row.try_get::<i64, _>(at)?).map_err(|_| InboxError::TooLarge)
            };
            let progress = Progress {
                mark: Mark::new(number(2)?, number(3)?),
                fence: Epoch(number(4)?),
            };
            let session = SessionId::from_bytes(session.into_bytes());
            known.insert((Tenant::from_bytes(tenant.into_bytes()), session), progress);
        }
        Ok(known)
    }

    async fn store(
        &self,
        transaction: &mut PgConnection,
        known: &KnownProgress,
    ) -> Result<(), InboxError> {
        if known.is_empty() {
            return Ok(());
        }
        let (tenants, ids): (Vec<_>, Vec<_>) = known.keys().copied().map(uuids).unzip();
        let signed = |of: fn(&Progress) -> u64| -> Result<Vec<i64>, InboxError> {
            let all = known.values().map(|progress| i64::try_from(of(progress)));
            all.collect::<Result<_, _>>()
                .map_err(|_| InboxError::TooLarge)
        };
        let update = sqlx::query(MOVE).persistent(false).bind(&self.consumer);
        update
            .bind(tenants)
            .bind(ids)
            .bind(signed(|progress| progress.mark.epoch.0)?)
            .bind(signed(|progress| progress.mark.seqno.0)?)
            .bind(signed(|progress| progress.fence.0)?)
            .execute(transaction)
            .await?;
        Ok(())
    }

    /// Records keys, and notes which of them are new.
    async fn record_keys(
        &self,
        transaction: &mut PgConnection,
        wanted: BTreeSet<(Tenant, StreamKey)>,
        asked: &mut AskedKeys,
    ) -> Result<(), InboxError> {
        let uuids = |(tenant, key): (Tenant, StreamKey)| {
            (
                Uuid::from_bytes(tenant.to_bytes()),
                Uuid::from_bytes(key.0.to_be_bytes()),
            )
        };
        let (tenants, keys): (Vec<_>, Vec<_>) = wanted.iter().copied().map(uuids).unzip();
        let insert = sqlx::query(KEYS).persistent(false).bind(&self.consumer);
        let rows = insert
            .bind(tenants)
            .bind(keys)
            .fetch_all(transaction)
            .await?;
        let mut new = HashSet::new();
        for row in rows {
            new.insert((row.try_get::<Uuid, _>(0)?, row.try_get::<Uuid, _>(1)?));
        }
        asked.extend(
            wanted
                .into_iter()
                .map(|key| (key, new.contains(&uuids(key)))),
        );
        Ok(())
    }
}

fn of_session(operation: &StreamOperation) -> Option<(Tenant, SessionId)> {
    let (session, _) = operation.place()?;
    Some((operation.tenant(), session))
}

fn uuids((tenant, session): (Tenant, SessionId)) -> (Uuid, Uuid) {
    (
        Uuid::from_bytes(tenant.to_bytes()),
        Uuid::from_bytes(*session.as_bytes()),
    )
}

fn of_key(operation: &StreamOperation) -> Option<(Tenant, StreamKey)> {
    Some((operation.tenant(), operation.window_key()?))
}

/// The keys of what may be applied that nobody asked about yet.
fn unasked(
    operations: &[StreamOperation],
    admissions: &[InboxAdmission],
    asked: &AskedKeys,
) -> BTreeSet<(Tenant, StreamKey)> {
    let applied = operations.iter().zip(admissions);
    applied
        .filter(|(_, admission)| admission.applies())
        .filter_map(|(operation, _)| of_key(operation))
        .filter(|key| !asked.contains_key(key))
        .collect()
}

/// What marks and keys say of all operations in turn; a key that nobody asked about counts as new.
/// → where the sessions are then, and what to do.
fn judge_all(
    before: &KnownProgress,
    operations: &[StreamOperation],
    asked: &AskedKeys,
    order: Order,
) -> Result<(KnownProgress, Vec<InboxAdmission>), InboxError> {
    let mut known = before.clone();
    let mut taken = HashSet::new();
    let mut admissions = Vec::with_capacity(operations.len());
    for operation in operations {
        let key = of_key(operation);
        // The second with the same key is a duplicate of the first.
        let is_duplicate =
            key.is_some_and(|key| asked.get(&key) == Some(&false) || taken.contains(&key));
        let admission = judge(&mut known, operation, is_duplicate, order)?;
        if admission.applies() {
            taken.extend(key);
        }
        admissions.push(admission);
    }
    Ok((known, admissions))
}

/// What the marks say, those that this batch has moved included.
///
/// A duplicate by its key uses up the number that is next, or its session would wait for it
/// forever. It passes over none: nobody would be told (I15).
fn judge(
    known: &mut KnownProgress,
    operation: &StreamOperation,
    is_duplicate: bool,
    order: Order,
) -> Result<InboxAdmission, InboxError> {
    let Some((session, at)) = operation.place() else {
        return Ok(if is_duplicate {
            InboxAdmission::Duplicate
        } else {
            InboxAdmission::Apply
        });
    };
    if i64::try_from(at.seqno.0)
        .and(i64::try_from(at.epoch.0))
        .is_err()
    {
        return Err(InboxError::TooLarge);
    }
    let progress = known.entry((operation.tenant(), session)).or_default();
    let check = progress.check(at, order);
    if check == MarkCheck::Next || check.applies() && !is_duplicate {
        *progress = progress.advanced(at);
    }
    Ok(match check {
        MarkCheck::Next | MarkCheck::Skips { .. } if is_duplicate => InboxAdmission::Duplicate,
        MarkCheck::Next => InboxAdmission::Apply,
        MarkCheck::Skips { first, missing } => InboxAdmission::Skips { first, missing },
        MarkCheck::Duplicate => InboxAdmission::Duplicate,
        MarkCheck::Gap { expected } => InboxAdmission::Gap { expected },
        MarkCheck::Stale { current } => InboxAdmission::Stale { current },
    })
}
