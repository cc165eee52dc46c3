//! Connections to databases that are less than verified.

use semel::core::diagnosis::Severity;
use semel_server::config::{Config, is_local};

use super::Weakness;

/// The TLS modes in the URLs of databases on other machines.
pub(super) fn check_databases(config: &Config) -> Vec<Weakness> {
    // The check of the settings reports a file that cannot be read.
    let named = [
        ("store", config.store.read_url()),
        ("audit.postgres", config.audit.postgres.read_url()),
    ];
    let urls = named
        .into_iter()
        .filter_map(|(setting, url)| Some((setting, url.ok()??)));
    urls.filter_map(|(setting, url)| judge(setting, &url))
        .collect()
}

fn judge(setting: &str, url: &str) -> Option<Weakness> {
    let (scheme, rest) = url.split_once("://")?;
    let options: &[&str] = match scheme {
        "postgres" | "postgresql" => &["sslmode"],
        "mysql" | "mariadb" => &["ssl-mode", "sslmode"],
        _ => return None,
    };
    if is_near(rest) {
        return None;
    }
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    // Without the option the certificate is verified.
    let (_, mode) = pairs.find(|(name, _)| options.contains(name))?;
    let risk = match mode.to_ascii_lowercase().replace('-', "_").as_str() {
        "verify_full" | "verify_identity" => return None,
        "verify_ca" => "accepts the certificate of any server of the CA",
        "require" | "required" => "accepts any certificate, so the server may be another one",
        _ => "may send responses and the password in the clear",
    };
    let what = format!("{setting}: the TLS mode in the URL {risk}");
    let fix = "sslmode=verify-full (MySQL: ssl-mode=VERIFY_IDENTITY), or leave it out";
    Some((Severity::Warning, what, fix))
}

/// Whether the database is on this machine.
fn is_near(rest: &str) -> bool {
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    // These name another host than the URL does; a path is a Unix socket.
    match pairs.find(|(name, _)| ["host", "hostaddr", "socket"].contains(name)) {
        Some((_, other)) => other.starts_with('/') || other.starts_with("%2F") || is_at(other),
        None => host.starts_with("%2F") || is_at(host),
    }
}

fn is_at(host: &str) -> bool {
    is_local(&format!("http://{host}/"))
}
