use std::time::Duration;

use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::*;

const SOON: Duration = Duration::from_secs(5);

/// A seat, and what its server is told.
fn seat() -> (Arc<Seat>, mpsc::Receiver<Bytes>) {
    let (tell, told) = mpsc::channel(QUEUE);
    let seat = Seat::new(
        [String::new(), String::new()],
        tell,
        Tick::new(Duration::ZERO),
    );
    (Arc::new(seat), told)
}

fn note(number: usize) -> Bytes {
    let note = json!({"method": "notifications/message", "params": {"number": number}});
    note.to_string().into()
}

/// The next event of a stream.
async fn event(body: &mut Body) -> Value {
    let frame = tokio::time::timeout(SOON, body.frame()).await;
    let frame = frame.expect("in time").expect("an event").unwrap();
    let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
    let data = text.lines().find_map(|line| line.strip_prefix("data: "));
    serde_json::from_str(data.unwrap()).unwrap()
}

#[tokio::test]
async fn all_that_was_kept_is_told_in_order_to_whoever_listens() {
    let (seat, _told) = seat();
    for number in 0..MOST_UNHEARD {
        seat.hear(note(number));
    }
    let mut body = seat.listen().into_body();
    for number in 0..MOST_UNHEARD {
        // More comes while it is read.
        if number < 3 {
            seat.hear(note(MOST_UNHEARD + number));
        }
        assert_eq!(event(&mut body).await["params"]["number"], number);
    }
    for number in 0..3 {
        let number = MOST_UNHEARD + number;
        assert_eq!(event(&mut body).await["params"]["number"], number);
    }
}

#[tokio::test]
async fn a_stream_that_is_not_read_keeps_no_answer_back() {
    let (seat, mut told) = seat();
    // Somebody listens, and reads nothing; somebody else called, wants to hear of progress, and reads nothing either.
    let _unread = seat.listen();
    let meta = json!({"_meta": {"progressToken": "p"}});
    let slow = json!({"id": 1, "method": "tools/call", "params": meta});
    let other = json!({"id": 2, "method": "ping"});
    let posted = [slow, other].map(|message| {
        let message = Message::new(message.to_string().into());
        tokio::spawn(Arc::clone(&seat).post(message))
    });
    for _ in 0..2 {
        told.recv().await.unwrap();
    }
    for number in 0..2 * QUEUE {
        seat.hear(note(number));
        let progress = json!({"progressToken": "p", "progress": number});
        let progress = json!({"method": "notifications/progress", "params": progress});
        seat.hear(progress.to_string().into());
    }
    for id in [1, 2] {
        seat.hear(json!({"id": id, "result": {}}).to_string().into());
    }
    let [slow, other] = posted;
    let other = tokio::time::timeout(SOON, other).await.expect("in time");
    let other = other.unwrap().into_body().collect().await.unwrap();
    let other: Value = serde_json::from_slice(&other.to_bytes()).unwrap();
    assert_eq!(other["id"], 2);
    // The slow one still gets its answer, as the last event of its stream.
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
