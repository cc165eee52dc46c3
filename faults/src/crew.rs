//! [`WorkerPool`]: the workers of a run, which the harness starts, commands, kills, pauses and
//! replaces.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use semel::core::StoreAdmin;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::place::WorkerPlace;
use crate::servers::on_machine;
use crate::worker::{Order, Setup, Source, Word, serve};

/// How long a worker may take to finish. A worker that hangs is a failure of the harness, not of
/// the store.
const PATIENCE: Duration = Duration::from_secs(600);

/// All workers of a run.
pub(crate) struct WorkerPool {
    place: WorkerPlace,
    template: Setup,
    folder: PathBuf,
    round: u64,
    members: Vec<WorkerHandle>,
    /// The files of the current round.
    files: Vec<PathBuf>,
}

struct WorkerHandle {
    setup: Setup,
    body: Body,
    words: UnboundedReceiver<Word>,
    stopped: bool,
    /// The offset of its wall clock, in seconds.
    skew: i64,
}

enum Body {
    Process {
        child: Box<Child>,
        stdin: ChildStdin,
    },
    Thread {
        orders: UnboundedSender<Order>,
        end: Option<oneshot::Sender<()>>,
    },
}

impl WorkerPool {
    pub(crate) fn new(place: WorkerPlace, template: Setup, folder: &Path) -> Result<Self> {
        let mut crew = Self {
            place,
            folder: folder.to_owned(),
            round: 0,
            members: Vec::new(),
            files: Vec::new(),
            template,
        };
        for worker in 0..crew.template.workers {
            let setup = Setup {
                worker,
                ..crew.template.clone()
            };
            let member = crew.start(setup, 0)?;
            crew.members.push(member);
        }
        Ok(crew)
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether the workers are processes.
    pub(crate) const fn has_processes(&self) -> bool {
        !matches!(self.place, WorkerPlace::Threads(_))
    }

    /// Whether a worker can have another clock.
    pub(crate) const fn can_skew(&self) -> bool {
        matches!(self.place, WorkerPlace::Processes { skew: Some(_), .. })
    }

    fn start(&self, mut setup: Setup, skew: i64) -> Result<WorkerHandle> {
        let (say, words) = unbounded_channel();
        let body = match &self.place {
            WorkerPlace::Processes {
                urls,
                skew: library,
            } => {
                let index = usize::try_from(setup.worker).unwrap_or(0);
                setup.url.clone_from(&urls[index % urls.len()]);
                let library = library.as_deref().filter(|_| skew != 0);
                let mut command = Command::new(std::env::current_exe()?);
                if let Some(library) = library {
                    command
                        .env("LD_PRELOAD", library)
                        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
                    command.env("FAKETIME", format!("{skew:+}s"));
                }
                process(command, &setup, say)?
            }
            WorkerPlace::OneClock { url, environment } => {
                setup.url.clone_from(url);
                let mut command = Command::new(std::env::current_exe()?);
                command.envs(environment.iter().cloned());
                process(command, &setup, say)?
            }
            WorkerPlace::Machines { url, namespaces } => {
                let index = usize::try_from(setup.worker).unwrap_or(0);
                setup.url.clone_from(url);
                let namespace = &namespaces[index % namespaces.len()];
                let command = on_machine(namespace, &std::env::current_exe()?);
                process(command.into(), &setup, say)?
            }
            WorkerPlace::Threads(store) => thread(setup.clone(), Arc::clone(store), say),
        };
        Ok(WorkerHandle {
            setup,
            body,
            words,
            stopped: false,
            skew,
        })
    }

    /// Starts a round.
    pub(crate) async fn begin(&mut self, round: u64) -> Result<()> {
        self.round = round;
        self.files.clear();
        for index in 0..self.members.len() {
            self.tell_round(index).await;
        }
        Ok(())
    }

    async fn tell_round(&mut self, index: usize) {
        let client = self.members[index].setup.client();
        let file = self.folder.join(format!("{}-{client}.jsonl", self.round));
        self.files.push(file.clone());
        let order = Order::Round {
            number: self.round,
            file,
        };
        self.members[index].tell(&order).await;
    }

    /// Kills a worker, and starts a replacement that continues the round.
    pub(crate) async fn replace(&mut self, index: usize, skew: i64) -> Result<()> {
        let member = &mut self.members[index];
        member.kill().await;
        let setup = Setup {
            incarnation: member.setup.incarnation + 1,
            ..member.setup.clone()
        };
        self.members[index] = self.start(setup, skew)?;
        self.tell_round(index).await;
        Ok(())
    }

    pub(crate) fn skew_of(&self, index: usize) -> i64 {
        self.members[index].skew
    }

    pub(crate) fn client_of(&self, index: usize) -> u32 {
        self.members[index].setup.client()
    }

    pub(crate) async fn arm(&mut self, index: usize, at: Option<(crate::points::Point, u32)>) {
        self.members[index].tell(&Order::Die(at)).await;
    }

    /// Whether a worker has exited.
    pub(crate) fn is_dead(&mut self, index: usize) -> bool {
        match &mut self.members[index].body {
            Body::Process { child, .. } => !matches!(child.try_wait(), Ok(None)),
            Body::Thread { .. } => false,
        }
    }

    /// Stops a worker with SIGSTOP, or lets it continue.
    pub(crate) fn stop(&mut self, index: usize, stop: bool) {
        let member = &mut self.members[index];
        member.stopped = stop;
        member.signal(if stop { Signal::STOP } else { Signal::CONT });
    }

    /// Ends the round: no call is running, and every key was requested once more. Returns the
    /// files, and the number of keys without an answer.
    pub(crate) async fn finish(&mut self) -> Result<(Vec<PathBuf>, u64)> {
        let mut keys = 0;
        for index in 0..self.members.len() {
            if self.members[index].stopped {
                self.stop(index, false);
            }
            self.members[index].tell(&Order::Pause).await;
        }
        for index in 0..self.members.len() {
            while keys_of(&mut keys, self.members[index].word().await?).is_none() {
                // It died of an earlier command; a replacement ends the round.
                self.replace(index, 0).await?;
                self.members[index].tell(&Order::Pause).await;
            }
        }
        for member in &mut self.members {
            member.tell(&Order::Close { keys }).await;
        }
        let mut unanswered = 0;
        for member in &mut self.members {
            match member.word().await? {
                Some(Word::Done { unanswered: of }) => unanswered += of,
                other => bail!("worker {} said {other:?} at the close", member.setup.worker),
            }
        }
        Ok((std::mem::take(&mut self.files), unanswered))
    }

    pub(crate) async fn end(mut self) {
        for member in &mut self.members {
            member.kill().await;
        }
    }
}

fn keys_of(keys: &mut u64, word: Option<Word>) -> Option<()> {
    let Some(Word::Paused { keys: of }) = word else {
        return None;
    };
    *keys = of.max(*keys);
    Some(())
}

impl WorkerHandle {
    /// Sends a command. A dead worker ignores it.
    async fn tell(&mut self, order: &Order) {
        match &mut self.body {
            Body::Process { stdin, .. } => {
                let line = serde_json::to_string(order).expect("plain orders") + "\n";
                let _ = stdin.write_all(line.as_bytes()).await;
            }
            Body::Thread { orders, .. } => {
                let _ = orders.send(order.clone());
            }
        }
    }

