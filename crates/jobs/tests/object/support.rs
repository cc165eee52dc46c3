//! What these tests share: a folder of each test's own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use semel_core::KeyRules;
use semel_jobs::object::ObjectQueue;
use semel_jobs::{Error, JobId, JobLease, Jobs, LeaseOptions, QueueConfig, SubmitOutcome};
use semel_stores::object::ObjectStore;
use semel_testkit::http_proxy::HttpProxy;
use serde_json::Value;

pub(crate) struct Bench {
    pub(crate) queue: ObjectQueue,
    pub(crate) jobs: Jobs,
    pub(crate) store: ObjectStore,
    pub(crate) url: String,
}

pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: start the servers with `cargo xtask services up`")
    })
}

/// A folder of the shared bucket that nobody else uses.
pub(crate) fn own_url() -> String {
    let chance = semel::tokio_env().entropy.next_u128();
    variable("SEMEL_TEST_S3_URL").replace('?', &format!("/jobs-{chance:032x}?"))
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::at(own_url()).await
    }

    pub(crate) async fn at(url: String) -> Self {
        Self::open(url, "").await
    }

    async fn open(url: String, environment: &str) -> Self {
        let env = semel::tokio_env();
        let store = ObjectStore::open(&url, Arc::clone(&env.clock)).await;
        let store = store.expect("a bucket that is fit");
        let config = QueueConfig::default();
        let queue = ObjectQueue::new(&store, &env, environment, config);
        let jobs = Jobs::new(Arc::new(queue.clone()), env.clock, KeyRules::default());
        Self {
            queue,
            jobs,
            store,
            url,
        }
    }

    pub(crate) async fn another(&self) -> Self {
        Self::at(self.url.clone()).await
    }

    /// The same folder, in another environment.
    pub(crate) async fn in_environment(&self, name: &str) -> Self {
        Self::open(self.url.clone(), name).await
    }

    /// The same folder, by a way that goes wrong when it is told to.
    pub(crate) async fn behind_a_proxy(&self) -> (HttpProxy, Self) {
        let endpoint = variable("SEMEL_TEST_S3_ENDPOINT");
        let server = endpoint.replace("http://", "").parse::<SocketAddr>();
        let proxy = HttpProxy::to(server.expect("an address")).await;
        let proxy = proxy.expect("a port");
        let through = format!("http://{}", proxy.address());
        let bench = Self::at(self.url.replace(&endpoint, &through)).await;
        (proxy, bench)
    }

    pub(crate) async fn try_submit(&self, key: &str, amount: u64) -> Result<SubmitOutcome, Error> {
        let input = serde_json::json!({"order": key, "amount": amount});
        self.jobs
            .submit("charge_customer", &input)
            .idempotency_key(key)
            .await
    }

    pub(crate) async fn submit(&self, key: &str, amount: u64) -> SubmitOutcome {
        self.try_submit(key, amount).await.expect("an answer")
    }

    pub(crate) async fn take(&self, span: Duration) -> Option<JobLease> {
        let mut ask = LeaseOptions::new("w-1", &["charge_customer"]);
        ask.span = span;
        self.jobs
            .queue()
            .lease(&ask)
            .await
            .expect("an answer")
            .pop()
    }

    /// The record of a key, as it lies there.
    pub(crate) async fn record(&self, key: &str) -> Option<Value> {
        let path = self.queue.record_path("", "charge_customer", key);
        let (bytes, _) = self.store.get(&path).await.expect("an answer")?;
        Some(serde_json::from_slice(&bytes).expect("JSON"))
    }

    /// Changes the record of a key behind the queue's back.
    pub(crate) async fn change_record(&self, key: &str, change: impl FnOnce(&mut Value)) {
        let path = self.queue.record_path("", "charge_customer", key);
        self.change(&path, change).await;
    }

    /// As if the time of a key were over.
    pub(crate) async fn expire(&self, key: &str) {
        let old = "2026-01-01T00:00:00Z";
        self.change_record(key, |record| record["expires_at"] = old.into())
            .await;
    }

    /// Takes the next task and completes it.
    pub(crate) async fn work_off(&self, span: Duration) {
        let leased = self.take(span).await.expect("a task");
        let queue = self.jobs.queue();
        let done = queue.complete(leased.id, leased.token, "1".into()).await;
        done.expect("it is the worker's");
    }

    /// The same with a task.
    pub(crate) async fn change_task(&self, id: JobId, change: impl FnOnce(&mut Value)) {
        self.change(&self.queue.task_path("", id), change).await;
    }

    async fn change(&self, path: &object_store::path::Path, change: impl FnOnce(&mut Value)) {
        let found = self.store.get(path).await.expect("an answer");
        let (bytes, version) = found.expect("a file");
        let mut file: Value = serde_json::from_slice(&bytes).expect("JSON");
        change(&mut file);
        let bytes = file.to_string().into();
        let written = self.store.put(path, bytes, Some(&version)).await;
        assert!(written.expect("an answer").is_some());
    }

    /// All tasks, by their paths within the folder.
    pub(crate) async fn tasks(&self) -> Vec<String> {
        let folder = self.store.folder();
        let names = self
            .store
            .names(&folder.clone().join("tasks"), None, 10_000)
            .await;
        let start = format!("{folder}/");
        let short = |path: &object_store::path::Path| path.as_ref().replace(&start, "");
        names.expect("an answer").iter().map(short).collect()
    }
}
