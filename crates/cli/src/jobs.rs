//! `semel jobs`: shows jobs, and retries dead letters.

use clap::{Args, Subcommand, ValueEnum};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::{ApiPath, Client, Target, typed};
use crate::exit::Exit;
use crate::keys::AuditArgs;
use crate::out::{self, Style, Tone};
use crate::runtime;

/// Shows jobs, and retries dead letters.
#[derive(Subcommand)]
pub(crate) enum Jobs {
    /// Lists jobs, newest first.
    List(List),
    /// Lists dead letters.
    Dead(Dead),
    /// Shows a job.
    Inspect(Inspect),
    /// Retries dead letters: the same jobs with the same IDs.
    Retry(Retry),
}

impl Jobs {
    pub(crate) fn run(self) -> Exit {
        let ended = runtime::block_on(async move {
            match self {
                Self::List(list) => list.run().await,
                Self::Dead(dead) => dead.run().await,
                Self::Inspect(inspect) => inspect.run().await,
                Self::Retry(retry) => retry.run().await,
            }
        });
        ended.into()
    }
}

/// The filter and the output of a list.
#[derive(Args)]
struct JobFilter {
    #[command(flatten)]
    target: Target,
    /// Only this kind.
    #[arg(long, value_name = "NAME")]
    kind: Option<String>,
    /// Only this tenant.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// The maximum number of jobs.
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Lists jobs, newest first.
#[derive(Args)]
#[command(after_help = "\
Examples:
  semel jobs list --state running --admin http://127.0.0.1:9090
  semel jobs list --kind charge --json --store postgres://app@127.0.0.1/app")]
pub(crate) struct List {
    #[command(flatten)]
    which: JobFilter,
    /// Only jobs in this state.
    #[arg(long)]
    state: Option<State>,
}

/// Lists dead letters.
#[derive(Args)]
pub(crate) struct Dead {
    #[command(flatten)]
    which: JobFilter,
}

/// The state of a job.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum State {
    /// Waiting for a worker or for its start time.
    Queued,
    /// A worker runs it.
    Running,
    /// Finished.
    Done,
    /// A dead letter.
    Dead,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Dead => "dead",
        }
    }
}

/// A page of the API.
#[derive(Deserialize)]
struct Page {
    jobs: Vec<Value>,
    next: Option<String>,
    queued: u64,
    running: u64,
    dead: u64,
    #[serde(default)]
    damaged: u64,
    damaged_file: Option<String>,
}

/// The largest page of the API.
const PAGE: usize = 1000;

impl List {
    async fn run(&self) -> Result<(), Exit> {
        self.which.run(self.state).await
    }
}

impl Dead {
    async fn run(&self) -> Result<(), Exit> {
        self.which.run(Some(State::Dead)).await
    }
}

impl JobFilter {
    async fn run(&self, state: Option<State>) -> Result<(), Exit> {
        let client = self.target.client_for_jobs().await?;
        let (mut jobs, mut after) = (Vec::new(), None);
        let most = self.limit as usize;
        let last = loop {
            let page = self
                .page(&client, state, after.as_deref(), most - jobs.len())
                .await?;
            jobs.extend(page.jobs.iter().cloned());
            after.clone_from(&page.next);
            if after.is_none() || jobs.len() >= most {
                break page;
            }
        };
        if self.json {
            let mut counts = json!({
                "queued": last.queued, "running": last.running, "dead": last.dead, "damaged": last.damaged,
            });
            if let Some(file) = last.damaged_file {
                counts["damaged_file"] = file.into();
            }
            out::json(&json!({"jobs": jobs, "counts": counts, "complete": after.is_none()}));
            return Ok(());
        }
        show(&jobs, &last);
        Ok(())
    }

    async fn page(
        &self,
        client: &Client,
        state: Option<State>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page, Exit> {
        let path = ApiPath::new("/admin/v1/jobs")
            .with("state", state.map(State::name))
            .with("tenant", self.tenant.as_deref())
            .with("kind", self.kind.as_deref())
            .with("after", after)
            .with("limit", Some(limit.clamp(1, PAGE)));
        typed(client.get(&path).await?)
    }
}

fn text<'a>(job: &'a Value, member: &str) -> &'a str {
    job[member].as_str().unwrap_or_default()
}

