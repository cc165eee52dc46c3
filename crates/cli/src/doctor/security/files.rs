//! Files that other users of this machine can read or change.

use std::os::unix::fs::PermissionsExt as _;

use semel::core::diagnosis::Severity;
use semel_server::audit::FileConfig;
use semel_server::config::{Algorithm, Config};

use super::Weakness;

/// The permissions of files that are secret, or that say who is trusted.
pub(super) fn check_files(config: &Config) -> Vec<Weakness> {
    let mut found = Vec::new();
    for (setting, file) in secret_files(config) {
        if has_mode(&file, 0o044) {
            let what = format!("{setting}: {file} can be read by others on this machine");
            let fix = "chmod 600, owned by the user that runs semel";
            found.push((Severity::Warning, what, fix));
        }
    }
    let all = secret_files(config)
        .into_iter()
        .chain(trusted_files(config));
    for (setting, file) in all {
        if has_mode(&file, 0o022) {
            let what = format!("{setting}: {file} can be changed by others on this machine");
            let fix = "chmod go-w, owned by the user that runs semel or by root";
            found.push((Severity::Warning, what, fix));
        }
    }
    found
}

/// Whether a file exists and has one of these permissions.
fn has_mode(file: &str, mode: u32) -> bool {
    let found = std::fs::metadata(file);
    found.is_ok_and(|found| found.permissions().mode() & mode != 0)
}

type NamedFile = (&'static str, String);

/// Files that only the process may read.
fn secret_files(config: &Config) -> Vec<NamedFile> {
    let (jwt, audit) = (&config.jwt, &config.audit);
    let named = [
        ("store.url_file", &config.store.url_file),
        ("store.secret_file", &config.store.secret_file),
        ("admin.token_file", &config.admin.token_file),
        ("listener.tls.key_file", &config.listener.tls.key_file),
        ("admin.tls.key_file", &config.admin.tls.key_file),
        ("audit.file", &audit.file),
        ("audit.postgres.url_file", &audit.postgres.url_file),
        ("audit.nats.url_file", &audit.nats.url_file),
        ("audit.nats.credentials_file", &audit.nats.credentials_file),
    ];
    let mut files = existing(&named);
    let keys = config.store.encryption.key_files.iter().cloned();
    files.extend(keys.map(|file| ("store.encryption.key_files", file)));
    if let Some(file) = &audit.file {
        let key = FileConfig::new(file).key_file;
        files.push(("the key of audit.file", key.display().to_string()));
    }
    // Other algorithms have public keys.
    if jwt.algorithm == Algorithm::Hs256 {
        files.extend(jwt_keys(config));
    }
    files
}

/// Files that may be read, but whose author decides who gets in.
fn trusted_files(config: &Config) -> Vec<NamedFile> {
    let (listener, admin) = (&config.listener.tls, &config.admin.tls);
    let named = [
        ("api.tokens_file", &config.api.tokens_file),
        ("admin.operators_file", &config.admin.operators_file),
        ("jwt.jwks_file", &config.jwt.jwks_file),
        ("listener.tls.client_ca_file", &listener.client_ca_file),
        ("admin.tls.client_ca_file", &admin.client_ca_file),
        ("upstream.ca_file", &config.upstream.ca_file),
    ];
    let mut files = existing(&named);
    if config.jwt.algorithm != Algorithm::Hs256 {
        files.extend(jwt_keys(config));
    }
    files
}

fn jwt_keys(config: &Config) -> Vec<NamedFile> {
    let more = config.jwt.key_files.iter().cloned();
    let more = more.map(|file| ("jwt.key_files", file));
    let mut files = existing(&[("jwt.key_file", &config.jwt.key_file)]);
    files.extend(more);
    files
}

fn existing(named: &[(&'static str, &Option<String>)]) -> Vec<NamedFile> {
    let is_set =
        |(setting, file): &(&'static str, &Option<String>)| Some((*setting, Option::clone(file)?));
    named.iter().filter_map(is_set).collect()
}
