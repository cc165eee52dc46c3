//! What gets lost: a client, a connection between proxy and sidecar, the store.

use std::sync::Arc;

use semel_httpclient::Answer;
use semel_testkit::proxy::Proxy;
use tokio::task::JoinHandle;

use crate::programs::until;
use crate::rig::{Call, Rig};

/// The effect of a client that hung up is finished once, and a retry gets its answer.
pub(super) async fn hang_up(rig: &Rig) {
    let call = rig.call("/charges", "hang-up");
    rig.service.close_gate("hang-up");
    let first = call.spawn();
    let begun = rig.service.until("hang-up", |effect| effect.begun == 1);
    begun.await;
    first.abort();
    let _ = first.await;
    rig.service.open_gate("hang-up");
    let retry = call.post().await;
    assert_eq!((retry.status.as_u16(), retry.is_replay()), (201, true));
    let effect = rig.service.effect("hang-up");
    assert_eq!((effect.begun, effect.ended), (1, 1));
}

/// A proxy that loses the connection on which it has sent a request doesn't send it again: without
/// a key that would be a second effect. With a key, a retry by the client gets the answer of the
/// first.
pub(super) async fn no_resending(rig: &Rig) {
    let clock = semel::tokio_env().clock;
    let mut doors = Vec::new();
    for sidecar in &rig.sidecars {
        let door = Proxy::to(sidecar.address, Arc::clone(&clock)).await;
        doors.push(door.expect("a port"));
    }
    let addresses = [doors[0].address(), doors[1].address()];
    let running = rig.front.start(addresses).await;

    let without = rig.call("/charges", "lost-without-a-key").without_key();
    let with = rig.call("/charges", "lost-with-a-key");
    for call in [without, with.clone()] {
        let (effect, call) = (call.effect.clone(), call.through(running.address));
        rig.service.close_gate(&effect);
        let sent = begun(rig, &call).await;
        for door in &doors {
            door.cut_all();
        }
        let answer = sent.await.expect("a task").expect("an answer");
        assert_eq!(answer.status, rig.front.lost, "{effect}: {answer:?}");
        rig.service.open_gate(&effect);
        // Without a key the sidecar gives the request up, too, so its effect need not end.
        assert_eq!(rig.service.effect(&effect).begun, 1, "{effect}");
    }
    let retry = with.post().await;
    assert_eq!((retry.status.as_u16(), retry.is_replay()), (201, true));
    let effect = rig.service.effect(&with.effect);
    assert_eq!((effect.begun, effect.ended), (1, 1));
}

/// Sends a request until it has reached the service: a proxy that has just lost its connections may
/// leave the sidecars alone for a while.
async fn begun(rig: &Rig, call: &Call) -> JoinHandle<Result<Answer, String>> {
    let mut running = None;
    until("the service is reached", async || {
        let mut sent = call.spawn();
        let reached = rig.service.until(&call.effect, |effect| effect.begun == 1);
        tokio::select! {
            () = reached => {
                running = Some(sent);
                true
            }
            _ = &mut sent => false,
        }
    })
    .await;
    running.expect("it has begun")
}

/// Without its store a sidecar starts nothing that has a key, and says so itself. Requests without
/// a key pass.
pub(super) async fn store_down(rig: &mut Rig) {
    rig.store.silence().await;
    let call = rig.call("/charges", "store");
    for _ in 0..4 {
        let refused = call.post().await;
        let expected = (503, "idempotency_store_unavailable".to_owned(), true);
        assert_eq!(refused.problem_and_retry(), expected);
    }
    assert_eq!(rig.service.effect("store").begun, 0);
    let without = rig.call("/charges", "no-store").without_key();
    for _ in 0..4 {
        assert_eq!(without.post().await.status, 201);
    }
    rig.store.refuse(false);
    // Each sidecar tries for itself when the store is there again.
    until("the store is there again", async || {
        call.post().await.is_replay()
    })
    .await;
    assert_eq!(rig.service.effect("store").begun, 1);
}
