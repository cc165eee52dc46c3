//! Rules of the audit trail and of the job queue.

use semel::StoreScheme;

use super::Rules;
use crate::config::admin::ApiAccess;
use crate::config::audit::Audit;
use crate::config::tree::Config;

impl Rules<'_> {
    pub(super) fn check_audit(&mut self, audit: &Audit) {
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
                let message =
                    "a copy of the audit trail is made from its file, and audit.file is not set";
                self.report(path, message, "set audit.file");
            }
            if urls.0.is_some() && urls.1.is_some() {
                let message = "both url and url_file are set";
                self.report(&format!("{path}.url_file"), message, "keep one of them");
            }
            self.check_file(&format!("{path}.url_file"), urls.1.as_ref());
        }
        self.check_file(
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
            let fix = "use letters, digits, - and _, with dots between the parts";
            self.report("audit.nats.subject", "this is not a valid subject", fix);
        }
        if !is_subject(&nats.stream) || nats.stream.contains('.') {
            let fix = "use letters, digits, - and _";
            self.report("audit.nats.stream", "this is not a valid stream name", fix);
        }
        if audit.retention.0.is_zero() {
            self.report(
                "audit.retention",
                "with this retention no entry would be kept",
                "write a time span, such as \"90d\"",
            );
        }
    }

    pub(super) fn check_jobs(&mut self, config: &Config) {
        let jobs = &config.jobs;
        if !jobs.enabled {
            return;
        }
        if config.api.access == ApiAccess::Off {
            self.report(
                "jobs.enabled",
                "api.access = \"off\" also closes the job queue",
                "set api.access to \"tokens\" or \"loopback\"",
            );
        }
        let url = config.store.url.as_deref().unwrap_or("postgres://");
        let supported = [StoreScheme::Postgres, StoreScheme::Object];
        if !StoreScheme::of_url(url).is_some_and(|scheme| supported.contains(&scheme)) {
            self.report(
                "jobs.enabled",
                "this store does not support the job queue",
                "use PostgreSQL or a bucket: --store postgres://… or s3://…",
            );
        }
        if jobs.max_result_bytes.0 > semel_jobs::QueueConfig::MAX_ANSWER_BYTES as u64 {
            let fix = "write at most \"31KiB\"";
            self.report(
                "jobs.max_result_bytes",
                "the limit for results is 31 KiB",
                fix,
            );
        }
        let retention = jobs.retention.unwrap_or(jobs.max_retention);
        if retention.0 > jobs.max_retention.0 || retention.0.is_zero() {
            let fix = "write a time span above zero, and at most jobs.max_retention";
            self.report(
                "jobs.retention",
                "the retention is zero, or longer than jobs.max_retention",
                fix,
            );
        }
        if jobs.reap_every.0.is_zero() {
            let fix = "write at least \"100ms\"";
            self.report("jobs.reap_every", "the time span must be above zero", fix);
        }
    }
}
