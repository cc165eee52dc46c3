//! What a proxy adds: who the client is, and another sidecar when one goes.

use crate::programs::until;
use crate::rig::{HOST, Rig};

/// What a client may say of itself and must not be believed.
const FORGED: [(&str, &str); 16] = [
    ("x-forwarded-for", "6.6.6.6"),
    ("x-forwarded-proto", "forged"),
    ("x-forwarded-host", "forged.test"),
    ("x-forwarded-port", "666"),
    ("x-forwarded-prefix", "/forged"),
    ("x-forwarded-server", "forged"),
    ("forwarded", "for=6.6.6.6;host=forged.test"),
    ("x-real-ip", "6.6.6.6"),
    ("x-client-ip", "6.6.6.6"),
    ("true-client-ip", "6.6.6.6"),
    ("x-original-url", "/forged"),
    ("x-rewrite-url", "/forged"),
    ("semel-fence", "666"),
    ("semel-attempt", "666"),
    ("semel-downstream-key", "forged"),
    ("semel-tenant", "forged"),
];

/// The service learns who asked for what from the proxy, and nothing that the client forged.
pub(super) async fn headers(rig: &Rig) {
    let call = rig.call("/charges", "headers").headers(&FORGED);
    assert_eq!(call.post().await.status, 201);
    let seen = rig.service.effect("headers").headers;
    let of = |name: &str| {
        let values = seen.get_all(name).iter();
        let values: Vec<_> = values.map(|value| value.to_str().expect("text")).collect();
        values.join(", ")
    };
    for (name, value) in FORGED {
        assert!(!of(name).contains(value), "{name}: {}", of(name));
    }
    assert_eq!(of("x-forwarded-for"), "127.0.0.1, 127.0.0.1");
    assert_eq!(of("x-forwarded-proto"), "http");
    assert_eq!(
        (of("host"), of("x-forwarded-host")),
        (HOST.into(), HOST.into())
    );
    assert_eq!(of("semel-attempt"), "1");
    // The same client with other lies is the same client.
    assert!(rig.call("/charges", "headers").post().await.is_replay());
}

/// A sidecar that is told to end finishes what it began, while all other requests go to the other
/// one. Once it is back, it gets requests again.
pub(super) async fn drain(rig: &mut Rig) {
    // In each of the two runs one that takes long.
    let slow = ["slow-0", "slow-1", "slow-2", "slow-3"];
    let mut running = Vec::new();
    for name in slow {
        rig.service.close_gate(name);
        running.push(rig.call("/charges", name).spawn());
        rig.service.until(name, |effect| effect.begun == 1).await;
    }
    let ends = rig.service.effect(slow[0]).at[0];
    rig.sidecars[ends].terminate().await;
    for number in 0..12 {
        let name = format!("beside-{number}");
        let call = rig.call("/charges", &name);
        // A request that is sent just as its connection closes is lost: with a key a client asks
        // again.
        until("the other sidecar answers", async || {
            let answer = call.post().await;
            let is_lost = answer.status == rig.front.lost;
            assert!(is_lost || answer.status == 201, "{number}: {answer:?}");
            !is_lost
        })
        .await;
        assert_eq!(rig.service.effect(&name).at, [1 - ends]);
    }
    for number in 0..12 {
        let call = rig.call("/charges", &format!("beside-{number}-without-a-key"));
        assert_eq!(call.without_key().post().await.status, 201);
    }
    for (name, answer) in slow.into_iter().zip(running) {
        rig.service.open_gate(name);
        let answer = answer.await.expect("a task").expect("an answer");
        assert_eq!(answer.status, 201, "{name}: {answer:?}");
        assert_eq!(rig.service.effect(name).begun, 1);
    }
    rig.sidecars[ends].ended().await;
    // What the one did, the other knows.
    let again = rig.call("/charges", slow[0]).post().await;
    assert!(again.is_replay(), "{again:?}");

    rig.sidecars[ends].start_again().await;
    let mut number = 0;
    until("it gets requests again", async || {
        number += 1;
        let name = format!("back-{number}");
        let answer = rig.call("/charges", &name).post().await;
        assert_eq!(answer.status, 201, "{answer:?}");
        rig.service.effect(&name).at == [ends]
    })
    .await;
}
