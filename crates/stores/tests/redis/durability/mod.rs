//! I9: what was acknowledged at a level of durability survives every fault up to that level. And
//! what is not promised, shown to be not so.

mod disk;
mod failover;
mod levels;

use std::path::{Path, PathBuf};

use semel_conformance::Scene;
use semel_core::store::Store as _;
use semel_core::{Claim, Claimed, Grant, Settled, Settlement};
use semel_testkit::private::RedisServer;
use semel_testkit::proxy::{Proxy, Way};

use crate::support::{clock, complete, open, valkey_program};

/// A master and a replica, and the way between them.
struct Pair {
    master: RedisServer,
    replica: RedisServer,
    way: Proxy,
}

impl Pair {
    async fn start(program: &Path) -> Self {
        let delay = ["--repl-diskless-sync-delay", "0"];
        let master = RedisServer::start_as(program, "", &delay).await;
        let way = Proxy::to(master.address(), clock()).await.expect("a port");
        let port = way.address().port().to_string();
        let follow = ["--replicaof", "127.0.0.1", &port];
        let replica = RedisServer::start_as(program, "", &follow).await;
        let replication = ["INFO", "replication"];
        master.until(&replication, "state=online").await;
        // What is online is given nothing before its first word, up to a second later.
        let _ = master.ask(&["SET", "first", "1"]);
        replica.until(&["GET", "first"], "1").await;
        Self {
            master,
            replica,
            way,
        }
    }

    /// From now on the replica receives nothing; what is in flight stays there.
    fn cut_off(&self, cut_off: bool) {
        self.way.hold(Way::Reply, cut_off);
    }

    /// The master dies, and the replica takes its place with what it has received.
    fn fail_over(&mut self) {
        self.master.kill();
        let _ = self.replica.ask(&["REPLICAOF", "NO", "ONE"]);
    }
}

async fn redis_and_valkey() -> [PathBuf; 2] {
    [PathBuf::from("redis-server"), valkey_program().await]
}

/// What a caller was told.
#[derive(Default)]
struct Told {
    settled: Vec<(Claim, String)>,
    won: Vec<(Claim, Grant)>,
}

impl Told {
    fn add(&mut self, other: Self) {
        self.settled.extend(other.settled);
        self.won.extend(other.won);
    }
}

/// Claims and settles `count` keys, and claims as many again; gives what was acknowledged.
async fn work(scene: &Scene, count: usize) -> Told {
    let mut told = Told::default();
    for number in 0..count {
        let (one, two) = (
            scene.fresh().expect("a claim"),
            scene.fresh().expect("a claim"),
        );
        if let Ok(Claimed::Won(lease)) = scene.store().claim(&one).await {
            let body = number.to_string();
            if let Ok(Settled::Done) = scene.store().settle(&lease, &complete(&body)).await {
                told.settled.push((one, body));
            }
        }
        if let Ok(Claimed::Won(lease)) = scene.store().claim(&two).await {
            told.won.push((two, lease));
        }
    }
    told
}

/// How many of the acknowledged are gone.
async fn lost(told: &Told, at: &str) -> usize {
    let store = open(at).await;
    let mut lost = 0;
    for (claim, body) in &told.settled {
        let found = store.read(&claim.identity).await.expect("a server");
        let answer = found.and_then(|record| record.answer);
        lost += usize::from(answer.map(Settlement::Complete) != Some(complete(body)));
    }
    for (claim, lease) in &told.won {
        let found = store.read(&claim.identity).await.expect("a server");
        lost +=
            usize::from(!found.is_some_and(|record| record.is_owned_by(lease.fence, lease.token)));
    }
    lost
}
