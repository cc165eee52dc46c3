//! Settings that are less strict than possible.

mod databases;
mod files;

use semel::core::diagnosis::{Finding, Severity};
use semel_server::config::{
    Algorithm, ApiAccess, Config, IdentitySource, MetricsAccess, Mode, StoreDown, Verify, is_local,
};

use super::Report;
use databases::check_databases;
use files::check_files;

/// The severity, the risk of a setting, and its fix.
type Weakness = (Severity, String, &'static str);

/// Checks the settings without contacting the store or the service.
pub(super) fn check(config: &Config, report: &mut Report) {
    let mut found: Vec<Finding> = Vec::new();
    let all = [
        check_callers(config),
        check_encryption(config),
        check_operators(config),
        check_storage(config),
        check_databases(config),
        check_limits(config),
        check_files(config),
    ];
    for (severity, what, fix) in all.into_iter().flatten() {
        found.push(Finding::bad("lax", severity, what, fix));
    }
    if found.is_empty() {
        found.push(Finding::good(
            "lax",
            "every setting is as strict as possible",
        ));
    }
    report.add("security", found);
}

fn warning(is_so: bool, what: &str, fix: &'static str) -> Option<Weakness> {
    is_so.then(|| (Severity::Warning, what.to_owned(), fix))
}

fn note(is_so: bool, what: &str, fix: &'static str) -> Option<Weakness> {
    is_so.then(|| (Severity::Note, what.to_owned(), fix))
}

/// Who calls, and what the sidecar trusts.
fn check_callers(config: &Config) -> Vec<Weakness> {
    let (listener, jwt) = (&config.listener, &config.jwt);
    let reads_tokens =
        [&config.tenants, &config.principals].map(|whose| whose.from == IdentitySource::Jwt);
    let reads_tokens = reads_tokens.contains(&true);
    let everybody = ["0.0.0.0/0", "::/0"];
    let trusts_all = (listener.trusted_peers.iter()).any(|peer| everybody.contains(&peer.as_str()));
    let mut routes = config.routes.iter().map(|route| &route.settings);
    let authorizes = config.defaults.replay_auth_url.is_some()
        || routes.any(|route| route.replay_auth_url.is_some());
    let has_principals = config.principals.from != IdentitySource::None;
    let lax = [
        note(
            !has_principals,
            "principals.from is none: all callers share their keys, and anybody who guesses a \
             key can use it",
            "principals.from = \"jwt\", \"header\" or \"certificate\"",
        ),
        note(
            !has_principals && !authorizes,
            "defaults.replay_auth_url is not set: a caller whose credentials were revoked still \
             gets the stored responses that they earned",
            "defaults.replay_auth_url = \"https://…\", or principals that Semel verifies",
        ),
        warning(
            reads_tokens && jwt.verify == Verify::Upstream,
            "jwt.verify is upstream: tokens are trusted without a check",
            "jwt.verify = \"signature\", unless a proxy in front checks them",
        ),
        warning(
            reads_tokens && jwt.audience.is_none() && jwt.issuer.is_none(),
            "jwt.audience and jwt.issuer are not set: a token for another application is accepted",
            "set at least one",
        ),
        note(
            reads_tokens && jwt.algorithm == Algorithm::Hs256,
            "jwt.algorithm is HS256: everybody who can check tokens can also create them",
            "RS256 or ES256",
        ),
        warning(
            trusts_all,
            "listener.trusted_peers includes every address",
            "list only the proxies in front",
        ),
        warning(
            listener.allow_underscores,
            "listener.allow_underscores: a service that treats a_b as a-b may trust a header \
             that only the proxy in front may set",
            "leave it out",
        ),
        warning(
            !config.defaults.fingerprint.authority,
            "defaults.fingerprint.authority is false: a key of one host may replay the response \
             of another host",
            "true, unless all hosts belong to one tenant",
        ),
    ];
    lax.into_iter().flatten().collect()
}

/// Unencrypted connections.
fn check_encryption(config: &Config) -> Vec<Weakness> {
    let listener = &config.listener;
    let is_far = |url: &&String| url.starts_with("http://") && !is_local(url);
    let is_open = !is_local(&format!("http://{}", listener.address));
    let lax = [
        warning(
            is_open && listener.tls.cert_file.is_none(),
            "listener.tls.cert_file is not set: requests from other machines are unencrypted",
            "listener.tls.cert_file and key_file, or TLS in front and listener.address on loopback",
        ),
        warning(
            listener.insecure_tokens || config.admin.insecure_tokens,
            "insecure_tokens: tokens from other machines may be unencrypted",
            "TLS on that listener",
        ),
        note(
            config.upstream.urls.iter().any(|url| is_far(&url)),
            "upstream.urls has http:// to another machine: requests to it are unencrypted",
            "https://, or a network that encrypts",
        ),
    ];
    lax.into_iter().flatten().collect()
}

/// Access of operators.
fn check_operators(config: &Config) -> Vec<Weakness> {
    let admin = &config.admin;
    let is_there = admin.address.is_some();
    let lax = [
        warning(
            config.api.access == ApiAccess::Loopback,
            "api.access is loopback: every program on this machine can claim and settle keys of \
             every tenant",
            "api.access = \"tokens\"",
        ),
        warning(
            is_there && admin.open,
            "admin.open: every program on this machine can read all stored responses and change \
             records",
            "admin.operators_file; `semel operator` creates its entries",
        ),
        note(
            is_there && admin.token_file.is_some() && admin.operators_file.is_none(),
            "admin.token_file: all operators share one token with every permission",
            "admin.operators_file, with names, roles and expiry dates",
        ),
        warning(
            is_there && admin.tls.client_ca_file.is_some() && admin.allowed_names.is_empty(),
            "admin.allowed_names is empty: every certificate of the CA is an operator",
            "list the operators",
        ),
        note(
            is_there && config.metrics.access == MetricsAccess::Open,
            "metrics.access is open: everybody who reaches the admin listener can read the \
             metrics",
            "metrics.access = \"admin\"",
        ),
    ];
    lax.into_iter().flatten().collect()
}

/// What is stored, and what happens without the store.
fn check_storage(config: &Config) -> Vec<Weakness> {
    let mut routes = config.routes.iter().map(|route| &route.settings);
    let is_open = config.defaults.store_down == StoreDown::Open
        || routes.any(|route| route.store_down == StoreDown::Open);
    let lax = [
        warning(
            config.store.secret_file.is_none(),
            "store.secret_file is not set: everybody who reads the store can test guesses of \
             keys and payloads",
            "a file with 32 random bytes, the same on every node",
        ),
        warning(
            !config.store.encryption.is_on(),
            "records are stored in plain text: everybody who reads the store can read responses and \
             checkpoints",
            "store.encryption.key_files; `semel encryption-key` creates a key",
        ),
        note(
            config.audit.file.is_none(),
            "audit.file is not set: the audit trail is lost when the process ends",
            "audit.file = \"/var/lib/semel/audit.jsonl\"",
        ),
        note(
            is_open,
            "store_down is open: requests run unprotected while the store is unavailable",
            "\"closed\", if an effect must not happen twice",
        ),
        note(
            config.defaults.mode != Mode::Enforce,
            "defaults.mode is not enforce: duplicates run",
            "defaults.mode = \"enforce\", after a trial in observe mode",
        ),
    ];
    lax.into_iter().flatten().collect()
}

/// Limits for a single caller.
fn check_limits(config: &Config) -> Vec<Weakness> {
    let limits = &config.limits;
    let rates = [
        limits.tenant_rate,
        limits.principal_rate,
        limits.address_rate,
    ];
    let keys = [
        limits.tenant_keys,
        limits.principal_keys,
        limits.address_keys,
    ];
    let lax = [
        note(
            rates.iter().all(Option::is_none),
            "limits has no rate: a caller may send any number of requests",
            "limits.tenant_rate, principal_rate or address_rate",
        ),
        note(
            keys.iter().all(Option::is_none),
            "limits has no quota of keys: a caller can fill the store with records",
            "limits.tenant_keys, principal_keys or address_keys",
        ),
        warning(
            config.tenants.from != IdentitySource::None && limits.tenant_share == 100,
            "limits.tenant_share is 100: one tenant can use the whole capacity",
            "50, or less if there are many tenants",
        ),
        note(
            limits.body_rate.0 == 0,
            "limits.body_rate is 0: a slow body may hold a connection for any time",
            "limits.body_rate = \"100B\"",
        ),
    ];
    lax.into_iter().flatten().collect()
}
