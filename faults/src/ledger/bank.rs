//! The database of a ledger: one row for each effect, written in the transaction of its record.

use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use rand::RngExt as _;
use rand::rngs::StdRng;
use semel::{Call, Error, Failure};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, MySqlPool, PgPool};

use crate::clock::pass;
use crate::points::die;

/// Accounts that effects update in random order, so that they deadlock.
const ACCOUNTS: u32 = 6;
/// How long a session may be idle in a transaction, and how long an idle effect takes.
const IDLES: Duration = Duration::from_millis(1_400);

/// The kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Server {
    Postgres,
    Mariadb,
}

/// The tables of the ledger.
#[derive(Clone)]
pub(crate) enum Bank {
    Postgres(PgPool),
    Mariadb(MySqlPool),
}

/// A row: a committed effect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) door: String,
    pub(crate) name: String,
    pub(crate) run: String,
}

/// What an effect is going to do.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) entry: Entry,
    accounts: Vec<u32>,
    /// Repeats a failed statement, although a deadlock has ended the transaction.
    goes_on: bool,
    /// Is idle in its transaction for longer than the server allows.
    pub(crate) idles: bool,
    /// Dies before the commit.
    dies: bool,
    /// Fails at its end.
    fails: bool,
}

impl Plan {
    pub(crate) fn of(entry: Entry, rng: &mut StdRng) -> Self {
        let (first, second) = (rng.random_range(0..ACCOUNTS), rng.random_range(0..ACCOUNTS));
        let accounts = match rng.random_range(0..10) {
            0..4 => vec![first, second],
            _ => vec![first],
        };
        Self {
            entry,
            accounts,
            goes_on: rng.random_bool(0.3),
            idles: rng.random_bool(0.004),
            dies: rng.random_bool(0.002),
            fails: rng.random_bool(0.02),
        }
    }

    /// The same effect without faults, for the close.
    pub(crate) const fn plain(entry: Entry) -> Self {
        Self {
            entry,
            accounts: Vec::new(),
            goes_on: false,
            idles: false,
            dies: false,
            fails: false,
        }
    }
}

impl Entry {
    /// The insert statement, with the number of changed accounts.
    pub(crate) fn insert(&self, changes: usize) -> String {
        let Self { door, name, run } = self;
        format!(
            "INSERT INTO ledger_entries (door, name, run, changes) VALUES ('{door}', '{name}', '{run}', {changes})"
        )
    }
}

/// The effect, on a connection of either kind.
macro_rules! effect {
    ($tx:ident, $plan:ident, $limit:literal) => {{
        for account in &$plan.accounts {
            let change =
                format!("UPDATE ledger_accounts SET amount = amount + 1 WHERE name = {account}");
            let send = || sqlx::raw_sql(AssertSqlSafe(change.clone()));
            match send().execute(&mut *$tx).await {
                Err(_) if $plan.goes_on => send().execute(&mut *$tx).await?,
                done => done?,
            };
            pass(Duration::from_millis(1)).await;
        }
        let insert = sqlx::raw_sql(AssertSqlSafe($plan.entry.insert($plan.accounts.len())));
        insert.execute(&mut *$tx).await?;
        if $plan.idles {
            sqlx::raw_sql($limit).execute(&mut *$tx).await?;
            pass(IDLES).await;
        }
        if $plan.dies {
            die();
        }
        if $plan.fails {
            return Err(Failure::retry("rolled back"));
        }
        Ok::<_, Failure>($plan.entry.run)
    }};
}

impl Bank {
    /// The pool connects lazily, because the server may be about to restart.
    pub(crate) fn at(server: Server, url: &str) -> Result<Self> {
        let url = url.split('?').next().unwrap_or(url);
        Ok(match server {
            Server::Postgres => {
                Self::Postgres(PgPoolOptions::new().max_connections(8).connect_lazy(url)?)
            }
            Server::Mariadb => Self::Mariadb(
                MySqlPoolOptions::new()
                    .max_connections(8)
                    .connect_lazy(url)?,
            ),
        })
    }

