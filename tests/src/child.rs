//! One of several processes, as a test wants it: it claims when it is told to, transfers and gets
//! killed, or serves and is told to end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand};
use semel::core::{
    Claim, ClaimTerms, Claimed, CrashPolicy, Fingerprint, Identity, Key, Namespace, Secret,
    StoreAdmin, Token,
};
use semel::{Failure, Semel, tokio_env};
use sqlx::Connection as _;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Reads keys from standard input; for each, claims it many times at once and prints how many
    /// claims won.
    Race {
        /// The store.
        url: String,
        /// How many claims at once.
        claims: usize,
    },
    /// Serves requests whose effect takes half a second, until it is told to end; notes in a folder
    /// what it began and ended.
    Serve {
        /// The folder.
        folder: PathBuf,
    },
    /// Runs operations on four tasks, and prints the key of each that was acknowledged as settled.
    Load {
        /// The store.
        url: String,
    },
    /// Takes the write lock of an SQLite file, writes half of something, says so, and stays.
    Hold {
        /// The file.
        file: PathBuf,
    },
    /// Charges orders through an outbox, and writes their receipts into a folder.
    Charge {
        /// Where to.
        url: String,
        /// The outbox.
        outbox: PathBuf,
        /// The receipts.
        receipts: PathBuf,
        /// How many orders.
        orders: usize,
    },
    /// Moves money once, in one transaction with its record: two statements on the table
    /// `accounts`.
    Transfer {
        /// The database.
        url: String,
        /// The key.
        key: String,
    },
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Race { url, claims } => race(&url, claims).await,
        Command::Load { url } => load(&url).await,
        Command::Hold { file } => hold(file).await,
        Command::Serve { folder } => serve(folder).await,
        Command::Charge {
            url,
            outbox,
            receipts,
            orders,
        } => charge(&url, outbox, &receipts, orders).await,
        Command::Transfer { url, key } => transfer(&url, &key).await,
    }
}

async fn race(url: &str, claims: usize) -> anyhow::Result<()> {
    let semel = Semel::open(url).await?;
    let mut keys = BufReader::new(tokio::io::stdin()).lines();
    println!("ready");
    while let Some(key) = keys.next_line().await? {
        let racing: Vec<_> = (0..claims)
            .map(|_| tokio::spawn(claim(Arc::clone(semel.store()), key.clone())))
            .collect();
        let mut won = 0;
        for claim in racing {
            won += u32::from(claim.await??);
        }
        println!("{won}");
    }
    Ok(())
}

