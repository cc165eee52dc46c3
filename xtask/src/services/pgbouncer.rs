//! PgBouncer in transaction mode, in front of the single PostgreSQL.

use anyhow::{Context as _, Result, ensure};

use super::install::Package;
use super::postgres::{self, NAME, sql};
use super::process::{Spec, Stop};
use super::{Instance, Profile, Service};
use crate::exec;

/// In this mode a session's state does not outlive a transaction, which is what the tests are for.
#[derive(Debug)]
pub(crate) struct PgBouncer;

impl Service for PgBouncer {
    fn profile(&self) -> Profile {
        Profile {
            name: "pgbouncer",
            needs: &["postgres"],
            packages: &[Package {
                name: "pgbouncer",
                present: || exec::find_program("pgbouncer").is_some(),
            }],
            wheel: None,
            user: Some(postgres::USER),
            ports: &["main"],
        }
    }

    fn start(&self, instance: &mut Instance<'_>) -> Result<()> {
        let folder = instance.folder()?.to_owned();
        let users = folder.join("users.txt");
        std::fs::write(&users, format!("\"{NAME}\" \"\"\n"))?;
        let config = folder.join("pgbouncer.ini");
        let text = format!(
            "[databases]\n\
             {NAME} = host=127.0.0.1 port={} dbname={NAME} user={NAME}\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {}\n\
             unix_socket_dir =\n\
             auth_type = trust\n\
             auth_file = {}\n\
             pool_mode = transaction\n\
             max_client_conn = 500\n\
             default_pool_size = 20\n",
            instance.port_of("postgres", "main")?,
            instance.port("main")?,
            users.display()
        );
        std::fs::write(&config, text)?;
        instance.run(&Spec {
            role: "main".to_owned(),
            program: exec::find_program("pgbouncer").context("pgbouncer is not installed")?,
            args: vec![config.display().to_string()],
            stop: Stop::Terminate,
        })
    }

    fn healthy(&self, instance: &Instance<'_>) -> Result<()> {
        // Through the pooler to the database and back.
        let answer = sql(instance.port("main")?, NAME, "select 1")?;
        ensure!(answer.trim() == "1", "select 1 answers {answer}");
        Ok(())
    }

    fn env(&self, instance: &Instance<'_>) -> Result<Vec<(String, String)>> {
        let url = postgres::url(instance.port("main")?);
        Ok(vec![("SEMEL_TEST_PGBOUNCER_URL".to_owned(), url)])
    }

    fn version(&self, instance: &Instance<'_>) -> Result<String> {
        let program = exec::find_program("pgbouncer").context("pgbouncer is not installed")?;
        let text = exec::capture(instance.command(program)?.arg("--version"))?;
        Ok(text.lines().next().unwrap_or_default().to_owned())
    }
}
