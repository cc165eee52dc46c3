//! Settings that are laxer than they could be: a line for each.

use semel::core::diagnosis::{Finding, Severity};
use semel_server::config::{
    Algorithm, ApiAccess, Config, From, MetricsAccess, Mode, StoreDown, Verify, is_local,
};

use super::Report;

/// What a setting lets happen, and what to do about it.
type Lax = (Severity, String, &'static str);

/// Looks at the settings alone: nothing is asked of the store or the service.
pub(super) fn look(config: &Config, report: &mut Report) {
    let mut found: Vec<Finding> = Vec::new();
    let all = [
        callers(config),
        wire(config),
        operators(config),
        kept(config),
        limits(config),
        files(config),
    ];
    for (severity, what, fix) in all.into_iter().flatten() {
        found.push(Finding::bad("lax", severity, what, fix));
    }
    if found.is_empty() {
        found.push(Finding::good("lax", "no setting is laxer than it could be"));
    }
    report.add("security", found);
}

fn warning(is_so: bool, what: &str, fix: &'static str) -> Option<Lax> {
    is_so.then(|| (Severity::Warning, what.to_owned(), fix))
}

fn note(is_so: bool, what: &str, fix: &'static str) -> Option<Lax> {
    is_so.then(|| (Severity::Note, what.to_owned(), fix))
}

/// Who calls, and what is believed of them.
fn callers(config: &Config) -> Vec<Lax> {
    let (listener, jwt) = (&config.listener, &config.jwt);
    let reads_tokens = [&config.tenants, &config.principals].map(|whose| whose.from == From::Jwt);
    let reads_tokens = reads_tokens.contains(&true);
    let everybody = ["0.0.0.0/0", "::/0"];
    let trusts_all = (listener.trusted_peers.iter()).any(|peer| everybody.contains(&peer.as_str()));
    let lax = [
        note(
            config.principals.from == From::None,
            "principals.from is none: all callers share their keys, and a stranger who guesses a key can use it up",
            "principals.from = \"jwt\", \"header\" or \"certificate\"",
        ),
        warning(
            reads_tokens && jwt.verify == Verify::Upstream,
            "jwt.verify is upstream: tokens are believed unchecked",
            "jwt.verify = \"signature\", unless something in front has checked them",
        ),
        warning(
            reads_tokens && jwt.audience.is_none() && jwt.issuer.is_none(),
            "jwt.audience and jwt.issuer are not set: a token for another application is good here",
            "set at least one",
        ),
        note(
            reads_tokens && jwt.algorithm == Algorithm::Hs256,
            "jwt.algorithm is HS256: whoever can check tokens can make them",
            "RS256 or ES256",
        ),
        warning(
            trusts_all,
            "listener.trusted_peers names everybody",
            "name what is in front alone",
        ),
        warning(
            listener.allow_underscores,
            "listener.allow_underscores: services that take a_b for a-b believe clients what only the front may say",
            "leave it out",
        ),
        warning(
            !config.defaults.fingerprint.authority,
            "defaults.fingerprint.authority is false: a key of one host is answered with another host's answer",
            "true, unless all hosts are one tenant's",
        ),
    ];
    lax.into_iter().flatten().collect()
}

/// What is in the clear.
fn wire(config: &Config) -> Vec<Lax> {
    let listener = &config.listener;
    let is_far = |url: &&String| url.starts_with("http://") && !is_local(url);
    let is_open = !is_local(&format!("http://{}", listener.address));
    let lax = [
        warning(
            is_open && listener.tls.cert_file.is_none(),
            "listener.tls.cert_file is not set: requests and answers come in the clear from other machines",
            "listener.tls.cert_file and key_file, or TLS in front and listener.address on loopback",
        ),
        warning(
            listener.insecure_tokens || config.admin.insecure_tokens,
            "insecure_tokens: tokens may come in the clear from other machines",
            "TLS on that listener",
        ),
        note(
            config.upstream.urls.iter().any(|url| is_far(&url)),
            "upstream.urls has http:// to another machine: requests go there in the clear",
            "https://, or a network that encrypts",
        ),
    ];
    lax.into_iter().flatten().collect()
}

/// Who may look and change.
fn operators(config: &Config) -> Vec<Lax> {
    let admin = &config.admin;
    let is_there = admin.address.is_some();
    let lax = [
        warning(
            config.api.access == ApiAccess::Loopback,
            "api.access is loopback: every program on this machine claims and settles keys of every tenant",
            "api.access = \"tokens\"",
        ),
        warning(
            is_there && admin.open,
            "admin.open: every program on this machine reads all stored answers, and changes records",
            "admin.operators_file, made with `semel operator`",
        ),
        note(
            is_there && admin.token_file.is_some() && admin.operators_file.is_none(),
            "admin.token_file: all operators are one, with every right",
            "admin.operators_file has names, roles and ends",
        ),
        warning(
            is_there && admin.tls.client_ca_file.is_some() && admin.allowed_names.is_empty(),
            "admin.allowed_names is empty: every certificate of the CA is an operator",
            "name those who are",
        ),
        note(
            is_there && config.metrics.access == MetricsAccess::Open,
            "metrics.access is open: whoever reaches the admin listener reads the metrics",
            "metrics.access = \"admin\"",
        ),
    ];
    lax.into_iter().flatten().collect()
}

/// What is kept, and what happens without the store.
fn kept(config: &Config) -> Vec<Lax> {
    let mut routes = config.routes.iter().map(|route| &route.settings);
    let is_open = config.defaults.store_down == StoreDown::Open
        || routes.any(|route| route.store_down == StoreDown::Open);
    let lax = [
        warning(
            config.store.secret_file.is_none(),
            "store.secret_file is not set: whoever reads the store can test guesses of keys and payloads",
            "a file with 32 random bytes, the same on every node",
        ),
        note(
            config.audit.file.is_none(),
            "audit.file is not set: what happened is forgotten with the process",
            "audit.file = \"/var/lib/semel/audit.jsonl\"",
        ),
        note(
            is_open,
            "store_down is open: requests run unprotected while the store gives no answer",
            "\"closed\", where an effect may not happen twice",
        ),
        note(
            config.defaults.mode != Mode::Enforce,
            "defaults.mode is not enforce: duplicates run",
            "defaults.mode = \"enforce\", once it has been observed",
        ),
    ];
    lax.into_iter().flatten().collect()
}

/// What one caller may take.
fn limits(config: &Config) -> Vec<Lax> {
    let limits = &config.limits;
    let rates = [
        limits.tenant_rate,
        limits.principal_rate,
        limits.address_rate,
    ];
    let lax = [
        note(
            rates.iter().all(Option::is_none),
            "limits has no rate: a caller may send as many requests a second as it can, and fill the store with records",
            "limits.tenant_rate, principal_rate or address_rate",
        ),
        warning(
            config.tenants.from != From::None && limits.tenant_share == 100,
            "limits.tenant_share is 100: one tenant can take all there is",
            "50, or less where there are many",
        ),
        note(
            limits.body_rate.0 == 0,
            "limits.body_rate is 0: bodies may trickle for as long as they like",
            "limits.body_rate = \"100B\"",
        ),
    ];
    lax.into_iter().flatten().collect()
}

/// Secrets that others on this machine can read.
fn files(config: &Config) -> Vec<Lax> {
    let named = [
        ("store.url_file", &config.store.url_file),
        ("store.secret_file", &config.store.secret_file),
        ("admin.token_file", &config.admin.token_file),
        ("api.tokens_file", &config.api.tokens_file),
        ("listener.tls.key_file", &config.listener.tls.key_file),
        ("admin.tls.key_file", &config.admin.tls.key_file),
    ];
    let is_read_by_others = |file: &String| {
        use std::os::unix::fs::PermissionsExt as _;
        let found = std::fs::metadata(file);
        found.is_ok_and(|found| found.permissions().mode() & 0o044 != 0)
    };
    let lax = named.into_iter().filter_map(|(setting, file)| {
        let file = file.as_ref().filter(|file| is_read_by_others(file))?;
        let what = format!("{setting}: {file} can be read by others on this machine");
        Some((
            Severity::Warning,
            what,
            "chmod 600, owned by the user that runs it",
        ))
    });
    lax.collect()
}