async fn load(url: &str) -> anyhow::Result<()> {
    let semel = Semel::open(url).await?;
    let run = tokio_env().entropy.next_u128();
    let task = |task: u32| {
        let semel = semel.clone();
        async move {
            for i in 0_u64.. {
                let key = format!("load-{run:032x}-{task}-{i}");
                let call = semel.operation("load").key(&key).payload(&i);
                let text = key.clone();
                match call.run(|_| async move { Ok::<_, Failure>(text) }).await {
                    Ok(_) => println!("{key} {i}"),
                    // Nothing is acknowledged: another process had the file to itself for too long.
                    Err(error) if error.is_retryable() => {}
                    Err(error) => return Err(error.into()),
                }
            }
            anyhow::Ok(())
        }
    };
    let tasks: Vec<_> = (0..4).map(|number| tokio::spawn(task(number))).collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

async fn hold(file: PathBuf) -> anyhow::Result<()> {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
    let mut connection = sqlx::SqliteConnection::connect_with(&options).await?;
    let write = "BEGIN IMMEDIATE; UPDATE records SET record = x'00'; \
                 INSERT INTO records VALUES (x'01', 1, 1, x'00')";
    sqlx::raw_sql(write).execute(&mut connection).await?;
    println!("held");
    std::future::pending::<()>().await;
    Ok(())
}

/// Whether a claim of `key`, by an asker of its own, wins.
async fn claim(store: Arc<dyn StoreAdmin>, key: String) -> anyhow::Result<bool> {
    let (namespace, key) = (Namespace::new("", "", "race")?, Key::parse(&key)?);
    let minute = Duration::from_secs(60);
    let claim = Claim {
        retry: false,
        identity: Identity::new(&Secret::none(), &namespace, &key),
        fingerprint: Fingerprint::builder(&Secret::none()).part(b"same").finish(),
        token: Token(tokio_env().entropy.next_u128()),
        terms: ClaimTerms::new(minute, minute, CrashPolicy::Takeover, 5)?,
        secret_id: 0,
        hint: key.hint(),
        namespace,
    };
    match store.claim(&claim).await? {
        Claimed::Won(_) => Ok(true),
        Claimed::Busy(_) => Ok(false),
        other => anyhow::bail!("neither won nor busy: {other:?}"),
    }
}

async fn serve(folder: PathBuf) -> anyhow::Result<()> {
    let semel = Semel::open("memory://").await?;
    let handler = move || async move {
        std::fs::write(folder.join("begun"), "").expect("a folder");
        let half_a_second = Duration::from_millis(500);
        tokio_env().clock.sleep(half_a_second).await;
        std::fs::write(folder.join("ended"), "").expect("a folder");
        "done"
    };
    let app = axum::Router::new()
        .route("/", axum::routing::post(handler))
        .layer(semel.http());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let mut term = signal(SignalKind::terminate())?;
    println!("{}", listener.local_addr()?);
    let stop = async move {
        term.recv().await;
    };
    axum::serve(listener, app)
        .with_graceful_shutdown(stop)
        .await?;
    // Connections are done. What callers left behind may not be.
    semel.idle().await;
    Ok(())
}

async fn transfer(url: &str, key: &str) -> anyhow::Result<()> {
    let semel = Semel::open(&format!("{url}?max_connections=1")).await?;
    let pool = sqlx::postgres::PgPoolOptions::new()
        .max_connections(1)
        .connect(url)
        .await?;
    let call = semel.operation("transfer").key(key).payload(&100);
    let answer = call.run_in(&pool, async |mut tx, _| {
        let take = sqlx::query("UPDATE accounts SET amount = amount - 100 WHERE name = 'alice'");
        take.execute(&mut *tx).await?;
        let give = sqlx::query("UPDATE accounts SET amount = amount + 100 WHERE name = 'bob'");
        give.execute(&mut *tx).await?;
        Ok::<_, Failure>("moved".to_owned())
    });
    println!("{}", answer.await?.value);
    Ok(())
}

/// Whatever a process before this one left is sent first; then the orders that have no receipt.
async fn charge(
    url: &str,
    outbox: PathBuf,
    receipts: &std::path::Path,
    orders: usize,
) -> anyhow::Result<()> {
    let policy = semel_client::RetryPolicy::default()
        .with_max_attempts(30)
        .with_base(Duration::from_millis(5))
        .with_cap(Duration::from_millis(100));
    let idempotency = semel_client::IdempotencyMiddleware::default().policy(policy);
    let builder = reqwest_middleware::ClientBuilder::new(reqwest::Client::new());
    let client = builder.with(idempotency).build();
    let outbox = semel_client::Outbox::open(outbox).await?;
    let keep = |order: &str, receipt: String| {
        let beside = receipts.with_file_name(format!("{order}.{}", std::process::id()));
        std::fs::write(&beside, receipt)?;
        std::fs::rename(&beside, receipts.join(order))
    };
    for call in outbox.pending().await? {
        if call.was_sent() {
            let answer = call.resend(&client).await?;
            keep(call.name(), answer.text().await?)?;
        }
        call.forget().await?;
    }
    for number in 0..orders {
        let order = format!("ord-{number}");
        if receipts.join(&order).exists() {
            continue;
        }
        let call = outbox.begin(&order).await?;
        let request = client.post(url).json(&serde_json::json!({"order": order}));
        let answer = call.send(&client, request).await?;
        keep(&order, answer.text().await?)?;
        call.forget().await?;
    }
    Ok(())
}
