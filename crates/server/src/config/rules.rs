//! What the settings mean together: contradictions, files that aren't there, and what is unwise.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;

use super::Finding;
use super::check::missing;
use super::kept::Audit;
use super::route::{Compare, RouteSettings};
use super::source::Said;
use super::tree::{Admin, ApiAccess, Config, Tls};
use super::whose::{Algorithm, From, Verify, Whose};

pub(super) struct Judged {
    pub(super) wrong: Vec<Finding>,
    pub(super) warnings: Vec<Finding>,
}

pub(super) fn judge(config: &Config, said: &Said) -> Judged {
    let mut judge = Judge {
        said,
        wrong: Vec::new(),
        warnings: Vec::new(),
    };
    judge.ends(config);
    judge.listener(config);
    judge.admin(&config.admin);
    judge.api(config);
    judge.jobs(config);
    judge.audit(&config.audit);
    judge.whose("tenants", &config.tenants, config);
    judge.whose("principals", &config.principals, config);
    judge.jwt(config);
    judge.route("defaults", &config.defaults);
    for (at, route) in config.routes.iter().enumerate() {
        let path = format!("routes[{at}]");
        if route.path.is_empty() {
            judge.wrong(&path, "a route needs a path", "add path = \"/charges\"");
        }
        judge.route(&path, &route.settings);
    }
    Judged {
        wrong: judge.wrong,
        warnings: judge.warnings,
    }
}

struct Judge<'a> {
    said: &'a Said,
    wrong: Vec<Finding>,
    warnings: Vec<Finding>,
}

