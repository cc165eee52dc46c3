//! All of them at once, and a hand that kills.

use std::time::Duration;

use anyhow::ensure;
use tokio::process::{Child, Command};

/// A process that is started again whenever it is killed.
struct Process {
    arguments: Vec<String>,
    child: Child,
}

impl Process {
    fn start(url: &str, arguments: &[&str]) -> anyhow::Result<Self> {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let child = spawn(url, &arguments)?;
        Ok(Self { arguments, child })
    }

    /// At once, as a machine that fails does.
    async fn kill(&mut self, url: &str) -> anyhow::Result<()> {
        self.child.kill().await?;
        self.child = spawn(url, &self.arguments)?;
        Ok(())
    }
}

fn spawn(url: &str, arguments: &Vec<String>) -> anyhow::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments).env("DATABASE_URL", url);
    Ok(command.kill_on_drop(true).spawn()?)
}

/// Submitters, workers and a reaper for so long, one of them killed every half second; then what
/// came of it.
pub(crate) async fn play(url: &str, time: Duration) -> anyhow::Result<()> {
    let jobs = crate::open(url).await?;
    let run = format!("{:016x}", semel::tokio_env().entropy.next_u128() >> 64);
    let orders = 200 * u32::try_from(time.as_secs()).unwrap_or(1) / 4;
    let count = orders.to_string();
    let names: Vec<String> = (0..2).map(|n| format!("{run}-{n}")).collect();
    let mut all = Vec::new();
    for name in &names {
        all.push(Process::start(url, &["submit", name, &count])?);
    }
    for _ in 0..3 {
        all.push(Process::start(url, &["work"])?);
    }
    all.push(Process::start(url, &["reap"])?);
    let mut kills = 0;
    for turn in 0..time.as_millis() / 500 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let chance = semel::tokio_env().entropy.next_u128();
        let victim = usize::try_from(chance % all.len() as u128)?;
        all[victim].kill(url).await?;
        kills += 1;
        let counts = jobs.queue().counts().await?;
        println!("{turn:3}: {} wait, {} run", counts.queued, counts.running);
    }
    // The submitters end by themselves; the workers when there is nothing left.
    for process in &mut all[..2] {
        ensure!(process.child.wait().await?.success(), "a submitter failed");
    }
    loop {
        let counts = jobs.queue().counts().await?;
        if counts.queued + counts.running == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    drop(all);
    let pool = sqlx::PgPool::connect(url).await?;
    let question = "SELECT count(*), count(DISTINCT convert_from(params, 'UTF8')::json ->> 'order'), \
                    count(*) FILTER (WHERE state = 3) FROM semel.jobs WHERE convert_from(params, 'UTF8') LIKE $1";
    let (all, distinct, done): (i64, i64, i64) = sqlx::query_as(question)
        .bind(format!("%{run}%"))
        .fetch_one(&pool)
        .await?;
    println!(
        "{kills} processes killed; {orders} orders from each of 2 submitters, half of them sent twice and all that were not acknowledged;"
    );
    println!("{distinct} orders, {all} jobs, {done} done");
    ensure!(
        all == distinct && done == all && all == i64::from(orders) * 2,
        "an order was lost or handled twice"
    );
    Ok(())
}