    /// Creates the tables.
    pub(crate) async fn open(&self) -> Result<()> {
        let key = match self {
            Self::Postgres(_) => "bigserial PRIMARY KEY",
            Self::Mariadb(_) => "bigint AUTO_INCREMENT PRIMARY KEY",
        };
        self.send(format!(
            "CREATE TABLE ledger_entries (id {key}, door varchar(20) NOT NULL, name varchar(80) NOT NULL, \
             run varchar(80) NOT NULL, changes int NOT NULL)"
        ))
        .await?;
        let accounts =
            "CREATE TABLE ledger_accounts (name int PRIMARY KEY, amount bigint NOT NULL)";
        self.send(accounts.to_owned()).await?;
        for account in 0..ACCOUNTS {
            let insert = format!("INSERT INTO ledger_accounts VALUES ({account}, 0)");
            self.send(insert).await?;
        }
        if let Self::Postgres(_) = self {
            // A short timeout, so that a short run has many deadlocks.
            self.send("ALTER ROLE semel SET deadlock_timeout = '20ms'".to_owned())
                .await?;
        }
        Ok(())
    }

    async fn send(&self, text: String) -> Result<()> {
        let statement = sqlx::raw_sql(AssertSqlSafe(text));
        match self {
            Self::Postgres(pool) => statement.execute(pool).await.map(drop),
            Self::Mariadb(pool) => statement.execute(pool).await.map(drop),
        }
        .context("the ledger's own statement")
    }

    /// Runs the effect and its record in one transaction.
    pub(crate) async fn run_in(&self, call: Call, plan: Plan) -> Result<String, Error> {
        let answer = match self {
            Self::Postgres(pool) => {
                call.run_in(pool, async move |mut tx, _| {
                    effect!(
                        tx,
                        plan,
                        "SET LOCAL idle_in_transaction_session_timeout = '300ms'"
                    )
                })
                .await
            }
            Self::Mariadb(pool) => {
                call.run_in(pool, async move |mut tx, _| {
                    effect!(tx, plan, "SET SESSION idle_transaction_timeout = 1")
                })
                .await
            }
        };
        answer.map(|answer| answer.value)
    }

    /// Seeded bug: the effect runs in its own transaction, and the record follows.
    pub(crate) async fn run_beside(&self, call: Call, plan: Plan) -> Result<String, Error> {
        let bank = self.clone();
        let run = async move |_| {
            bank.send(plan.entry.insert(0))
                .await
                .map_err(|error| Failure::retry(error.to_string()))?;
            if plan.dies || plan.fails {
                die();
            }
            Ok::<_, Failure>(plan.entry.run)
        };
        call.run(run).await.map(|answer| answer.value)
    }

    /// All entries.
    pub(crate) async fn entries(&self) -> Result<Vec<Entry>> {
        let text = "SELECT door, name, run FROM ledger_entries";
        let rows: Vec<(String, String, String)> = match self {
            Self::Postgres(pool) => sqlx::query_as(text).fetch_all(pool).await?,
            Self::Mariadb(pool) => sqlx::query_as(text).fetch_all(pool).await?,
        };
        let entry = |(door, name, run)| Entry { door, name, run };
        Ok(rows.into_iter().map(entry).collect())
    }

    /// The number of account changes, by the accounts and by the entries.
    pub(crate) async fn changes(&self) -> Result<(i64, i64)> {
        let number = match self {
            Self::Postgres(_) => "bigint",
            Self::Mariadb(_) => "signed",
        };
        let text = format!(
            "SELECT CAST((SELECT sum(amount) FROM ledger_accounts) AS {number}), \
             CAST((SELECT coalesce(sum(changes), 0) FROM ledger_entries) AS {number})"
        );
        let text = AssertSqlSafe(text);
        Ok(match self {
            Self::Postgres(pool) => sqlx::query_as(text).fetch_one(pool).await?,
            Self::Mariadb(pool) => sqlx::query_as(text).fetch_one(pool).await?,
        })
    }
}
