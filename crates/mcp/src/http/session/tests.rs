#![expect(clippy::disallowed_methods, reason = "peers are tasks on real time")]

use std::time::Duration;

use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::*;

const TIMEOUT: Duration = Duration::from_secs(5);

/// A session, and the messages to its server.
fn session() -> (Arc<HttpSession>, mpsc::Receiver<Bytes>) {
    let (to_server, told) = mpsc::channel(QUEUE);
    let session = HttpSession::new(
        [String::new(), String::new()],
        to_server,
        Tick::new(Duration::ZERO),
    );
    (Arc::new(session), told)
}

fn note(number: usize) -> Bytes {
    let note = json!({"method": "notifications/message", "params": {"number": number}});
    note.to_string().into()
}

/// The next event of a stream.
async fn event(body: &mut Body) -> Value {
    let frame = tokio::time::timeout(TIMEOUT, body.frame()).await;
    let frame = frame.expect("in time").expect("an event").unwrap();
    let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
    let data = text.lines().find_map(|line| line.strip_prefix("data: "));
    serde_json::from_str(data.unwrap()).unwrap()
}

#[tokio::test]
async fn backlog_reaches_a_new_listener_in_order() {
    let (session, _told) = session();
    for number in 0..MAX_BACKLOG {
        session.deliver(note(number));
    }
    let mut body = session.listen().into_body();
    for number in 0..MAX_BACKLOG {
        // More messages arrive while the stream is read.
        if number < 3 {
            session.deliver(note(MAX_BACKLOG + number));
        }
        assert_eq!(event(&mut body).await["params"]["number"], number);
    }
    for number in 0..3 {
        let number = MAX_BACKLOG + number;
        assert_eq!(event(&mut body).await["params"]["number"], number);
    }
}

#[tokio::test]
async fn unread_stream_does_not_block_other_responses() {
    let (session, mut told) = session();
    // One client listens without reading. Another one called with a progress token, and reads
    // nothing either.
    let _unread = session.listen();
    let meta = json!({"_meta": {"progressToken": "p"}});
    let slow = json!({"id": 1, "method": "tools/call", "params": meta});
    let other = json!({"id": 2, "method": "ping"});
    let posted = [slow, other].map(|message| {
        let message = Message::new(message.to_string().into());
        tokio::spawn(Arc::clone(&session).post(message))
    });
    for _ in 0..2 {
        told.recv().await.unwrap();
    }
    for number in 0..2 * QUEUE {
        session.deliver(note(number));
        let progress = json!({"progressToken": "p", "progress": number});
        let progress = json!({"method": "notifications/progress", "params": progress});
        session.deliver(progress.to_string().into());
    }
    for id in [1, 2] {
        session.deliver(json!({"id": id, "result": {}}).to_string().into());
    }
    let [slow, other] = posted;
    let other = tokio::time::timeout(TIMEOUT, other).await.expect("in time");
    let other = other.unwrap().into_body().collect().await.unwrap();
    let other: Value = serde_json::from_slice(&other.to_bytes()).unwrap();
    assert_eq!(other["id"], 2);
    // The slow client still gets its response as the last event.
    let mut body = slow.await.unwrap().into_body();
    loop {
        let said = event(&mut body).await;
        if said["id"] == 1 {
            break;
        }
        assert_eq!(said["params"]["progressToken"], "p");
    }
    assert!(body.frame().await.is_none(), "its stream is at its end");
}
