//! A primary ships its log over a line that repeats, loses and reorders; the replica ends up the
//! same. `cargo run -- walk` tries what the requirements document promises.

mod walk;

use replica::{SegmentReceiver, SessionEvent};
use semel_stream::{GateLimits, SeqNo, SessionId};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().nth(1).as_deref() == Some("walk") {
        return walk::walk();
    }
    let session = SessionId::named("session-1");
    let event = |seqno| SessionEvent {
        session,
        seqno: Some(SeqNo(seqno)),
        counter: "orders".to_owned(),
        amount: 5,
    };
    let log: Vec<SessionEvent> = (1..=6).map(event).collect();
    let mut replica = SegmentReceiver::new(GateLimits::default());
    let shipped = [
        ("events 1 to 3", &log[..3]),
        ("the same again", &log[..3]),
        ("events 5 and 6: 4 got lost", &log[4..]),
        ("from 4 on, as asked for", &log[3..]),
    ];
    for (what, segment) in shipped {
        let received = replica.receive(segment)?;
        println!("{what}: {received:?}");
    }
    println!("{:?}", replica.sessions().counters);
    Ok(())
}
