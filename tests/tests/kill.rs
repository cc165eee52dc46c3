//! A process that moves money in one transaction with its record is killed at every step it takes:
//! afterwards both are there, or neither; and the next one to try completes it once.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::process::Stdio;
use std::time::Duration;

use semel_testkit::private::{PostgresServer, url_at};
use semel_testkit::proxy::{Cut, Proxy};
use tokio::process::Command;

/// What the database says: how much was moved, by both accounts and by the record.
fn state(server: &PostgresServer) -> (String, String) {
    let accounts = "select string_agg(amount::text, ' ' order by name) from accounts";
    let records = "select count(*) from semel.records where scope = 'transfer' and state = 2";
    (server.sql("semel", accounts), server.sql("semel", records))
}

fn child(url: &str, key: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel-child"));
    command.args(["transfer", url, key]).stdin(Stdio::null());
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Runs a transfer, and kills it when it comes to the `step`-th request or reply. → whether it came
/// so far.
async fn killed_at(server: &PostgresServer, key: &str, step: usize, cut: Cut) -> bool {
    let proxy = Proxy::to(server.address(), semel::tokio_env().clock).await;
    let proxy = proxy.expect("a port");
    proxy.cut_after(step, cut);
    let mut process = child(&url_at(proxy.address()), key)
        .spawn()
        .expect("the child starts");
    let reached = tokio::select! {
        () = proxy.cuts_made(1) => true,
        ended = process.wait() => match ended.expect("the child ends").success() {
            true => false,
            // The cut ended it; both come at about the same time.
            false => {
                let cut = tokio::time::timeout(Duration::from_secs(10), proxy.cuts_made(1)).await;
                assert!(cut.is_ok(), "the transfer failed uncut");
                true
            }
        },
    };
    // It gets no further: no connection, no process.
    proxy.refuse(true);
    proxy.cut_all();
    process.kill().await.expect("it is ours to kill");
    reached
}

/// Waits until the server has noticed that the killed process is gone.
async fn settled(server: &PostgresServer) {
    let open =
        "select count(*) from pg_stat_activity where datname = 'semel' and pid <> pg_backend_pid()";
    while server.sql("semel", open) != "0" {
        semel::tokio_env()
            .clock
            .sleep(Duration::from_millis(10))
            .await;
    }
}

/// `after` tells whether a cut after the commit must come.
async fn every_step(cut: Cut, after: bool) {
    let server = PostgresServer::start(&[]).await;
    semel::Semel::open(&server.url()).await.expect("tables");
    server.sql(
        "semel",
        "create table accounts (name text primary key, amount bigint); \
         insert into accounts values ('alice', 0), ('bob', 0)",
    );
    let (mut moved, mut neither, mut both) = (0, 0, 0);
    for step in 0..200 {
        let key = format!("transfer-{step}");
        let reached = killed_at(&server, &key, step, cut).await;
        settled(&server).await;
        let (accounts, records) = state(&server);
        let is_there = records == (moved + 1).to_string();
        let expected = if is_there { moved + 1 } else { moved };
        assert_eq!(records, expected.to_string(), "killed at step {step}");
        assert_eq!(
            accounts,
            format!("-{0} {0}", expected * 100).replace("-0 ", "0 "),
            "killed at step {step}"
        );
        if !reached {
            assert!(
                neither > 10 && (both > 0 || !after),
                "neither {neither}, both {both}"
            );
            println!("{step} steps: neither {neither} times, both {both} times");
            return;
        }
        if is_there {
            both += 1;
        } else {
            neither += 1;
        }
        // Somebody tries again, and it is done once.
        let again = child(&server.url(), &key)
            .output()
            .await
            .expect("the child runs");
        let said = String::from_utf8_lossy(&again.stderr);
        assert!(again.status.success(), "after step {step}: {said}");
        moved += 1;
        let (accounts, records) = state(&server);
        assert_eq!(
            (accounts, records),
            (format!("-{0} {0}", moved * 100), moved.to_string())
        );
    }
    panic!("it never comes to its end");
}

#[tokio::test]
async fn killed_before_the_server_sees_a_request() {
    every_step(Cut::BeforeRequest, false).await;
}

#[tokio::test]
async fn killed_before_it_sees_a_reply() {
    every_step(Cut::BeforeReply, true).await;
}
