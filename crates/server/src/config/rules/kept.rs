//! The audit trail and the queue of jobs.

use super::Judge;
use crate::config::kept::Audit;
use crate::config::tree::{ApiAccess, Config};

impl Judge<'_> {
    pub(super) fn audit(&mut self, audit: &Audit) {
        let (postgres, nats) = (&audit.postgres, &audit.nats);
        for (path, is_set, urls) in [
            (
                "audit.postgres",
                postgres.is_set(),
                (&postgres.url, &postgres.url_file),
            ),
            ("audit.nats", nats.is_set(), (&nats.url, &nats.url_file)),
        ] {
            if is_set && audit.file.is_none() {
                let message = "a copy of the audit trail is made from its file, and there is none";
                self.wrong(path, message, "name one: audit.file");
            }
            if urls.0.is_some() && urls.1.is_some() {
                let message = "there are two URLs: url and url_file";
                self.wrong(&format!("{path}.url_file"), message, "keep one of them");
            }
            self.file(&format!("{path}.url_file"), urls.1.as_ref());
        }
        self.file(
            "audit.nats.credentials_file",
            nats.credentials_file.as_ref(),
        );
        let is_subject = |text: &str| {
            !text.is_empty()
                && text.split('.').all(|part| {
                    !part.is_empty()
                        && part
                            .bytes()
                            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
                })
        };
        if !is_subject(&nats.subject) {
            let fix = "letters, digits, - and _, with dots between the parts";
            self.wrong("audit.nats.subject", "this is no subject", fix);
        }
        if !is_subject(&nats.stream) || nats.stream.contains('.') {
            let fix = "letters, digits, - and _";
            self.wrong("audit.nats.stream", "this is no name of a stream", fix);
        }
        if audit.retention.0.is_zero() {
            self.wrong(
                "audit.retention",
                "nothing would be kept",
                "write how long, such as \"90d\"",
            );
        }
    }

    pub(super) fn jobs(&mut self, config: &Config) {
        let jobs = &config.jobs;
        if !jobs.enabled {
            return;
        }
        if config.api.access == ApiAccess::Off {
            self.wrong(
                "jobs.enabled",
                "nobody may call the queue of jobs",
                "say who may: api.access = \"tokens\", or \"loopback\"",
            );
        }
        let url = config.store.url.as_deref().unwrap_or("postgres:");
        let can_have = ["postgres:", "postgresql:", "s3:", "gs:", "az:"];
        if !can_have.iter().any(|scheme| url.starts_with(scheme)) {
            self.wrong(
                "jobs.enabled",
                "there can be no queue in this store",
                "keep the records in PostgreSQL or in a bucket: --store postgres://… or s3://…",
            );
        }
        if jobs.max_result_bytes.0 > semel_jobs::QueueConfig::MAX_ANSWER_BYTES as u64 {
            let fix = "write at most \"31KiB\"";
            self.wrong(
                "jobs.max_result_bytes",
                "a result that is kept has at most 31 KiB",
                fix,
            );
        }
        let retention = jobs.retention.unwrap_or(jobs.max_retention);
        if retention.0 > jobs.max_retention.0 || retention.0.is_zero() {
            let fix = "write at most jobs.max_retention, and more than nothing";
            self.wrong(
                "jobs.retention",
                "answers would be kept for longer than they may",
                fix,
            );
        }
        if jobs.reap_every.0.is_zero() {
            let fix = "write at least \"100ms\"";
            self.wrong("jobs.reap_every", "nothing can happen in no time", fix);
        }
    }
}
