//! The sidecars: real processes, killed, paused and started again.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use semel::core::clock::{Clock, Tick};
use semel_httpclient::Pool;
use semel_testkit::private::{free_port, new_folder};
use semel_tests::{semel, semel_command};
use serde_json::Value;

use crate::check::Claim;

/// How long a sidecar may be silent before others count it as gone.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// One clock for all that is seen: times of two can't be compared.
static CLOCK: LazyLock<Arc<dyn Clock>> = LazyLock::new(|| semel::tokio_env().clock);

pub(crate) fn now() -> Tick {
    CLOCK.now()
}

pub(crate) async fn pause_for(span: Duration) {
    CLOCK.sleep(span).await;
}

/// One sidecar.
pub(crate) struct Sidecar {
    program: PathBuf,
    folder: PathBuf,
    pub(crate) address: SocketAddr,
    admin: SocketAddr,
    child: Child,
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

impl Sidecar {
    async fn start(store: &str, crash: &str, upstream: SocketAddr) -> Self {
        let (program, folder) = (semel(), new_folder("sidecar"));
        let (address, admin) = (local(free_port()), local(free_port()));
        let settings = format!(
            "environment = \"chaos\"\n\
             [store]\nurl = \"{store}\"\n\
             [listener]\naddress = \"{address}\"\n\
             [admin]\naddress = \"{admin}\"\nopen = true\n\
             [audit]\nfile = \"{0}/audit.jsonl\"\n\
             [upstream]\nurls = [\"http://{upstream}\"]\n\
             [defaults]\nscope = \"charges\"\ncrash = \"{crash}\"\nlease = \"{1}s\"\n",
            folder.display(),
            LEASE.as_secs(),
        );
        std::fs::write(folder.join("semel.toml"), settings).expect("a folder of our own");
        let child = run(&program, &folder);
        let mut sidecar = Self {
            program,
            folder,
            address,
            admin,
            child,
        };
        sidecar.ready().await;
        sidecar
    }

    async fn ready(&mut self) {
        let client = Pool::new(Duration::from_secs(5));
        let url = format!("http://{}/_semel/readyz", self.address);
        for _ in 0..1000 {
            if client
                .get(&url)
                .await
                .is_ok_and(|reply| reply.status == 200)
            {
                return;
            }
            let ended = self.child.try_wait().expect("a process of ours");
            assert!(ended.is_none(), "it ended at its start: {}", self.log());
            pause_for(Duration::from_millis(20)).await;
        }
        panic!("it is never ready: {}", self.log());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    fn tell(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a process of ours");
    }

    pub(crate) fn pause(&self) {
        self.tell(Signal::STOP);
    }

    pub(crate) fn resume(&self) {
        self.tell(Signal::CONT);
    }

    /// SIGKILL: at once, and without a word to it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a process of ours");
        self.child.wait().expect("a process of ours");
    }

    pub(crate) async fn restart(&mut self) {
        self.child = run(&self.program, &self.folder);
        self.ready().await;
    }

    /// Told to end, it ends well, and has written its audit trail to the end.
    fn end(&mut self) {
        self.tell(Signal::TERM);
        let status = self.child.wait().expect("a process of ours");
        assert!(status.success(), "{status}: {}", self.log());
    }

    /// The records that the admin API lists, as key (its hint), id and state.
    pub(crate) async fn records(&self, state: &str) -> Vec<(String, String, String)> {
        let client = Pool::new(Duration::from_secs(30));
        let query = format!("environment=chaos&scope=charges&limit=1000{state}");
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let url = format!("http://{}/admin/v1/records?{query}{cursor}", self.admin);
            let reply = client.get(&url).await.expect("the admin API answers");
            assert_eq!(reply.status, 200, "{reply:?}");
            let page = reply.json();
            for record in page["records"].as_array().expect("a list") {
                let text = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
                found.push((text("key_hint"), text("id"), text("state")));
            }
            let Some(next) = page["next"].as_str() else {
                return found;
            };
            cursor = format!("&cursor={next}");
        }
    }

    /// The keys, by their hints, that `semel keys list --in-doubt` shows to an operator.
    pub(crate) fn in_doubt(&self) -> Vec<String> {
        let mut command = semel_command(&self.program);
        command.args(["keys", "list", "--in-doubt", "--json", "--limit", "100000"]);
        command.args(["--scope", "charges", "--admin"]);
        command.arg(format!("http://{}", self.admin));
        let output = command.stdout(Stdio::piped()).output();
        let output = output.expect("semel runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(said["complete"], true);
        let records = said["records"].as_array().expect("a list");
        let hint = |record: &Value| record["key_hint"].as_str().unwrap_or_default().to_owned();
        records.iter().map(hint).collect()
    }

    /// All that it says to people and programs: log lines, audit trail, metrics.
    pub(crate) async fn told(&self) -> String {
        let client = Pool::new(Duration::from_secs(30));
        let metrics = client.get(&format!("http://{}/metrics", self.admin)).await;
        let metrics = metrics.expect("the admin listener answers");
        assert_eq!(metrics.status, 200, "{metrics:?}");
        let trail = std::fs::read_to_string(self.folder.join("audit.jsonl")).expect("a trail");
        format!("{}\n{trail}\n{}", self.log(), metrics.text())
    }

    /// The takeovers in its audit trail.
    fn takeovers(&self, via: usize) -> Vec<Claim> {
        let trail = std::fs::read_to_string(self.folder.join("audit.jsonl")).expect("a trail");
        let entries = trail
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let takeovers = entries.filter(|entry: &Value| entry["type"] == "idempotency.takeover");
        takeovers
            .map(|entry| Claim {
                id: entry["id"].as_str().unwrap_or_default().to_owned(),
                attempt: entry["detail"]["attempt"].as_u64().unwrap_or(0),
                fence: entry["detail"]["fence"].as_u64().unwrap_or(0),
                via,
            })
            .collect()
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        // An error means that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

fn run(program: &PathBuf, folder: &std::path::Path) -> Child {
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join("log"))
        .expect("a folder of our own");
    let mut command: Command = semel_command(program);
    command
        .arg("serve")
        .arg("--config")
        .arg(folder.join("semel.toml"));
    let out = log.try_clone().expect("a file of our own");
    command
        .stdout(out)
        .stderr(log)
        .spawn()
        .expect("semel starts")
}

/// Three sidecars.
pub(crate) struct Fleet(pub(crate) Vec<Sidecar>);

impl Fleet {
    pub(crate) async fn start(stores: [&str; 3], crash: &str, doors: [SocketAddr; 3]) -> Self {
        let mut sidecars = Vec::new();
        for (store, door) in stores.into_iter().zip(doors) {
            sidecars.push(Sidecar::start(store, crash, door).await);
        }
        Self(sidecars)
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(|sidecar| sidecar.address).collect()
    }

    /// Ends them; → all takeovers that their audit trails tell of.
    pub(crate) fn end(&mut self) -> Vec<Claim> {
        let ended = self.0.iter_mut().enumerate();
        ended
            .flat_map(|(via, sidecar)| {
                sidecar.end();
                sidecar.takeovers(via)
            })
            .collect()
    }
}
