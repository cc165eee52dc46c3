//! Submitters and workers at once, and a hand that kills.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use semel_jobs::{JobQuery, JobState, Jobs};
use tokio::process::{Child, Command};

/// For what is left to do when no more processes are killed.
const PATIENCE: Duration = Duration::from_secs(120);

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

    /// Starts it again where it has ended, as whoever looks after it would do.
    fn keep_running(&mut self, url: &str) -> anyhow::Result<()> {
        if self.child.try_wait()?.is_some() {
            self.child = spawn(url, &self.arguments)?;
        }
        Ok(())
    }
}

fn spawn(url: &str, arguments: &Vec<String>) -> anyhow::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(arguments)
        .env("STORE_URL", url)
        .stdout(Stdio::null());
    Ok(command.kill_on_drop(true).spawn()?)
}

/// Waits until all orders are submitted, and all tasks are done.
async fn finish(
    url: &str,
    jobs: &Jobs,
    submitters: &mut [Process],
    workers: &mut [Process],
) -> anyhow::Result<()> {
    for process in submitters {
        ensure!(process.child.wait().await?.success(), "a submitter failed");
    }
    loop {
        match jobs.queue().counts().await {
            Ok(counts) if counts.queued + counts.running == 0 => return Ok(()),
            Err(error) if !error.is_retryable() => return Err(error.into()),
            Ok(_) | Err(_) => {}
        }
        for process in &mut *workers {
            process.keep_running(url)?;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// For so long, one of them is killed every half second; then what came of it.
pub(crate) async fn play(url: &str, time: Duration) -> anyhow::Result<()> {
    let jobs = crate::open(url).await?;
    let seconds = u32::try_from(time.as_secs())?;
    let run = format!("{:016x}", semel::tokio_env().entropy.next_u128() >> 64);
    let count = (seconds * 10).to_string();
    // Both submit the same orders: each is one task all the same.
    let submitters = ["orders", &run, &count];
    let mut all = vec![
        Process::start(url, &submitters)?,
        Process::start(url, &submitters)?,
    ];
    for _ in 0..2 {
        all.push(Process::start(url, &["work", "--for-ever"])?);
    }
    let mut kills = 0;
    for _ in 0..time.as_millis() / 500 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let chance = semel::tokio_env().entropy.next_u128();
        let victim = usize::try_from(chance % all.len() as u128)?;
        all[victim].kill(url).await?;
        kills += 1;
    }
    let (submitters, workers) = all.split_at_mut(2);
    let finished = finish(url, &jobs, submitters, workers);
    let finished = tokio::time::timeout(PATIENCE, finished).await;
    finished.context("there is still something to do")??;
    drop(all);
    let (mut tasks, mut done, mut query) = (0, 0, JobQuery::default());
    loop {
        let page = jobs.queue().list(&query).await?;
        tasks += page.jobs.len();
        done += page
            .jobs
            .iter()
            .filter(|task| task.state == JobState::Done)
            .count();
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    println!(
        "{kills} processes killed; {count} orders, submitted by two at once, half of them twice"
    );
    println!("{tasks} tasks, {done} done");
    ensure!(
        tasks.to_string() == count && done == tasks,
        "an order was lost, or submitted twice"
    );
    Ok(())
}
