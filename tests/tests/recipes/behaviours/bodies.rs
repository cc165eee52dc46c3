//! Bodies: answers that come in parts, and large ones both ways.

use http_body_util::BodyExt as _;
use semel_httpclient::{Client, Protocol};

use crate::fronts::TooLarge;
use crate::rig::Rig;

/// The first part of an answer arrives while the service still holds back the rest; with and
/// without a key.
pub(super) async fn streaming(rig: &Rig) {
    for (method, effect) in [("GET", "stream"), ("POST", "stream-with-a-key")] {
        rig.service.close_gate(effect);
        let mut call = rig.call("/events", effect);
        if method == "GET" {
            call = call.without_key();
        }
        let mut request = call.request(method);
        *request.uri_mut() = "/events".parse().expect("a path");
        let mut client = Client::connect(rig.way, Protocol::Http1).await;
        let response = client.begin(request).await;
        assert_eq!(response.status(), 200);
        let mut body = response.into_body();
        let mut read = Vec::new();
        while !read.ends_with(b"data: one\n\n") {
            let frame = body.frame().await.expect("the first event");
            read.extend_from_slice(frame.expect("a body").data_ref().expect("data"));
        }
        assert_eq!(rig.service.effect(effect).ended, 0);
        rig.service.open_gate(effect);
        let rest = body.collect().await.expect("a whole body").to_bytes();
        read.extend_from_slice(&rest);
        assert_eq!(read, b"data: one\n\ndata: two\n\n");
    }
}

/// As much as the sidecar takes with a key passes, and its answer is replayed whole. More is
/// refused before it is sent, and nothing runs.
pub(super) async fn large(rig: &Rig) {
    let body: Vec<u8> = (0..1_900_000_u32).map(|i| i.to_le_bytes()[0]).collect();
    let binary = [("content-type", "application/octet-stream")];
    let call = rig
        .call("/large", "large")
        .body(body.clone())
        .headers(&binary);
    let first = call.post().await;
    assert_eq!(first.status, 201, "{:?}", first.headers);
    assert!(body.starts_with(&first.body) && first.body.len() > 500_000);
    let again = call.post().await;
    assert!(again.is_replay(), "{:?}", again.headers);
    assert_eq!(again.body, first.body);
    assert_eq!(rig.service.effect("large").ended, 1);

    let larger = rig.call("/large", "larger").headers(&binary);
    let refused = larger.body(vec![b'x'; 3_000_000]).try_post().await;
    match (refused, rig.front.too_large) {
        (Ok(answer), TooLarge::OwnPage) => {
            assert_eq!(answer.status, 413);
            assert_eq!(answer.header("content-type"), Some("text/html"));
        }
        (Err(_), TooLarge::DocumentOrLost) => {}
        (Ok(answer), TooLarge::DocumentOrLost) if matches!(answer.status.as_u16(), 502 | 503) => {}
        (answer, _) => {
            let expected = (413, "idempotency_body_too_large".to_owned());
            assert_eq!(answer.expect("an answer").problem(), expected);
        }
    }
    assert_eq!(rig.service.effect("larger").begun, 0);
}
