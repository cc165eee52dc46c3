//! Health probe at start: checks that the server is fit to keep records.

use semel_core::store::StoreResult;
use sqlx::Row as _;

use super::Link;
use super::error::{unexpected, unfit};

/// The version and limits of a fit server.
pub(super) struct ServerFitness {
    /// Its name and version.
    pub(super) server: String,
    pub(super) is_mariadb: bool,
    pub(super) max_answer_bytes: usize,
}

/// The space in a statement for everything except the answer: a checkpoint, names, the text.
const BESIDE_THE_ANSWER: usize = 128 * 1024;

const QUESTION: &str = "SELECT VERSION(), CAST(@@GLOBAL.innodb_flush_log_at_trx_commit AS CHAR), \
     CAST(@@GLOBAL.read_only + 0 AS CHAR), CAST(@@GLOBAL.max_allowed_packet AS CHAR)";

/// Probes the server.
pub(super) async fn check(link: &Link) -> StoreResult<ServerFitness> {
    let mut session = link.session(None).await?;
    let rows = session.script(QUESTION).await?;
    session.give_back();
    let text = |index: usize| {
        rows.first()
            .and_then(|row| row.try_get::<String, _>(index).ok())
            .unwrap_or_default()
    };
    let version = text(0);
    let server = recent(&version)?;
    if text(2) != "0" {
        return Err(unfit(
            "read_only is on: the server is a replica, or closed for writing; connect to the primary",
        ));
    }
    if !is_durable(&text(1)) {
        return Err(unfit(format!(
            "innodb_flush_log_at_trx_commit is {}, so the server would forget what was done when it or its machine \
             crashes; set it to 1",
            text(1)
        )));
    }
    let packet: usize = text(3)
        .parse()
        .map_err(|_| unexpected("no max_allowed_packet"))?;
    Ok(ServerFitness {
        server,
        is_mariadb: is_mariadb(&version),
        max_answer_bytes: packet.saturating_sub(BESIDE_THE_ANSWER),
    })
}

/// 1, and MariaDB's 3, which is the same and more.
pub(super) fn is_durable(flush_at_commit: &str) -> bool {
    matches!(flush_at_commit, "1" | "3")
}

fn is_mariadb(version: &str) -> bool {
    version.to_ascii_lowercase().contains("mariadb")
}

/// The server's name, if it isn't too old: `NOWAIT` and `SKIP LOCKED` are needed.
fn recent(version: &str) -> StoreResult<String> {
    // Some versions begin with 5.5.5-, for old clients.
    let number = version.trim_start_matches("5.5.5-");
    let number = number.split('-').next().unwrap_or_default();
    let mut parts = number
        .split('.')
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let (name, oldest) = if is_mariadb(version) {
        ("MariaDB", (10, 6))
    } else {
        ("MySQL", (8, 0))
    };
    if found < oldest {
        return Err(unfit(format!(
            "{name} {number} is too old: {}.{} or newer is needed",
            oldest.0, oldest.1
        )));
    }
    Ok(format!("{name} {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told_apart() {
        let named = |version| recent(version).unwrap_or_else(|_| "too old".to_owned());
        assert_eq!(named("10.11.14-MariaDB-0+deb12u2-log"), "MariaDB 10.11.14");
        assert_eq!(named("5.5.5-11.4.2-MariaDB"), "MariaDB 11.4.2");
        assert_eq!(named("8.0.36"), "MySQL 8.0.36");
        assert_eq!(named("8.4.3-enterprise-commercial"), "MySQL 8.4.3");
        assert_eq!(named("10.5.29-MariaDB"), "too old");
        assert_eq!(named("5.7.44"), "too old");
    }
}
