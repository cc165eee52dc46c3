//! Where requests come in, where they go, and where records are kept.

use super::Judge;
use crate::config::tree::{Admin, ApiAccess, Config, Listener, Store, Tls};
use crate::config::whose::From;
use crate::config::{is_at_loopback, is_loopback};

/// The same URL as one of HTTP: several hosts are judged by the first.
fn without_scheme(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let end = rest.find(['/', '?', ',']).unwrap_or(rest.len());
    format!("http://{}/", &rest[..end])
}

impl Judge<'_> {
    pub(super) fn ends(&mut self, config: &Config) {
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
        self.plain_redis(store);
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

    fn plain_redis(&mut self, store: &Store) {
        let is_plain = |url: &str| url.starts_with("redis://") || url.starts_with("redis+");
        if store
            .url
            .as_deref()
            .is_some_and(|url| is_plain(url) && !is_at_loopback(&without_scheme(url)))
        {
            self.warn(
                "store.url",
                "redis:// to another machine: answers and the password go there in the clear",
                "use rediss://, or a network that encrypts",
            );
        }
    }

    pub(super) fn listener(&mut self, config: &Config) {
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
        self.trust(config);
        if listener.max_head.0 < 8192 || listener.max_head.0 > 1 << 20 {
            self.wrong(
                "listener.max_head",
                "a request's head is bounded by 8KiB to 1MiB",
                "write for example \"64KiB\"",
            );
        }
    }

    /// Trusted peers are named before anything is believed of them.
    fn trust(&mut self, config: &Config) {
        let Listener {
            address,
            trusted_peers,
            trust_forwarded,
            ..
        } = &config.listener;
        if !trusted_peers.is_empty() || is_loopback(address) {
            return;
        }
        let fix = "name what is in front: listener.trusted_peers = [\"10.0.0.0/8\"]; or listen on 127.0.0.1";
        if *trust_forwarded {
            self.wrong(
                "listener.trust_forwarded",
                "whoever reaches listener.address could say where a request comes from",
                fix,
            );
        }
        for (path, whose) in [
            ("tenants.from", &config.tenants),
            ("principals.from", &config.principals),
        ] {
            if whose.from == From::Header {
                self.wrong(
                    path,
                    "whoever reaches listener.address could say whose a request is",
                    fix,
                );
            }
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

    pub(super) fn admin(&mut self, admin: &Admin) {
        self.tls("admin.tls", &admin.tls);
        self.file("admin.token_file", admin.token_file.as_ref());
        self.file("admin.operators_file", admin.operators_file.as_ref());
        let has_token = admin.token_file.is_some() || admin.operators_file.is_some();
        if admin.token_file.is_some() && admin.operators_file.is_some() {
            self.wrong(
                "admin.operators_file",
                "there is a token without a name beside operators with names",
                "leave out admin.token_file: give its holder a name in the file",
            );
        }
        let mutual = admin.tls.client_ca_file.is_some() && !admin.tls.client_optional;
        if !admin.allowed_names.is_empty() && (has_token || !mutual) {
            self.wrong(
                "admin.allowed_names",
                "these are names of certificates, and no certificate is asked for",
                "set admin.tls.client_ca_file, and neither token_file nor operators_file",
            );
        }
        let Some(address) = &admin.address else {
            return;
        };
        let guarded = has_token || mutual;
        let is_loopback = is_loopback(address);
        if !guarded && !is_loopback {
            self.wrong(
                "admin.address",
                "anybody who reaches this address could change records",
                "set admin.operators_file, admin.token_file or admin.tls.client_ca_file, or listen on 127.0.0.1",
            );
        }
        if !guarded && is_loopback && !admin.open {
            self.warn(
                "admin.address",
                "there is no token, so the admin API and the dashboard answer nobody; /healthz, /readyz and /metrics do",
                "set admin.operators_file or admin.token_file; or admin.open = true, for every program of this machine",
            );
        }
        let in_the_clear = has_token && admin.tls.cert_file.is_none();
        if in_the_clear && !is_loopback && !admin.insecure_tokens {
            self.wrong(
                "admin.tls",
                "the token of the admin API would come in the clear",
                "set admin.tls.cert_file and key_file, or listen on 127.0.0.1; admin.insecure_tokens = true where something else encrypts the way",
            );
        }
    }

    pub(super) fn api(&mut self, config: &Config) {
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
        let listener = &config.listener;
        let in_the_clear = listener.tls.cert_file.is_none() && !is_loopback(&listener.address);
        if api.access == ApiAccess::Tokens && in_the_clear && !listener.insecure_tokens {
            self.wrong(
                "listener.tls",
                "the tokens of the protocol API would come in the clear",
                "set listener.tls.cert_file and key_file, or listen on 127.0.0.1; listener.insecure_tokens = true where something else encrypts the way",
            );
        }
        if api.access != ApiAccess::Off && config.listener.own_path.is_empty() {
            self.wrong(
                "listener.own_path",
                "the protocol API needs a path of its own",
                "write listener.own_path = \"/_semel\"",
            );
        }
    }
}
