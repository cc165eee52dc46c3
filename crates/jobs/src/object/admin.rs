//! Reads, lists, counts, retries and reaps tasks, by scanning them.

use std::time::Duration;

use object_store::path::{Path, PathPart};
use percent_encoding::percent_decode_str;
use semel_core::Timestamp;

use super::file::{Status, TaskFile, read_time};
use super::work::{PAGE, TRIES, TaskEntry, TaskSnapshot, id_of};
use super::{Inner, overtaken};
use crate::error::Error;
use crate::job::{Job, JobId, JobState};
use crate::queue::{JobCounts, JobPage, JobQuery, ReapReport};

/// So many tasks in a row that can't be read or changed: the server is gone, rather.
const FAILURES: u32 = 5;

const VANISHED: &str = "the worker vanished, and it was the last attempt";

impl Inner {
    /// Where a task lies, whosever it is.
    pub(super) async fn find(&self, id: JobId) -> Result<Option<Path>, Error> {
        let nameless = self.task_path("", id);
        if self.store.get(&nameless).await?.is_some() {
            return Ok(Some(nameless));
        }
        for tenant in self.tenants().await? {
            let path = self.task_path(&tenant, id);
            if self.store.get(&path).await?.is_some() {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// All tenants that have anything here; the nameless one first.
    async fn tenants(&self) -> Result<Vec<String>, Error> {
        let all = self.folder.clone().join("tenants");
        let folders = self.store.folders(&all).await?;
        let named = folders
            .iter()
            .filter_map(|folder| folder.parts().next_back());
        let named = named.filter_map(|part| tenant_of(&part));
        Ok(std::iter::once(String::new()).chain(named).collect())
    }

    /// The tenant of a task's path; empty if there is none.
    pub(super) fn tenant_in(&self, path: &Path) -> String {
        let mut parts = path.prefix_match(&self.folder).into_iter().flatten();
        let is_named = parts.next().is_some_and(|part| part.as_ref() == "tenants");
        let named = parts.next().filter(|_| is_named);
        named.and_then(|part| tenant_of(&part)).unwrap_or_default()
    }

    pub(super) async fn look(&self, id: JobId) -> Result<Option<Job>, Error> {
        if let Some(seen) = self.read(&self.task_path("", id)).await? {
            return seen.task.job("").map(Some);
        }
        for tenant in self.tenants().await? {
            if let Some(seen) = self.read(&self.task_path(&tenant, id)).await? {
                return seen.task.job(&tenant).map(Some);
            }
        }
        Ok(None)
    }

    pub(super) async fn list(&self, query: &JobQuery) -> Result<JobPage, Error> {
        let mut found: Vec<(JobId, String, Path)> = Vec::new();
        for tenant in self.tenants().await? {
            if query
                .tenant
                .as_ref()
                .is_some_and(|wanted| *wanted != tenant)
            {
                continue;
            }
            self.each(&tenant, |path| {
                if let Some(id) =
                    id_of(path).filter(|id| query.after.is_none_or(|after| *id < after))
                {
                    found.push((id, tenant.clone(), path.clone()));
                }
            })
            .await?;
        }
        found.sort_by_key(|(id, ..)| std::cmp::Reverse(*id));
        let most = query.page_size();
        let mut jobs = Vec::new();
        for (id, tenant, path) in found {
            let TaskEntry::Task(seen) = self.found(&path).await? else {
                continue;
            };
            let job = seen.task.job(&tenant)?;
            let fits = query.kind.as_ref().is_none_or(|kind| *kind == job.kind)
                && query.state.is_none_or(|state| state == job.state);
            if fits {
                jobs.push(job);
            }
            if jobs.len() == most {
                return Ok(JobPage {
                    jobs,
                    next: Some(id),
                });
            }
        }
        Ok(JobPage { jobs, next: None })
    }

    /// Every task of a tenant, by name.
    async fn each(&self, tenant: &str, mut see: impl FnMut(&Path)) -> Result<(), Error> {
        let folder = self.base(tenant).join("tasks");
        let mut after = None;
        loop {
            let names = self.store.names(&folder, after.as_ref(), PAGE).await?;
            names.iter().for_each(&mut see);
            if names.len() < PAGE {
                return Ok(());
            }
            after = names.last().cloned();
        }
    }

    async fn paths(&self) -> Result<Vec<Path>, Error> {
        let mut paths = Vec::new();
        for tenant in self.tenants().await? {
            self.each(&tenant, |path| paths.push(path.clone())).await?;
        }
        Ok(paths)
    }

    pub(super) async fn counts(&self) -> Result<JobCounts, Error> {
        let mut counts = JobCounts::default();
        for path in self.paths().await? {
            if id_of(&path).is_some_and(|id| self.is_done(id)) {
                continue;
            }
            match self.found(&path).await? {
                TaskEntry::Task(seen) => match seen.task.status {
                    Status::Pending => counts.queued += 1,
                    Status::Running => counts.running += 1,
                    Status::Failed => counts.dead += 1,
                    Status::Completed => {}
                },
                TaskEntry::Damaged => {
                    counts.damaged += 1;
                    counts.damaged_file.get_or_insert_with(|| path.to_string());
                }
                TaskEntry::Nothing => {}
            }
        }
        Ok(counts)
    }

    pub(super) async fn retry(&self, id: JobId) -> Result<(), Error> {
        let path = self.find(id).await?.ok_or(Error::NotFound)?;
        for tried in 0..TRIES {
            let mut seen = self.read(&path).await?.ok_or(Error::NotFound)?;
            if seen.task.status != Status::Failed {
                // One of the attempts may have come through after all.
                return if tried == 0 {
                    Err(Error::NotDead)
                } else {
                    Ok(())
                };
            }
            let task = &mut seen.task;
            task.status = Status::Pending;
            task.attempt = 0;
            task.worker = None;
            task.lease = None;
            task.error = None;
            task.due_us = self.store.server_time().as_micros();
            if self.replace(&path, task, &seen.version).await? {
                return Ok(());
            }
            self.store.pause(tried).await;
        }
        Err(overtaken())
    }

    /// One that can't be read or changed keeps nobody from the others; a server that is gone ends
    /// it.
    pub(super) async fn reap(&self) -> Result<ReapReport, Error> {
        let mut reaped = ReapReport {
            idle: true,
            ..ReapReport::default()
        };
        let (mut first, mut in_a_row) = (None, 0);
        for path in self.paths().await? {
            let Err(error) = self.reap_one(&path, &mut reaped).await else {
                in_a_row = 0;
                continue;
            };
            first.get_or_insert(error);
            in_a_row += 1;
            if in_a_row == FAILURES {
                break;
            }
        }
        first.map_or(Ok(reaped), Err)
    }

    async fn reap_one(&self, path: &Path, reaped: &mut ReapReport) -> Result<(), Error> {
        if id_of(path).is_some_and(|id| self.is_done(id)) {
            return Ok(());
        }
        let TaskEntry::Task(mut seen) = self.found(path).await? else {
            return Ok(());
        };
        if JobState::from(seen.task.status).has_ended() {
            reaped.swept += u64::from(self.sweep(&seen).await?);
            return Ok(());
        }
        reaped.idle &= seen.task.status != Status::Running;
        if !self.has_lapsed(&seen.task) {
            return Ok(());
        }
        let is_last = seen.task.attempt >= seen.task.max_attempts;
        seen.task.due_us = self.store.server_time().as_micros();
        if is_last {
            seen.task.status = Status::Failed;
            seen.task.error = Some(VANISHED.to_owned());
        } else {
            seen.task.status = Status::Pending;
        }
        if self.replace(path, &mut seen.task, &seen.version).await? {
            self.report_end(path, &seen.task);
            reaped.buried += u64::from(is_last);
            reaped.requeued += u64::from(!is_last);
        }
        Ok(())
    }

    fn has_lapsed(&self, task: &TaskFile) -> bool {
        let until = Timestamp::from_micros(task.due_us);
        task.status == Status::Running
            && self.store.server_time() >= until.plus(self.store.clock_margin())
    }

    /// Forgets an ended task when nobody may ask for it any more.
    async fn sweep(&self, seen: &TaskSnapshot) -> Result<bool, Error> {
        let until = self.kept_until(&seen.task)?;
        if self.store.server_time() >= until {
            return Ok(self.store.remove(&seen.path, &seen.version).await?);
        }
        if seen.task.status == Status::Completed {
            self.remember_done(seen.task.id()?, until);
        }
        Ok(false)
    }

    /// Until when an ended task is kept: its key's time, and as long after its end. A dead letter
    /// stays for as long as anything may.
    pub(super) fn kept_until(&self, task: &TaskFile) -> Result<Timestamp, Error> {
        let expires = read_time(&task.expires_at)?;
        let kept_for = match task.status {
            Status::Failed => self.config.max_retention,
            _ => expires.since(read_time(&task.created_at)?),
        };
        let until = expires.max(Timestamp::from_micros(task.due_us).plus(kept_for));
        // A day more: a submitter that read the record just before may still read the task.
        Ok(until.plus(Duration::from_secs(24 * 60 * 60)))
    }
}

/// The tenant of a folder. `None` if the name isn't one that this crate writes.
fn tenant_of(part: &PathPart<'_>) -> Option<String> {
    let tenant = percent_decode_str(part.as_ref()).decode_utf8().ok()?;
    let is_ours = PathPart::from(&*tenant) == *part;
    is_ours.then(|| tenant.into_owned())
}
