//! The same key again: replayed, refused with another payload, made to wait, or told that it is
//! busy.

use crate::rig::Rig;

/// The answer is the same, byte for byte, whichever sidecar the proxy chooses.
pub(super) async fn replay(rig: &Rig) {
    let call = rig.call("/charges", "replay");
    let first = call.post().await;
    assert_eq!(first.status, 201, "{first:?}");
    assert!(!first.is_replay(), "{first:?}");
    for _ in 0..4 {
        let again = call.post().await;
        assert_eq!((again.status, &again.body), (first.status, &first.body));
        assert!(again.is_replay(), "{again:?}");
    }
    assert_eq!(rig.service.effect("replay").ended, 1);
}

/// Another payload is refused with Semel's own problem document.
pub(super) async fn conflict(rig: &Rig) {
    let call = rig.call("/charges", "conflict");
    assert_eq!(call.post().await.status, 201);
    for _ in 0..2 {
        let other = call.clone().body("{\"amount\": 900}").post().await;
        let expected = (422, "idempotency_conflict".to_owned(), false);
        assert_eq!(other.problem_and_retry(), expected);
    }
    assert_eq!(rig.service.effect("conflict").ended, 1);
}

/// A duplicate of a running request gets the answer of that request.
pub(super) async fn wait(rig: &Rig) {
    let call = rig.call("/wait", "wait");
    rig.service.close_gate("wait");
    let first = call.spawn();
    rig.service.until("wait", |effect| effect.begun == 1).await;
    let duplicates = [call.spawn(), call.spawn()];
    rig.waiting(2).await;
    rig.service.open_gate("wait");
    let first = first.await.expect("a task").expect("an answer");
    assert_eq!(first.status, 201);
    for duplicate in duplicates {
        let duplicate = duplicate.await.expect("a task").expect("an answer");
        assert_eq!(
            (duplicate.status, &duplicate.body),
            (first.status, &first.body)
        );
        assert!(duplicate.is_replay(), "{duplicate:?}");
    }
    assert_eq!(rig.service.effect("wait").ended, 1);
}

/// Where duplicates don't wait, they are told when to ask again.
pub(super) async fn busy(rig: &Rig) {
    let call = rig.call("/busy", "busy");
    rig.service.close_gate("busy");
    let first = call.spawn();
    rig.service.until("busy", |effect| effect.begun == 1).await;
    for _ in 0..2 {
        let duplicate = call.post().await;
        let expected = (409, "idempotency_in_flight".to_owned(), true);
        assert_eq!(duplicate.problem_and_retry(), expected);
        assert!(duplicate.header("retry-after").is_some(), "{duplicate:?}");
    }
    rig.service.open_gate("busy");
    let first = first.await.expect("a task").expect("an answer");
    assert_eq!((first.status.as_u16(), first.is_replay()), (201, false));
    assert!(call.post().await.is_replay());
    assert_eq!(rig.service.effect("busy").ended, 1);
}