    /// The next report of the worker; `None` if it is dead.
    async fn word(&mut self) -> Result<Option<Word>> {
        let word = tokio::time::timeout(PATIENCE, self.words.recv()).await;
        word.with_context(|| format!("worker {} says nothing", self.setup.worker))
    }

    async fn kill(&mut self) {
        match &mut self.body {
            Body::Process { child, .. } => {
                // An error means that it is already gone.
                let _ = child.kill().await;
            }
            Body::Thread { end, .. } => {
                if let Some(end) = end.take() {
                    let _ = end.send(());
                }
            }
        }
    }

    fn signal(&self, signal: Signal) {
        if let Body::Process { child, .. } = &self.body
            && let Some(pid) = child.id().and_then(|id| Pid::from_raw(id.cast_signed()))
        {
            let _ = kill_process(pid, signal);
        }
    }
}

fn process(mut command: Command, setup: &Setup, say: UnboundedSender<Word>) -> Result<Body> {
    command.arg("worker").args(["--url", &setup.url]);
    let numbers = [
        ("--worker", setup.worker),
        ("--workers", setup.workers),
        ("--incarnation", setup.incarnation.into()),
        ("--seed", setup.seed),
        ("--tasks", setup.tasks),
        ("--lease-ms", setup.lease_ms),
    ];
    for (name, number) in numbers {
        command.args([name, &number.to_string()]);
    }
    if setup.tiny {
        command.arg("--tiny");
    }
    if setup.restless {
        command.arg("--restless");
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    if std::env::var_os("SEMEL_FAULTS_LOG").is_none() {
        command.stderr(Stdio::null());
    }
    let mut child = command.spawn().context("a worker can't be started")?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let (stdin, stdout) = (stdin.context("no stdin")?, stdout.context("no stdout")?);
    tokio::spawn(async move {
        let mut lines = BufReader::new(stdout).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if let Ok(word) = serde_json::from_str(&line) {
                let _ = say.send(word);
            }
        }
    });
    Ok(Body::Process {
        child: Box::new(child),
        stdin,
    })
}

/// A worker on a thread with its own runtime. It ends like a process: everything that runs is
/// dropped.
fn thread(setup: Setup, store: Arc<dyn StoreAdmin>, say: UnboundedSender<Word>) -> Body {
    let (orders, to_do) = unbounded_channel();
    let (end, ended) = oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .expect("a runtime");
        let say = move |word| {
            let _ = say.send(word);
        };
        runtime.block_on(async move {
            tokio::select! {
                () = serve(setup, Source::Given(store), to_do, say) => {}
                _ = ended => {}
            }
        });
        runtime.shutdown_background();
    });
    Body::Thread {
        orders,
        end: Some(end),
    }
}
