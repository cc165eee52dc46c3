//! Queue depth, for the limits. It is counted from time to time, and jobs that this process adds
//! are added. So a limit may be exceeded by what other processes submit between two counts.
//! Counting on every submission would cost too much.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use semel_core::Tick;
use semel_stores::postgres::PostgresStore;

use super::Inner;
use crate::error::Error;
use crate::job::NewJob;

/// Between two counts: at least so long, and so many times as long as the last one took.
const EVERY: Duration = Duration::from_millis(500);
const TIMES: u32 = 20;

/// When it is worth asking again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The most pairs of kind and client that are told apart: those with the most jobs.
const COUNT: &str = "SELECT tenant, kind, client, count(*) FILTER (WHERE state = 1), count(*) FROM semel.jobs \
    WHERE state < 3 AND environment = $1 GROUP BY 1, 2, 3 ORDER BY 5 DESC LIMIT 10000";

/// Whose, and which kind or client.
type Name = (String, String);

#[derive(Default)]
pub(super) struct Depths {
    counted: Mutex<CachedCounts>,
    counting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct CachedCounts {
    next: Option<Tick>,
    queued: HashMap<Name, u64>,
    unfinished: HashMap<Name, u64>,
}

impl Depths {
    /// Whether there is room for this job.
    pub(super) async fn check(&self, queue: &Inner, job: &NewJob) -> Result<(), Error> {
        let limits = &queue.config.limits;
        if !limits.bounds_queued() {
            return Ok(());
        }
        self.count(queue).await?;
        let counted = self.counted.lock();
        let is_full = |most: Option<u64>, of: &HashMap<Name, u64>, name: &str| {
            let name = (job.tenant.clone(), name.to_owned());
            most.is_some_and(|most| of.get(&name).is_some_and(|count| *count >= most))
        };
        let full = if is_full(limits.queued_per_kind, &counted.queued, &job.kind) {
            Some("kind")
        } else if !job.client.is_empty()
            && is_full(
                limits.unfinished_per_client,
                &counted.unfinished,
                &job.client,
            )
        {
            Some("client")
        } else {
            None
        };
        full.map_or(Ok(()), |full| {
            Err(Error::Full {
                full,
                retry_after: RETRY_AFTER,
            })
        })
    }

    /// This process has added one.
    pub(super) fn add(&self, job: &NewJob) {
        let mut counted = self.counted.lock();
        if counted.next.is_none() {
            return;
        }
        let kind = (job.tenant.clone(), job.kind.clone());
        *counted.queued.entry(kind).or_default() += 1;
        if !job.client.is_empty() {
            let client = (job.tenant.clone(), job.client.clone());
            *counted.unfinished.entry(client).or_default() += 1;
        }
    }

    /// Counts, if it is time; one at a time, and the others go by the last count, unless there is
    /// none.
    async fn count(&self, queue: &Inner) -> Result<(), Error> {
        let clock = &queue.engine.env().clock;
        let is_due = |now: Tick| self.counted.lock().next.is_none_or(|next| now >= next);
        if !is_due(clock.now()) {
            return Ok(());
        }
        let is_first = self.counted.lock().next.is_none();
        let _one = match self.counting.try_lock() {
            Ok(guard) => guard,
            Err(_) if !is_first => return Ok(()),
            Err(_) => self.counting.lock().await,
        };
        let began = clock.now();
        if !is_due(began) {
            return Ok(());
        }
        let bind = |query: semel_stores::postgres::Bound| query.bind(queue.environment.clone());
        let rows = queue.store.rows(COUNT, bind).await?;
        let (mut queued, mut unfinished) = (HashMap::new(), HashMap::new());
        for row in &rows {
            let tenant: String = PostgresStore::column(row, 0)?;
            let (kind, client): (String, String) = (
                PostgresStore::column(row, 1)?,
                PostgresStore::column(row, 2)?,
            );
            let number = |at| PostgresStore::column::<i64>(row, at).map(i64::unsigned_abs);
            *queued.entry((tenant.clone(), kind)).or_default() += number(3)?;
            *unfinished.entry((tenant, client)).or_default() += number(4)?;
        }
        let now = clock.now();
        let pause = EVERY.max(now.since(began) * TIMES);
        *self.counted.lock() = CachedCounts {
            next: Some(now.plus(pause)),
            queued,
            unfinished,
        };
        Ok(())
    }
}
