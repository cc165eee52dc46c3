//! Health probe at start: checks that the server is fit to keep records.

use semel_core::store::StoreResult;
use semel_core::{Certainty, StoreError, StoreErrorKind};
use sqlx::Row as _;

use super::BEGIN;
use super::Link;
use super::error::unexpected;

const OLDEST: u32 = 140_000;

/// Looks the server over; answers with its name and version.
pub(super) async fn check(link: &Link) -> StoreResult<String> {
    let mut session = link.session(BEGIN).await?;
    let question = "SELECT current_setting('server_version'), current_setting('server_version_num'), \
                    current_setting('fsync'), current_setting('synchronous_commit'), \
                    pg_is_in_recovery()::text";
    let rows = session.script(question).await?;
    session.commit().await?;
    let text = |index| {
        rows.first()
            .and_then(|row| row.try_get::<String, _>(index).ok())
    };
    let answers = [0, 1, 2, 3, 4].map(|index: usize| text(index).unwrap_or_default());
    let [version, number, fsync, synchronous_commit, replica] = answers;
    let number: u32 = number
        .parse()
        .map_err(|_| unexpected("no server version"))?;
    if number < OLDEST {
        return Err(unfit(format!(
            "PostgreSQL {version} is too old: 14 or newer is needed"
        )));
    }
    if replica == "true" {
        return Err(unfit(
            "the server is a replica, and may be behind; connect to the primary".to_owned(),
        ));
    }
    for (setting, value) in [("fsync", fsync), ("synchronous_commit", synchronous_commit)] {
        if value == "off" {
            return Err(unfit(format!(
                "{setting} is off, so the server would forget what was done when it crashes; set it to on"
            )));
        }
    }
    Ok(format!("PostgreSQL {version}"))
}

fn unfit(said: String) -> StoreError {
    StoreError::new(StoreErrorKind::Rejected, Certainty::Definite, said)
}