impl Judge<'_> {
    fn wrong(&mut self, path: &str, message: &str, fix: &str) {
        let mut finding = missing(path, message, fix);
        finding.origin = self.said.origin(path);
        self.wrong.push(finding);
    }

    fn warn(&mut self, path: &str, message: &str, fix: &str) {
        let mut finding = missing(path, message, fix);
        finding.origin = self.said.origin(path);
        self.warnings.push(finding);
    }

    fn file(&mut self, path: &str, file: Option<&String>) {
        if let Some(file) = file
            && let Err(error) = std::fs::File::open(Path::new(file))
        {
            let message = format!("the file {file} can't be read: {error}");
            self.wrong(path, &message, "check its path and who may read it");
        }
    }

    fn audit(&mut self, audit: &Audit) {
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

    fn ends(&mut self, config: &Config) {
        let (store, upstream) = (&config.store, &config.upstream);
        if upstream.urls.is_empty() && config.api.access == ApiAccess::Off {
            self.wrong(
                "upstream.urls",
                "there is nothing to forward to",
                "say where your service listens: --upstream http://127.0.0.1:3000; or --set api.access=loopback, for the protocol API and jobs alone",
            );
        }
        match (&store.url, &store.url_file) {
            (None, None) => self.wrong(
                "store.url",
                "there is no store",
                "say which one: --store redis://127.0.0.1, or --store memory:// to try things out",
            ),
            (Some(_), Some(_)) => self.wrong(
                "store.url_file",
                "there are two stores: store.url and store.url_file",
                "keep one of them",
            ),
            _ => {}
        }
        if store
            .url
            .as_deref()
            .is_some_and(|url| url.starts_with("memory:"))
        {
            self.warn(
                "store.url",
                "memory:// forgets everything when this process ends, and no other node sees it",
                "use redis://, postgres://, mysql:// or sqlite:// for anything but trying out",
            );
        }
        if store.secret_id.is_some() && store.secret_file.is_none() {
            self.wrong(
                "store.secret_id",
                "there is an id, but no secret",
                "name the file with it: store.secret_file",
            );
        }
        self.file("store.url_file", store.url_file.as_ref());
        self.file("store.secret_file", store.secret_file.as_ref());
        self.file("upstream.ca_file", upstream.ca_file.as_ref());
        for (path, span) in [
            ("upstream.connect_timeout", upstream.connect_timeout),
            ("upstream.response_timeout", upstream.response_timeout),
            ("listener.head_timeout", config.listener.head_timeout),
            ("listener.body_timeout", config.listener.body_timeout),
            ("engine.store_timeout", config.engine.store_timeout),
            ("engine.breaker_first_try", config.engine.breaker_first_try),
            ("engine.breaker_open_for", config.engine.breaker_open_for),
            ("health.self_check_every", config.health.self_check_every),
        ] {
            if span.0.is_zero() {
                self.wrong(
                    path,
                    "nothing can happen in no time",
                    "write at least \"1ms\"",
                );
            }
        }
    }

    fn listener(&mut self, config: &Config) {
        let listener = &config.listener;
        self.tls("listener.tls", &listener.tls);
        let own = &listener.own_path;
        if !own.is_empty() && (!own.starts_with('/') || own.ends_with('/')) {
            self.wrong(
                "listener.own_path",
                "the path begins with / and doesn't end with one",
                "write for example \"/_semel\"",
            );
        }
        if listener.max_head.0 < 8192 || listener.max_head.0 > 1 << 20 {
            self.wrong(
                "listener.max_head",
                "a request's head is bounded by 8KiB to 1MiB",
                "write for example \"64KiB\"",
            );
        }
    }

    fn tls(&mut self, path: &str, tls: &Tls) {
        if tls.cert_file.is_some() != tls.key_file.is_some() {
            self.wrong(
                path,
                "TLS needs both a certificate and its key",
                "set cert_file and key_file",
            );
        }
        if tls.client_ca_file.is_some() && tls.cert_file.is_none() {
            self.wrong(
                path,
                "clients' certificates can't be asked for without TLS",
                "set cert_file and key_file too",
            );
        }
        self.file(&format!("{path}.cert_file"), tls.cert_file.as_ref());
        self.file(&format!("{path}.key_file"), tls.key_file.as_ref());
        self.file(
            &format!("{path}.client_ca_file"),
            tls.client_ca_file.as_ref(),
        );
    }

    fn admin(&mut self, admin: &Admin) {
        self.tls("admin.tls", &admin.tls);
        self.file("admin.token_file", admin.token_file.as_ref());
        let Some(address) = &admin.address else {
            return;
        };
        let mutual = admin.tls.client_ca_file.is_some() && !admin.tls.client_optional;
        let guarded = admin.token_file.is_some() || mutual;
        if !guarded && !is_loopback(address) {
            self.wrong(
                "admin.address",
                "anybody who reaches this address could change records",
                "set admin.token_file or admin.tls.client_ca_file, or listen on 127.0.0.1",
            );
        }
    }

    fn api(&mut self, config: &Config) {
        let api = &config.api;
        self.file("api.tokens_file", api.tokens_file.as_ref());
        match api.access {
            ApiAccess::Tokens if api.tokens_file.is_none() => self.wrong(
                "api.tokens_file",
                "the protocol API asks for tokens, and there are none",
                "name the file with them",
            ),
            ApiAccess::Loopback if !is_loopback(&config.listener.address) => self.wrong(
                "api.access",
                "anybody who reaches listener.address could call the protocol API",
                "write api.access = \"tokens\", or listen on 127.0.0.1",
            ),
            _ => {}
        }
        if api.access != ApiAccess::Off && config.listener.own_path.is_empty() {
            self.wrong(
                "listener.own_path",
                "the protocol API needs a path of its own",
                "write listener.own_path = \"/_semel\"",
            );
        }
    }

    fn jobs(&mut self, config: &Config) {
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

    fn whose(&mut self, path: &str, whose: &Whose, config: &Config) {
        match whose.from {
            From::None | From::Jwt => {}
            From::Header if whose.header.is_none() => self.wrong(
                &format!("{path}.header"),
                "it comes from a header, and none is named",
                "name the header that whatever is in front sets, for example \"x-tenant\"",
            ),
            From::Header => {}
            From::Certificate => {
                if config.listener.tls.client_ca_file.is_none() {
                    self.wrong(
                        &format!("{path}.from"),
                        "it comes from clients' certificates, and none are asked for",
                        "set listener.tls.client_ca_file",
                    );
                }
            }
        }
    }

    fn jwt(&mut self, config: &Config) {
        let jwt = &config.jwt;
        self.file("jwt.key_file", jwt.key_file.as_ref());
        let used = [&config.tenants, &config.principals];
        if !used.iter().any(|whose| whose.from == From::Jwt) {
            return;
        }
        match (jwt.verify, &jwt.key_file) {
            (Verify::Signature, None) => {
                let what = match jwt.algorithm {
                    Algorithm::Hs256 => "the shared secret",
                    Algorithm::Rs256 | Algorithm::Es256 => "the public key (PEM)",
                };
                let fix = format!("set jwt.key_file to a file with {what}");
                self.wrong(
                    "jwt.key_file",
                    "tokens can't be checked without a key",
                    &fix,
                );
            }
            (Verify::Upstream, _) => self.warn(
                "jwt.verify",
                "tokens are believed unchecked: a forged one gets another tenant's replays",
                "set jwt.key_file, unless something in front has checked them",
            ),
            (Verify::Signature, Some(_)) => {}
        }
    }

    fn route(&mut self, path: &str, route: &RouteSettings) {
        let member = |name: &str| format!("{path}.{name}");
        if route.key_header.is_some() && route.key_field.is_some() {
            let message = "the key can't be both in a header and in the body";
            self.wrong(
                &member("key_field"),
                message,
                "keep one of key_header and key_field",
            );
        }
        let print = &route.fingerprint;
        if !print.include.is_empty() && !print.exclude.is_empty() {
            let message = "a body can't be compared by both include and exclude";
            self.wrong(&member("fingerprint.exclude"), message, "keep one of them");
        }
        let chosen = !print.include.is_empty() || !print.exclude.is_empty();
        if chosen && print.body != Compare::Meaning {
            let message = "include and exclude work on bodies that are compared by their meaning";
            self.wrong(
                &member("fingerprint.body"),
                message,
                "write body = \"meaning\"",
            );
        }
        let terms = crate::stack::policy(route).terms();
        if let Err(error) = terms {
            let fix = "see lease, retention and max_attempts";
            self.wrong(&member("lease"), &error.to_string(), fix);
        }
        if route.methods.is_empty() {
            let message = "no method is covered";
            self.wrong(
                &member("methods"),
                message,
                "name some, or write mode = \"off\"",
            );
        }
    }
}

fn is_loopback(address: &str) -> bool {
    let Ok(mut found) = address.to_socket_addrs() else {
        return false;
    };
    found.all(|address: SocketAddr| address.ip().is_loopback())
}
