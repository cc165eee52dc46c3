//! PostgreSQL with a synchronous replica: a commit returns when both have it.
//!
//! While the replica is down every commit hangs. That is the point of it, and the reason why
//! nothing here writes after the synchronous mode is on.

use std::time::Duration;

use anyhow::{Result, ensure};
use semel_devservers::postgres::copy;

use super::postgres::{self, NAME, sql};
use super::{Instance, Profile, Service};

/// The name of the replica, of its replication slot, and of its place in the primary's settings.
const REPLICA: &str = "replica";

/// A primary and its replica.
#[derive(Debug)]
pub(crate) struct PostgresSync;

impl Service for PostgresSync {
    fn profile(&self) -> Profile {
        Profile {
            name: "postgres-sync",
            needs: &[],
            packages: &[postgres::PACKAGE],
            wheel: None,
            user: Some(postgres::USER),
            ports: &["primary", "replica"],
        }
    }

    fn start(&self, instance: &mut Instance<'_>) -> Result<()> {
        let primary = instance.port("primary")?;
        postgres::init(instance, "primary")?;
        instance.run(&postgres::server(instance, "primary", primary)?)?;
        if !instance.folder()?.join(REPLICA).exists() {
            postgres::create_database(instance, primary)?;
            copy_primary(instance, primary)?;
        }
        instance.run(&postgres::server(
            instance,
            REPLICA,
            instance.port("replica")?,
        )?)?;
        instance.wait_for("streaming", Duration::from_secs(60), || {
            let streaming = "select count(*) from pg_stat_replication where state = 'streaming'";
            ensure!(
                sql(primary, "postgres", streaming)?.trim() == "1",
                "the replica is not there"
            );
            Ok(())
        })?;
        make_synchronous(primary)
    }

    fn healthy(&self, instance: &Instance<'_>) -> Result<()> {
        let attached = format!(
            "select count(*) from pg_stat_replication where application_name = '{REPLICA}' \
             and state = 'streaming' and sync_state = 'sync'"
        );
        let count = sql(instance.port("primary")?, NAME, &attached)?;
        ensure!(
            count.trim() == "1",
            "the replica does not follow synchronously"
        );
        let following = sql(
            instance.port("replica")?,
            NAME,
            "select pg_is_in_recovery()",
        )?;
        ensure!(following.trim() == "t", "the replica was promoted");
        Ok(())
    }

    fn env(&self, instance: &Instance<'_>) -> Result<Vec<(String, String)>> {
        let url = |role| instance.port(role).map(postgres::url);
        Ok(vec![
            ("SEMEL_TEST_POSTGRES_SYNC_URL".to_owned(), url("primary")?),
            (
                "SEMEL_TEST_POSTGRES_SYNC_REPLICA_URL".to_owned(),
                url("replica")?,
            ),
        ])
    }

    fn version(&self, _instance: &Instance<'_>) -> Result<String> {
        postgres::version()
    }
}

/// Makes the replica's data folder from the running primary.
fn copy_primary(instance: &Instance<'_>, primary: u16) -> Result<()> {
    instance.say("copying the primary");
    let beside = postgres::fresh(instance, REPLICA)?;
    // A slot that is left over from an interrupted copy would make the next one fail.
    let drop_slot = format!(
        "select pg_drop_replication_slot(slot_name) from pg_replication_slots \
         where slot_name = '{REPLICA}'"
    );
    sql(primary, "postgres", &drop_slot)?;
    let slot = ["--create-slot", "--slot", REPLICA];
    copy(([127, 0, 0, 1], primary).into(), REPLICA, &beside, &slot)?;
    std::fs::rename(&beside, instance.folder()?.join(REPLICA))?;
    Ok(())
}

/// Comes after the replica streams: before that, this very change could never commit.
fn make_synchronous(primary: u16) -> Result<()> {
    if sql(primary, "postgres", "show synchronous_standby_names")?
        .trim()
        .is_empty()
    {
        let names = format!("alter system set synchronous_standby_names = 'FIRST 1 ({REPLICA})'");
        sql(primary, "postgres", &names)?;
        sql(
            primary,
            "postgres",
            "alter system set synchronous_commit = 'remote_apply'",
        )?;
        sql(primary, "postgres", "select pg_reload_conf()")?;
    }
    Ok(())
}
