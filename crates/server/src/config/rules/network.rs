//! Rules of the listeners, the upstream service and the store.

use semel::StoreScheme;

use super::Rules;
use crate::config::admin::{Admin, ApiAccess};
use crate::config::encryption::DataKeyOwners;
use crate::config::identity::IdentitySource;
use crate::config::listener::{Listener, Tls};
use crate::config::tree::Config;
use crate::config::{is_at_loopback, is_loopback};

/// Whether all hosts of a store URL are this machine.
fn has_local_hosts(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let hosts = authority.rsplit('@').next().unwrap_or_default();
    let mut hosts = hosts.split(',');
    hosts.all(|host| is_at_loopback(&format!("http://{host}/")))
}

impl Rules<'_> {
    pub(super) fn check_endpoints(&mut self, config: &Config) {
        let (store, upstream) = (&config.store, &config.upstream);
        if upstream.urls.is_empty() && config.api.access == ApiAccess::Off {
            self.report(
                "upstream.urls",
                "no service is set to forward requests to",
                "set the URL of your service: --upstream http://127.0.0.1:3000; or --set \
                 api.access=loopback to serve only the protocol API and jobs",
            );
        }
        match (&store.url, &store.url_file) {
            (None, None) => self.report(
                "store.url",
                "no store is set",
                "set one: --store redis://127.0.0.1, or --store memory:// for experiments",
            ),
            (Some(_), Some(_)) => self.report(
                "store.url_file",
                "both store.url and store.url_file are set",
                "keep one of them",
            ),
            _ => {}
        }
        // A file that cannot be read is reported below.
        let url = store.read_url().ok().flatten().unwrap_or_default();
        let setting = match store.url {
            Some(_) => "store.url",
            None => "store.url_file",
        };
        if StoreScheme::of_url(&url) == Some(StoreScheme::Memory) {
            self.warn(
                setting,
                "memory:// loses all records when this process ends, and other nodes do not see \
                 them",
                "use redis://, postgres://, mysql:// or sqlite:// for anything but experiments",
            );
        }
        self.warn_of_plain_redis(setting, &url);
        if store.secret_id.is_some() && store.secret_file.is_none() {
            self.report(
                "store.secret_id",
                "secret_id is set, but secret_file is not",
                "set store.secret_file",
            );
        }
        self.check_file("store.url_file", store.url_file.as_ref());
        self.check_file("store.secret_file", store.secret_file.as_ref());
        self.check_encryption(config);
        self.check_file("upstream.ca_file", upstream.ca_file.as_ref());
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
                self.report(
                    path,
                    "the time span must be above zero",
                    "write at least \"1ms\"",
                );
            }
        }
    }

    fn check_encryption(&mut self, config: &Config) {
        let encryption = &config.store.encryption;
        for file in &encryption.key_files {
            self.check_file("store.encryption.key_files", Some(file));
        }
        if encryption.is_on() && config.jobs.enabled {
            self.report(
                "store.encryption",
                "job payloads can't be encrypted yet, and jobs.enabled is true",
                "run jobs and encrypted records in processes and stores of their own",
            );
        }
        if !encryption.is_on() && (encryption.refuse_plain || encryption.write_key.is_some()) {
            self.report(
                "store.encryption",
                "no encryption key is set",
                "set store.encryption.key_files; `semel encryption-key` creates a key",
            );
        }
        if !encryption.is_on() && encryption.data_keys != DataKeyOwners::Off {
            self.report(
                "store.encryption.data_keys",
                "no encryption key is set to wrap them with",
                "set store.encryption.key_files; `semel encryption-key` creates a key",
            );
        }
        let by_subject = encryption.data_keys == DataKeyOwners::Subject;
        if encryption.subject_header.is_some() && !by_subject {
            self.report(
                "store.encryption.subject_header",
                "subjects have no keys of their own",
                "set store.encryption.data_keys = \"subject\", or remove the header",
            );
        }
        if encryption.refuse_plain && encryption.write_key == Some(0) {
            self.report(
                "store.encryption.refuse_plain",
                "write_key = 0 writes plain text, which refuse_plain refuses",
                "set write_key to the id of a key, or remove refuse_plain",
            );
        }
        if encryption.key_command_timeout.0.is_zero() {
            self.report(
                "store.encryption.key_command_timeout",
                "the time span must be above zero",
                "write at least \"1ms\"",
            );
        }
    }

    fn warn_of_plain_redis(&mut self, setting: &str, url: &str) {
        let is_plain = url.starts_with("redis://") || url.starts_with("redis+");
        if is_plain && !has_local_hosts(url) {
            self.warn(
                setting,
                "redis:// to another machine sends responses and the password in the clear",
                "use rediss://, or an encrypted network",
            );
        }
    }

    pub(super) fn check_listener(&mut self, config: &Config) {
        let listener = &config.listener;
        self.check_tls("listener.tls", &listener.tls);
        let own = &listener.own_path;
        if !own.is_empty() && (!own.starts_with('/') || own.ends_with('/')) {
            self.report(
                "listener.own_path",
                "the path must begin with / and must not end with /",
                "write for example \"/_semel\"",
            );
        }
        self.check_trust(config);
        if listener.max_head.0 < 8192 || listener.max_head.0 > 1 << 20 {
            self.report(
                "listener.max_head",
                "the limit for a request's head is between 8KiB and 1MiB",
                "write for example \"64KiB\"",
            );
        }
    }

    /// Requires `trusted_peers` before headers of peers are trusted.
    fn check_trust(&mut self, config: &Config) {
        let Listener {
            address,
            trusted_peers,
            trust_forwarded,
            ..
        } = &config.listener;
        if !trusted_peers.is_empty() || is_loopback(address) {
            return;
        }
        let fix = "list the proxies in front: listener.trusted_peers = [\"10.0.0.0/8\"]; or listen \
            on 127.0.0.1";
        if *trust_forwarded {
            self.report(
                "listener.trust_forwarded",
                "every client of listener.address could forge the origin of a request",
                fix,
            );
        }
        for (path, identity) in [
            ("tenants.from", &config.tenants),
            ("principals.from", &config.principals),
        ] {
            if identity.from == IdentitySource::Header {
                self.report(
                    path,
                    "every client of listener.address could forge this identity",
                    fix,
                );
            }
        }
    }

    fn check_tls(&mut self, path: &str, tls: &Tls) {
        if tls.cert_file.is_some() != tls.key_file.is_some() {
            self.report(
                path,
                "TLS needs both a certificate and its key",
                "set cert_file and key_file",
            );
        }
        if tls.client_ca_file.is_some() && tls.cert_file.is_none() {
            self.report(
                path,
                "client certificates need TLS",
                "set cert_file and key_file too",
            );
        }
        self.check_file(&format!("{path}.cert_file"), tls.cert_file.as_ref());
        self.check_file(&format!("{path}.key_file"), tls.key_file.as_ref());
        self.check_file(
            &format!("{path}.client_ca_file"),
            tls.client_ca_file.as_ref(),
        );
    }

    pub(super) fn check_admin(&mut self, admin: &Admin) {
        self.check_tls("admin.tls", &admin.tls);
        self.check_file("admin.token_file", admin.token_file.as_ref());
        self.check_file("admin.operators_file", admin.operators_file.as_ref());
        let has_token = admin.token_file.is_some() || admin.operators_file.is_some();
        if admin.token_file.is_some() && admin.operators_file.is_some() {
            self.report(
                "admin.operators_file",
                "both token_file and operators_file are set",
                "remove admin.token_file, and add its holder to the operators file",
            );
        }
        let mutual = admin.tls.client_ca_file.is_some() && !admin.tls.client_optional;
        if !admin.allowed_names.is_empty() && (has_token || !mutual) {
            self.report(
                "admin.allowed_names",
                "allowed_names applies to client certificates, and the admin API does not require \
                 one",
                "set admin.tls.client_ca_file, and remove token_file and operators_file",
            );
        }
        let Some(address) = &admin.address else {
            return;
        };
        let guarded = has_token || mutual;
        let is_loopback = is_loopback(address);
        if !guarded && !is_loopback {
            self.report(
                "admin.address",
                "anybody who can reach this address could change records",
                "set admin.operators_file, admin.token_file or admin.tls.client_ca_file, or listen \
                 on 127.0.0.1",
            );
        }
        if !guarded && is_loopback && !admin.open {
            self.warn(
                "admin.address",
                "no token is set, so the admin API and the dashboard are closed; /healthz, /readyz \
                 and /metrics work",
                "set admin.operators_file or admin.token_file; or admin.open = true to let every \
                 program on this machine in",
            );
        }
        let in_the_clear = has_token && admin.tls.cert_file.is_none();
        if in_the_clear && !is_loopback && !admin.insecure_tokens {
            self.report(
                "admin.tls",
                "the token of the admin API would be sent in the clear",
                "set admin.tls.cert_file and key_file, or listen on 127.0.0.1; or \
                 admin.insecure_tokens = true if something else encrypts the connection",
            );
        }
    }

    pub(super) fn check_api(&mut self, config: &Config) {
        let api = &config.api;
        self.check_file("api.tokens_file", api.tokens_file.as_ref());
        match api.access {
            ApiAccess::Tokens if api.tokens_file.is_none() => self.report(
                "api.tokens_file",
                "api.access is \"tokens\", and no tokens file is set",
                "set api.tokens_file",
            ),
            ApiAccess::Loopback if !is_loopback(&config.listener.address) => self.report(
                "api.access",
                "anybody who can reach listener.address could call the protocol API",
                "write api.access = \"tokens\", or listen on 127.0.0.1",
            ),
            _ => {}
        }
        let listener = &config.listener;
        let in_the_clear = listener.tls.cert_file.is_none() && !is_loopback(&listener.address);
        if api.access == ApiAccess::Tokens && in_the_clear && !listener.insecure_tokens {
            self.report(
                "listener.tls",
                "the tokens of the protocol API would be sent in the clear",
                "set listener.tls.cert_file and key_file, or listen on 127.0.0.1; or \
                 listener.insecure_tokens = true if something else encrypts the connection",
            );
        }
        if api.access != ApiAccess::Off && config.listener.own_path.is_empty() {
            self.report(
                "listener.own_path",
                "the protocol API needs listener.own_path",
                "write listener.own_path = \"/_semel\"",
            );
        }
    }
}
