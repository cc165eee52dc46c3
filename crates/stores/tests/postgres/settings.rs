//! Servers and URLs that are not fit are refused at start, with what to do; TLS and a role that may
//! little work.

use std::process::Command;

use semel_core::{Store, StoreAdmin as _};
use semel_testkit::private::{PostgresServer, free_port};

use crate::support::{complete, fresh, refusal, won};
use crate::{open, try_open};

#[tokio::test]
async fn a_server_that_would_forget_is_refused() {
    let server = PostgresServer::start(&["fsync=off"]).await;
    let said = refusal(try_open(&server.url()).await);
    assert!(said.contains("fsync is off"), "{said}");
    let server = PostgresServer::start(&["synchronous_commit=off"]).await;
    let said = refusal(try_open(&server.url()).await);
    assert!(said.contains("synchronous_commit is off"), "{said}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_said_as_such() {
    let url = format!("postgres://semel@127.0.0.1:{}/semel", free_port());
    let error = try_open(&url).await.expect_err("nobody is there");
    let source = std::error::Error::source(&error).map(ToString::to_string);
    let said = source.unwrap_or_default();
    assert!(said.contains("refused"), "{said}");
}

#[tokio::test]
async fn a_replica_is_refused() {
    let primary = PostgresServer::start(&[]).await;
    let replica = PostgresServer::replica_of(primary.address(), "replica", &[]).await;
    let said = refusal(try_open(&replica.url()).await);
    assert!(said.contains("connect to the primary"), "{said}");
}

#[tokio::test]
async fn without_migrations_missing_tables_are_said() {
    let server = PostgresServer::start(&[]).await;
    let said = refusal(try_open(&format!("{}?migrate=off", server.url())).await);
    assert!(said.contains("migrations/postgres"), "{said}");
    open(&server.url()).await;
    open(&format!("{}?migrate=off", server.url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_processes_may_start_at_once_on_an_empty_database() {
    let server = PostgresServer::start(&[]).await;
    let url = format!("{}?max_connections=2", server.url());
    let opening: Vec<_> = (0..8)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { try_open(&url).await.map(drop) })
        })
        .collect();
    for opened in opening {
        opened.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_role_that_may_only_read_and_write_is_enough() {
    let server = PostgresServer::start(&[]).await;
    open(&server.url()).await; // The owner makes the tables.
    server.sql(
        "semel",
        "create role app login; grant usage on schema semel to app; \
         grant select on all tables in schema semel to app; \
         grant insert, update, delete on all tables in schema semel to app",
    );
    let url = server.url().replace("semel@", "app@");
    let store = open(&url).await;
    let claim = fresh();
    let lease = won(&store, &claim).await;
    // Large enough to need a partition, which the role could not make by itself.
    let large = complete(&"x".repeat(100_000));
    store.settle(&lease, &large).await.unwrap();
    let record = store.read(&claim.identity).await.unwrap().unwrap();
    assert_eq!(record.answer.as_ref(), large.answer());
}

#[tokio::test]
async fn a_role_from_before_an_upgrade_may_use_the_new_tables() {
    let server = PostgresServer::start(&[]).await;
    open(&server.url()).await;
    // As the first version made it, and as a role was given what was there then.
    server.sql(
        "semel",
        "drop table semel.fence_floor; drop function semel.above_floor; \
         delete from semel.migrations where name >= '0002'; \
         create role app login; grant usage on schema semel to app; \
         grant select, insert, update, delete on all tables in schema semel to app",
    );
    open(&server.url()).await; // The owner brings the tables up to date.
    let url = server.url().replace("semel@", "app@");
    let store = open(&url).await;
    let claim = fresh();
    won(&store, &claim).await;
    assert!(store.delete(&claim.identity).await.unwrap());
    let floor = "select floor > 0 from semel.fence_floor";
    assert_eq!(server.sql("semel", floor), "t");
}

#[tokio::test]
async fn tls_is_verified() {
    let server = PostgresServer::start(&[]).await;
    let folder = server.folder().display().to_string();
    let make = format!(
        "cd {folder} && openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key \
         -out ca.pem && openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout key.pem -out request.pem && \
         echo subjectAltName=DNS:localhost,IP:127.0.0.1 > names && openssl x509 -req -days 2 -in request.pem \
         -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -out cert.pem && \
         chown postgres key.pem cert.pem && chmod 600 key.pem"
    );
    let made = Command::new("sh").args(["-c", &make]).output().unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    for setting in [
        format!("ssl_cert_file = '{folder}/cert.pem'"),
        format!("ssl_key_file = '{folder}/key.pem'"),
        "ssl = on".to_owned(),
    ] {
        server.sql("postgres", &format!("alter system set {setting}"));
    }
    server.sql("postgres", "select pg_reload_conf()");
    let verified = format!(
        "{}?sslmode=verify-full&sslrootcert={folder}/ca.pem",
        server.url()
    );
    let mut tries = 0;
    while try_open(&verified).await.is_err() && tries < 50 {
        crate::support::sleep(100).await; // The settings take a moment.
        tries += 1;
    }
    let store = open(&verified).await;
    won(&store, &fresh()).await;
    let encrypted = "select count(*) from pg_stat_ssl s join pg_stat_activity a using (pid) \
                     where s.ssl and a.application_name = 'semel'";
    assert_ne!(server.sql("postgres", encrypted), "0");
    // Another authority's certificate is not taken.
    let other = format!("{}?sslmode=verify-full", server.url());
    assert!(try_open(&other).await.is_err());
}
