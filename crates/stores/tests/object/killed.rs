//! A server that dies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use semel_core::{Claim, Claimed, Settled, Store as _};
use semel_stores::object::ObjectStore;
use semel_testkit::private::SeaweedServer;

use super::support::{clock, complete, fresh, open, replayed};

/// Opens a store as soon as the server can keep something.
async fn store_of(server: &mut SeaweedServer) -> ObjectStore {
    let url = SeaweedServer::url_at(server.address());
    for _ in 0..300 {
        assert!(server.runs(), "the server ended at its start");
        if let Ok(store) = ObjectStore::open(&url, clock()).await {
            return store;
        }
        clock().sleep(Duration::from_millis(200)).await;
    }
    open(&url).await
}

/// Runs operations until told to stop; gives those that were acknowledged.
async fn load(store: ObjectStore, stop: Arc<AtomicBool>) -> Vec<Claim> {
    let mut acknowledged = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let claim = fresh();
        if let Ok(Claimed::Won(lease)) = store.claim(&claim).await
            && let Ok(Settled::Done) = store.settle(&lease, &complete("done")).await
        {
            acknowledged.push(claim);
        }
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_under_load_loses_nothing_that_was_acknowledged() {
    let mut server = SeaweedServer::start();
    let store = store_of(&mut server).await;
    let stop = Arc::new(AtomicBool::new(false));
    let callers = [(); 4].map(|()| tokio::spawn(load(store.clone(), Arc::clone(&stop))));
    clock().sleep(Duration::from_secs(6)).await;
    server.kill();
    stop.store(true, Ordering::SeqCst);
    let mut acknowledged = Vec::new();
    for caller in callers {
        acknowledged.extend(caller.await.expect("no panic"));
    }
    assert!(acknowledged.len() > 20, "{} only", acknowledged.len());
    server.restart();
    let store = store_of(&mut server).await;
    for claim in &acknowledged {
        let answer = replayed(&store, claim).await;
        assert_eq!(Some(&answer), complete("done").answer());
    }
    println!("{} acknowledged, all there", acknowledged.len());
}