fn tone(state: &str) -> Tone {
    match state {
        "done" => Tone::Good,
        "dead" => Tone::Bad,
        "running" => Tone::Careful,
        _ => Tone::Plain,
    }
}

fn show(jobs: &[Value], page: &Page) {
    let look = Style::for_stdout();
    if jobs.is_empty() {
        out::say("no job matches");
    } else {
        let mut table = look.table(["JOB", "STATE", "KIND", "TRY", "CREATED", "WORKER", "ERROR"]);
        for job in jobs {
            let state = text(job, "state");
            let tries = format!("{}/{}", job["attempt"], job["max_attempts"]);
            let error: String = text(job, "error").chars().take(60).collect();
            table.add_row([
                look.cell(Tone::Plain, text(job, "job_id")),
                look.cell(tone(state), state),
                look.cell(Tone::Plain, text(job, "kind")),
                look.cell(Tone::Plain, tries),
                look.cell(Tone::Plain, text(job, "created_at")),
                look.cell(Tone::Plain, text(job, "worker")),
                look.cell(Tone::Plain, error),
            ]);
        }
        out::say(table.trim_fmt());
    }
    let (queued, running, dead) = (page.queued, page.running, page.dead);
    let total = format!("{queued} queued, {running} running, {dead} dead letters");
    out::say(look.paint(Tone::Quiet, total));
    if let Some(file) = &page.damaged_file {
        let told = format!(
            "{} can't be read as a job, so no worker gets it; one is {file}: repair or move it",
            plural(page.damaged)
        );
        out::say(look.paint(Tone::Bad, told));
    }
}

fn plural(files: u64) -> String {
    match files {
        1 => "1 file".to_owned(),
        _ => format!("each of {files} files"),
    }
}

/// Shows a job.
#[derive(Args)]
pub(crate) struct Inspect {
    #[command(flatten)]
    target: Target,
    /// The ID of the job: job_ and 32 hexadecimal digits.
    #[arg(value_name = "JOB")]
    job: String,
    /// Include the result. The audit trail records this.
    #[arg(long)]
    result: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Inspect {
    async fn run(&self) -> Result<(), Exit> {
        let client = self.target.client_for_jobs().await?;
        let more = if self.result { "?result=true" } else { "" };
        let path = ApiPath::new(format!("/admin/v1/jobs/{}{more}", plain(&self.job)));
        let job = client.get(&path).await?;
        if self.json {
            out::json(&job);
            return Ok(());
        }
        let look = Style::for_stdout();
        let mut table = look.bare_table();
        for (name, value) in job.as_object().into_iter().flatten() {
            if name == "ok" {
                continue;
            }
            let value = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            let is_state = name == "state";
            let tone = if is_state { tone(&value) } else { Tone::Plain };
            table.add_row([look.cell(Tone::Quiet, name), look.cell(tone, value)]);
        }
        out::say(table.trim_fmt());
        Ok(())
    }
}

/// Removes characters that are not allowed in a path.
fn plain(job: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    job.chars().filter(is_plain).take(64).collect()
}

/// Retries dead letters.
#[derive(Args)]
#[command(after_help = "\
Example:
  semel jobs retry job_0190b2c4… --reason 'the provider is back' --admin http://127.0.0.1:9090")]
pub(crate) struct Retry {
    #[command(flatten)]
    target: Target,
    /// The IDs of the jobs.
    #[arg(value_name = "JOB", required = true)]
    jobs: Vec<String>,
    #[command(flatten)]
    signed: AuditArgs,
}

impl Retry {
    async fn run(&self) -> Result<(), Exit> {
        let client = self.target.client_for_jobs().await?;
        let count = self.jobs.len();
        let what = if count == 1 { "this job" } else { "these jobs" };
        self.signed.confirm(&format!("run {what} again?"))?;
        for job in &self.jobs {
            let path = format!("/admin/v1/jobs/{}/retry", plain(job));
            let done = client.post(&path, self.signed.body(json!({}))).await?;
            if self.signed.json {
                out::json(&done);
            } else {
                out::say(format!("{} is queued again", text(&done, "job_id")));
            }
        }
        Ok(())
    }
}
