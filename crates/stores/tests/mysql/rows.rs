//! How many rows were affected is told in two ways, by a flag of the connection; whose a record is
//! never depends on it.

use std::net::SocketAddr;

use semel_core::{Claim, Claimed, Grant, Renewed, Resolution, Resolved, Settled, Settlement};
use semel_core::{Store, StoreResult};
use semel_stores::mysql::MySqlStore;
use sqlx::{Connection as _, MySqlConnection};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{again, complete, fresh, sleep, terms, won};

/// A way to the server that takes the flag `CLIENT_FOUND_ROWS` out of what a client says when it
/// connects, as a proxy may.
async fn without_found_rows(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("a port");
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(pass_on(client, server));
        }
    });
    address
}

async fn pass_on(mut client: TcpStream, server: SocketAddr) -> std::io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    // The server speaks first. Four bytes of header, then the client's flags, the lowest first.
    let mut greeting = vec![0; 4096];
    let length = server.read(&mut greeting).await?;
    client.write_all(&greeting[..length]).await?;
    let mut response = vec![0; 4096];
    let length = client.read(&mut response).await?;
    assert_ne!(response[4] & 2, 0, "the client sets the flag");
    response[4] &= !2;
    server.write_all(&response[..length]).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

fn at(address: SocketAddr) -> String {
    let shared = crate::shared();
    let (before, rest) = shared.split_once('@').expect("a URL with a user");
    let (_, database) = rest.split_once('/').expect("a URL with a database");
    format!("{before}@{address}/{database}")
}

async fn address() -> SocketAddr {
    let shared = crate::shared();
    let host = shared.split(['@', '/']).nth(3).expect("a URL with a host");
    host.parse().expect("an address")
}

/// What an update that changes nothing is said to have affected.
async fn unchanged(url: &str) -> u64 {
    let mut connection = MySqlConnection::connect(url).await.expect("a server");
    let make = "CREATE TEMPORARY TABLE same (id INT PRIMARY KEY, value INT); INSERT INTO same VALUES (1, 1)";
    sqlx::raw_sql(make)
        .execute(&mut connection)
        .await
        .expect("a table");
    let update = sqlx::query("UPDATE same SET value = 1 WHERE id = 1");
    let done = update.execute(&mut connection).await.expect("a table");
    done.rows_affected()
}

/// Everything that could be told wrong by counting rows.
async fn keeps_the_rules(store: &MySqlStore) -> StoreResult<()> {
    let claim = fresh();
    let lease = won(store, &claim).await;
    // Our own claim, sent again, and another's.
    assert_eq!(won(store, &claim).await.fence, lease.fence);
    let other = store.claim(&again(&claim)).await?;
    assert!(matches!(other, Claimed::Busy(_)), "{other:?}");
    renews(store, &lease).await?;
    settles(store, &lease).await
}

/// Renewals in quick succession, some within a microsecond for all we know; the same checkpoint
/// again; a stale owner.
async fn renews(store: &MySqlStore, lease: &Grant) -> StoreResult<()> {
    for _ in 0..20 {
        let checkpoint = bytes::Bytes::from_static(b"same");
        let renewed = store.renew(lease, Some(&checkpoint)).await?;
        assert_eq!(renewed, Renewed::Held);
    }
    let stale = lease.clone().with_token(semel_core::Token(7));
    assert_eq!(store.renew(&stale, None).await?, Renewed::Lost);
    let settled = store.settle(&stale, &complete("no")).await?;
    assert_eq!(settled, Settled::Lost);
    Ok(())
}

/// A doubt, twice; a resolution, twice; a settlement that comes too late.
async fn settles(store: &MySqlStore, lease: &Grant) -> StoreResult<()> {
    for _ in 0..2 {
        let settled = store.settle(lease, &Settlement::Doubt).await?;
        assert_eq!(settled, Settled::Done);
    }
    let resolution = Resolution::Complete(complete("once").answer().expect("an answer").clone());
    for _ in 0..2 {
        let resolved = store.resolve(&lease.identity, lease.fence, &resolution);
        assert_eq!(resolved.await?, Resolved::Done);
    }
    let late = store.settle(lease, &complete("late")).await?;
    assert_eq!(late, Settled::Lost);
    let same = store.settle(lease, &complete("once")).await?;
    assert_eq!(same, Settled::Done);
    Ok(())
}

/// A lapsed lease that many want: one gets it.
async fn one_takes_over(store: &MySqlStore) {
    let (lease, retention) = (
        std::time::Duration::from_millis(100),
        std::time::Duration::from_secs(60),
    );
    let brief = Claim {
        terms: terms(lease, retention),
        ..fresh()
    };
    won(store, &brief).await;
    sleep(200).await;
    let long = Claim {
        terms: terms(retention, retention),
        ..brief.clone()
    };
    let takers: Vec<_> = (1..=16)
        .map(|i| {
            let mut claim = long.clone();
            claim.token.0 ^= i;
            let store = store.clone();
            tokio::spawn(async move { store.claim(&claim).await })
        })
        .collect();
    let mut won = 0;
    for taker in takers {
        won += u32::from(matches!(
            taker.await.expect("no panic").expect("an answer"),
            Claimed::Won(_)
        ));
    }
    assert_eq!(won, 1);
}

#[tokio::test]
async fn found_rows_counts_what_was_matched() {
    let url = crate::shared();
    assert_eq!(
        unchanged(&url).await,
        1,
        "the client sets CLIENT_FOUND_ROWS"
    );
    let store = crate::open(&url).await;
    keeps_the_rules(&store).await.unwrap();
    one_takes_over(&store).await;
}

#[tokio::test]
async fn without_found_rows_only_what_was_changed_is_counted() {
    let url = at(without_found_rows(address().await).await);
    assert_eq!(unchanged(&url).await, 0, "the flag was taken out");
    let store = crate::open(&url).await;
    keeps_the_rules(&store).await.unwrap();
    one_takes_over(&store).await;
}
