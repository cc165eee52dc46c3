//! A proxy in front, two sidecars behind it that share a store, and an instance of the service
//! behind each.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use rustix::process::{Pid, Signal, kill_process};
use semel_httpclient::{Answer, Pool, try_send};
use semel_testkit::private::{Private, new_folder};
use semel_testkit::proxy::Proxy;
use semel_tests::{semel, semel_command};
use serde_json::Value;
use tokio::net::TcpStream;

use crate::fronts::{Front, Running};
use crate::programs::{answers, local, redis_url, until};
use crate::service::{EFFECT, Service};

/// One name for the service, whichever way leads to it.
pub(crate) const HOST: &str = "payments.test";

/// A sidecar.
pub(crate) struct Sidecar {
    pub(crate) address: SocketAddr,
    admin: SocketAddr,
    folder: PathBuf,
    program: PathBuf,
    process: Private,
}

impl Sidecar {
    async fn start(program: PathBuf, service: SocketAddr, store: &str, environment: &str) -> Self {
        let (folder, address, admin) = (new_folder("behind"), local(), local());
        let settings = format!(
            "environment = \"{environment}\"\n\
             [listener]\naddress = \"{address}\"\ntrust_forwarded = true\n\
             [admin]\naddress = \"{admin}\"\nopen = true\n\
             [upstream]\nurls = [\"http://{service}\"]\n\
             [store]\nurl = \"{store}\"\n\
             [engine]\nbreaker_first_try = \"100ms\"\nbreaker_open_for = \"200ms\"\n\
             [[routes]]\npath = \"/busy\"\non_busy = \"refuse\"\n\
             [[routes]]\npath = \"/wait\"\non_busy = \"wait\"\n\
             [[routes]]\npath = \"/events\"\nstreams = true\n"
        );
        std::fs::write(folder.join("semel.toml"), settings).expect("a folder of our own");
        let process = run(&program, &folder);
        let mut sidecar = Self {
            address,
            admin,
            folder,
            program,
            process,
        };
        sidecar.ready().await;
        sidecar
    }

    async fn ready(&mut self) {
        let url = format!("http://{}/_semel/readyz", self.address);
        answers(&mut self.process, &url).await;
    }

    /// SIGTERM. Returns once it takes no more connections.
    pub(crate) async fn terminate(&self) {
        let id = i32::try_from(self.process.id()).ok();
        let id = id.and_then(Pid::from_raw).expect("a process");
        kill_process(id, Signal::TERM).expect("it is ours");
        until("it takes no more connections", async || {
            TcpStream::connect(self.address).await.is_err()
        })
        .await;
    }

    pub(crate) async fn ended(&mut self) {
        until("it ends", async || !self.process.runs()).await;
    }

    pub(crate) async fn start_again(&mut self) {
        self.process = run(&self.program, &self.folder);
        self.ready().await;
    }

    /// How many requests wait in it for another with their key.
    async fn waiting(&self) -> u64 {
        let client = Pool::new(Duration::from_secs(5));
        let said = client.get(&format!("http://{}/readyz", self.admin)).await;
        let said: Value = said.map_or(Value::Null, |answer| answer.json());
        said["waiting"].as_u64().unwrap_or(0)
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        self.process.kill();
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

fn run(program: &PathBuf, folder: &std::path::Path) -> Private {
    let mut command = semel_command(program);
    command
        .args(["serve", "--config"])
        .arg(folder.join("semel.toml"));
    let log = std::fs::File::create(folder.join("log")).expect("a folder of our own");
    Private::saying_to(&mut command, log)
}

/// All of it.
pub(crate) struct Rig {
    pub(crate) front: &'static Front,
    pub(crate) way: SocketAddr,
    pub(crate) sidecars: [Sidecar; 2],
    pub(crate) service: Service,
    /// The way of the sidecars to their store.
    pub(crate) store: Proxy,
    _running: Running,
}

impl Rig {
    pub(crate) async fn start(front: &'static Front) -> Self {
        let service = Service::start().await;
        let (url, clock) = (redis_url(), semel::tokio_env().clock);
        let redis = url.strip_prefix("redis://").expect("a URL of Redis");
        let redis = redis.split('/').next().unwrap_or_default();
        let redis = redis.parse().expect("an address");
        let store = Proxy::to(redis, clock).await.expect("a port");
        let url = format!("redis://{}", store.address());
        let environment = format!("front-{}-{}", front.name, local().port());
        let start = |instance| Sidecar::start(semel(), instance, &url, &environment);
        let [one, two] = service.instances;
        let sidecars = [start(one).await, start(two).await];
        let running = front
            .start([sidecars[0].address, sidecars[1].address])
            .await;
        Self {
            front,
            way: running.address,
            sidecars,
            service,
            store,
            _running: running,
        }
    }

    /// A request through the proxy.
    pub(crate) fn call(&self, path: &str, effect: &str) -> Call {
        Call {
            way: self.way,
            path: path.to_owned(),
            effect: effect.to_owned(),
            key: Some(format!("key-{effect}")),
            body: Bytes::from_static(b"{\"amount\": 500}"),
            headers: Vec::new(),
        }
    }

    /// Waits until so many requests wait in the sidecars for others with their key.
    pub(crate) async fn waiting(&self, count: u64) {
        until("a duplicate waits", async || {
            let [one, two] = &self.sidecars;
            one.waiting().await + two.waiting().await == count
        })
        .await;
    }
}

/// A request that can be sent several times.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) way: SocketAddr,
    path: String,
    pub(crate) effect: String,
    key: Option<String>,
    body: Bytes,
    headers: Vec<(&'static str, &'static str)>,
}

impl Call {
    pub(crate) fn without_key(mut self) -> Self {
        self.key = None;
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn headers(mut self, headers: &[(&'static str, &'static str)]) -> Self {
        self.headers = headers.to_vec();
        self
    }

    pub(crate) fn through(mut self, way: SocketAddr) -> Self {
        self.way = way;
        self
    }

    pub(crate) fn request(&self, method: &str) -> Request<Full<Bytes>> {
        let url = format!("http://{}{}", self.way, self.path);
        let mut request = Request::builder().method(method).uri(url);
        request = request.header("host", HOST).header(EFFECT, &self.effect);
        if !self.headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/json");
        }
        if let Some(key) = &self.key {
            request = request.header("idempotency-key", key);
        }
        for (name, value) in &self.headers {
            request = request.header(*name, *value);
        }
        request.body(Full::from(self.body.clone())).expect("a URL")
    }

    pub(crate) async fn try_post(&self) -> Result<Answer, String> {
        let answer = try_send(self.request("POST")).await;
        answer.map_err(|error| error.to_string())
    }

    pub(crate) async fn post(&self) -> Answer {
        let answer = self.try_post().await;
        answer.unwrap_or_else(|error| panic!("no answer: {error}"))
    }

    /// Sends it on a task, which hangs up when it is aborted.
    pub(crate) fn spawn(&self) -> tokio::task::JoinHandle<Result<Answer, String>> {
        let call = self.clone();
        tokio::spawn(async move { call.try_post().await })
    }
}
