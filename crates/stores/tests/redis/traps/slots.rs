//! Slots that move from server to server under load.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use semel_conformance::Scene;
use semel_core::Claimed;
use semel_testkit::private::{RedisServer, free_port};

use crate::links::documented_user;
use crate::support::{Server, again, complete, key_of};

/// Six servers of one's own: three masters, a replica for each.
struct Cluster {
    nodes: Vec<RedisServer>,
}

impl Cluster {
    async fn start() -> Self {
        let mut nodes = Vec::new();
        for _ in 0..6 {
            let bus = free_port().to_string();
            let settings = [
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                &bus,
                // So long that a busy machine makes no replica a master: here only slots move.
                "--cluster-node-timeout",
                "15000",
            ];
            nodes.push(RedisServer::start(&settings).await);
        }
        let mut create = Command::new("redis-cli");
        create.args([
            "--cluster",
            "create",
            "--cluster-replicas",
            "1",
            "--cluster-yes",
        ]);
        create.args(
            nodes
                .iter()
                .map(|node| format!("127.0.0.1:{}", node.port())),
        );
        let made = create.output().expect("redis-cli");
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stdout)
        );
        for node in &nodes {
            node.until(&["CLUSTER", "INFO"], "cluster_state:ok").await;
        }
        Self { nodes }
    }

    /// With the documented user, and what it needs in a cluster.
    fn url(&self) -> String {
        for node in &self.nodes {
            let mut user = documented_user();
            user.extend(["+cluster|slots", "+asking"]);
            let _ = node.ask(&user);
        }
        let hosts: Vec<String> = self
            .nodes
            .iter()
            .map(|node| format!("127.0.0.1:{}", node.port()))
            .collect();
        format!("redis+cluster://semel:secret@{}", hosts.join(","))
    }

    fn masters(&self) -> &[RedisServer] {
        // `--cluster create` takes the first ones.
        &self.nodes[..3]
    }

    fn slot(&self, key: &str) -> String {
        self.nodes[0].ask(&["CLUSTER", "KEYSLOT", key])
    }

    /// The server that has a key, and another.
    fn owner_and_other(&self, key: &str) -> (&RedisServer, &RedisServer) {
        let owns = |node: &&RedisServer| node.try_ask(&["EXISTS", key]).is_ok();
        let owner = self.masters().iter().find(owns).expect("a master has it");
        let other = self
            .masters()
            .iter()
            .find(|node| !owns(node))
            .expect("another");
        (owner, other)
    }
}

/// A slot in flight: begun, and ended when the test says so.
struct Move<'a> {
    cluster: &'a Cluster,
    slot: String,
    from: &'a RedisServer,
    to: &'a RedisServer,
}

impl<'a> Move<'a> {
    fn begin(cluster: &'a Cluster, key: &str) -> Self {
        let (from, to) = cluster.owner_and_other(key);
        let slot = cluster.slot(key);
        let (from_id, to_id) = (from.ask(&["CLUSTER", "MYID"]), to.ask(&["CLUSTER", "MYID"]));
        let _ = to.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
        let _ = from.ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
        Self {
            cluster,
            slot,
            from,
            to,
        }
    }

    /// Moves what is there by now.
    fn carry(&self) {
        let port = self.to.port().to_string();
        loop {
            let keys = self
                .from
                .ask(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "100"]);
            if keys.is_empty() {
                return;
            }
            for key in keys.lines() {
                // Gone meanwhile is as good.
                let _ = self
                    .from
                    .try_ask(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
            }
        }
    }

    fn end(self) {
        self.carry();
        let id = self.to.ask(&["CLUSTER", "MYID"]);
        for node in [self.to, self.from]
            .into_iter()
            .chain(self.cluster.masters())
        {
            let _ = node.ask(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &id]);
        }
    }
}

/// Keys are claimed, settled and replayed without a break while a slot is half here and half there,
/// and afterwards; by the documented user.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slots_move_under_load_and_nobody_notices() {
    let cluster = Cluster::start().await;
    let subject = Arc::new(Server::at(cluster.url()).await);
    let scene = Scene::new(subject);
    let (stop, count) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU32::new(0)),
    );
    let load: Vec<_> = (0..4)
        .map(|_| {
            tokio::spawn(keep_going(
                scene.clone(),
                Arc::clone(&stop),
                Arc::clone(&count),
            ))
        })
        .collect();
    // Twenty rounds, and more if the load hardly gets its turn.
    for round in 0..400 {
        if round >= 20 && count.load(Ordering::SeqCst) > 100 {
            break;
        }
        let (running, new) = (scene.fresh().unwrap(), scene.fresh().unwrap());
        let lease = scene.won(&running).await.unwrap();
        let step = Move::begin(&cluster, &key_of(&running.identity));
        // Still here.
        scene.held(&lease, None).await.unwrap();
        step.carry();
        // Over there, while the slot is still this server's: ASK.
        scene.held(&lease, Some(b"half")).await.unwrap();
        scene.busy(&again(&running)).await.unwrap();
        let body = format!("round {round}");
        scene.settled(&lease, &complete(&body)).await.unwrap();
        scene.replayed(&again(&running)).await.unwrap();
        scene.won(&new).await.unwrap();
        step.end();
        // Over there for good: MOVED.
        let replay = scene.replayed(&again(&running)).await.unwrap();
        assert_eq!(
            semel_core::Settlement::Complete(replay.answer),
            complete(&body)
        );
        scene
            .from_another_process()
            .replayed(&again(&running))
            .await
            .unwrap();
    }
    stop.store(true, Ordering::SeqCst);
    for worker in load {
        worker.await.unwrap();
    }
    assert!(count.load(Ordering::SeqCst) > 100, "hardly any load");
}

/// One key after the other; every call has to answer.
async fn keep_going(scene: Scene, stop: Arc<AtomicBool>, count: Arc<AtomicU32>) {
    while !stop.load(Ordering::SeqCst) {
        let claim = scene.fresh().expect("a claim");
        let Claimed::Won(lease) = scene.claim(&claim).await.expect("an answer") else {
            panic!("a fresh key is won");
        };
        scene
            .settled(&lease, &complete("load"))
            .await
            .expect("an answer");
        scene.replayed(&again(&claim)).await.expect("an answer");
        count.fetch_add(1, Ordering::SeqCst);
    }
}
