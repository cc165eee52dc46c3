//! Leases tasks: scans the shards, and replaces exactly the version that was read
//! (compare-and-swap).

use bytes::Bytes;
use object_store::path::Path;
use semel_core::Timestamp;

use super::Inner;
use super::file::{SHARDS, Status, token};
use super::work::{PAGE, TaskEntry, TaskSnapshot, id_of};
use crate::error::Error;
use crate::job::RequestId;
use crate::work::{JobLease, LeaseOptions, LeaseToken};

/// Tasks that are looked at before the best of them are taken.
const LOOKED_AT: usize = 64;

/// Once a task is taken, others are looked for during this part of its lease: the rest is for the
/// work.
const LOOKING: u32 = 10;

impl Inner {
    pub(super) async fn lease(&self, ask: &LeaseOptions) -> Result<Vec<JobLease>, Error> {
        ask.check()?;
        let mut leased = Vec::new();
        let ended = self.take_up_to(ask, &mut leased).await;
        match ended {
            Err(error) if leased.is_empty() => Err(error),
            // Tasks that were leased are returned in spite of the error, because no other worker
            // would get them.
            Ok(()) | Err(_) => Ok(leased),
        }
    }

    /// Takes as many as are asked for, or are there, or can be found while the first lease is
    /// young.
    async fn take_up_to(
        &self,
        ask: &LeaseOptions,
        leased: &mut Vec<JobLease>,
    ) -> Result<(), Error> {
        let mut until = None;
        let tasks = self.base(&ask.tenant).join("tasks");
        // One listing is enough for a small queue, so that one in which nothing happens is cheap.
        let all = self.store.names(&tasks, None, PAGE).await?;
        let all = (all.len() < PAGE).then_some(all);
        let first = usize::try_from(self.env.entropy.next_u128() % 16).unwrap_or(0);
        for offset in 0..SHARDS.len() {
            if self.is_past(until) {
                return Ok(());
            }
            let shard = tasks.clone().join(SHARDS[(first + offset) % SHARDS.len()]);
            let mut found = self.due(ask, &shard, all.as_deref(), until).await?;
            found.sort_by_key(|seen| (std::cmp::Reverse(seen.task.priority), seen.task.due_us));
            for seen in found {
                if self.is_past(until) {
                    return Ok(());
                }
                let began = self.store.server_time();
                leased.extend(self.take(ask, seen).await?);
                if leased.len() == ask.most {
                    return Ok(());
                }
                if until.is_none() && !leased.is_empty() {
                    until = Some(began.plus(ask.span / LOOKING));
                }
            }
        }
        Ok(())
    }

    fn is_past(&self, until: Option<Timestamp>) -> bool {
        until.is_some_and(|until| self.store.server_time() >= until)
    }

    /// Tasks of a shard that may be started now; those found so far, once it is `until`. `all` are
    /// the names of all shards, if they are known.
    async fn due(
        &self,
        ask: &LeaseOptions,
        shard: &Path,
        all: Option<&[Path]>,
        until: Option<Timestamp>,
    ) -> Result<Vec<TaskSnapshot>, Error> {
        let (mut due, mut after) = (Vec::new(), None);
        loop {
            let names = match all {
                Some(all) => of_shard(all, shard),
                None => self.store.names(shard, after.as_ref(), PAGE).await?,
            };
            for path in &names {
                if self.is_past(until) {
                    return Ok(due);
                }
                let Some(seen) = self.unended(path).await? else {
                    continue;
                };
                let is_due = seen.task.status == Status::Pending
                    && seen.task.due_us <= self.store.server_time().as_micros();
                if is_due && ask.kinds.contains(&seen.task.task_type) {
                    due.push(seen);
                }
                if due.len() == LOOKED_AT {
                    return Ok(due);
                }
            }
            if names.len() < PAGE {
                return Ok(due);
            }
            after = names.last().cloned();
        }
    }

    /// The task at this path; `None` if there is none, or it has ended.
    async fn unended(&self, path: &Path) -> Result<Option<TaskSnapshot>, Error> {
        let Some(id) = id_of(path) else {
            return Ok(None);
        };
        if self.is_done(id) {
            return Ok(None);
        }
        let TaskEntry::Task(seen) = self.found(path).await? else {
            return Ok(None);
        };
        match seen.task.status {
            Status::Completed => {
                self.remember_done(id, self.kept_until(&seen.task)?);
                Ok(None)
            }
            // Not remembered: any process may give it another chance.
            Status::Failed => Ok(None),
            Status::Pending | Status::Running => Ok(Some(*seen)),
        }
    }

    async fn take(
        &self,
        ask: &LeaseOptions,
        seen: TaskSnapshot,
    ) -> Result<Option<JobLease>, Error> {
        let lease = LeaseToken(self.env.entropy.next_u128());
        let now = self.store.server_time();
        let mut task = seen.task;
        task.status = Status::Running;
        task.attempt = task.attempt.saturating_add(1);
        task.worker = Some(ask.worker.clone());
        task.lease = Some(token(lease));
        task.started_us = Some(now.as_micros());
        task.due_us = now.plus(ask.span).as_micros();
        let id = task.id()?;
        if !self.replace(&seen.path, &mut task, &seen.version).await? {
            return Ok(None);
        }
        Ok(Some(JobLease {
            id,
            request_id: RequestId::from_u128(id.as_u128()),
            kind: task.task_type,
            params: Bytes::from(task.input.get().to_owned()),
            attempt: task.attempt,
            max_attempts: task.max_attempts,
            token: lease,
            span: ask.span,
        }))
    }
}

fn of_shard(all: &[Path], shard: &Path) -> Vec<Path> {
    let is_there = |path: &&Path| path.prefix_matches(shard);
    all.iter().filter(is_there).cloned().collect()
}
