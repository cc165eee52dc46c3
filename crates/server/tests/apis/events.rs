//! The live event stream.

use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::support::{ADMIN, OTHER, Server, call, read, send};

struct Stream(hyper::body::Incoming, String);

impl Stream {
    async fn open(server: &Server, query: &str) -> Self {
        let bearer = format!("Bearer {ADMIN}");
        let headers = [("authorization", bearer.as_str())];
        let path = format!("/admin/v1/events?{query}");
        let response = send(&server.admin, "GET", &path, &headers, "").await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self(response.into_body(), String::new())
    }

    /// Name and data of the next event; `None` at the end.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.1.split_once("\n\n") {
                let line = |name: &str| {
                    let found = event.lines().find_map(|line| line.strip_prefix(name));
                    found.unwrap_or_default().trim().to_owned()
                };
                let found = (line("event:"), line("data:"));
                self.1 = rest.to_owned();
                if found.1.is_empty() {
                    continue;
                }
                return Some((found.0, serde_json::from_str(&found.1).expect("JSON")));
            }
            let frame = self.0.frame().await?.expect("a frame");
            self.1
                .push_str(std::str::from_utf8(frame.data_ref().expect("data")).expect("text"));
        }
    }
}

#[tokio::test]
async fn events_are_streamed_filtered_and_limited() {
    let server = Server::start("memory://").await;
    let mut all = Stream::open(&server, "limit=3").await;
    let mut acme = Stream::open(&server, "tenant=acme&kind=idempotency.&limit=1").await;
    let ask = json!({"scope": "s", "key": "k"}).to_string();
    call(&server.api, "POST", "/v1/claims", Some(OTHER), &ask).await;
    let won = server
        .post("/v1/claims", json!({"scope": "s", "key": "k"}))
        .await;
    server
        .post(
            "/v1/claims",
            json!({"scope": "s", "key": "k", "payload": 2}),
        )
        .await;
    let tenants =
        [all.next().await, all.next().await].map(|event| event.unwrap().1["tenant"].clone());
    assert_eq!(tenants, ["other", "acme"]);
    assert_eq!(all.next().await.unwrap().0, "idempotency.conflict");
    assert_eq!(all.next().await, None, "at the limit");
    let (kind, data) = acme.next().await.unwrap();
    assert_eq!(
        (kind.as_str(), data["id"].as_str()),
        ("idempotency.key.created", Some(won.text("id")))
    );
    drop((all, acme));
    server.trail.flush().await;
    let path = format!("recent=1000&limit=2&id={}", won.text("id"));
    let mut late = Stream::open(&server, &path).await;
    assert_eq!(
        late.next().await.unwrap().0,
        "idempotency.key.created",
        "from memory"
    );
    assert_eq!(late.next().await.unwrap().0, "idempotency.conflict");
}

#[tokio::test]
async fn number_of_event_streams_is_limited() {
    let server = Server::start("memory://").await;
    let open = [
        Stream::open(&server, "").await,
        Stream::open(&server, "").await,
    ];
    let third = server.see("/admin/v1/events").await;
    assert_eq!((third.status, third.code()), (429, "too_many_streams"));
    drop(open);
    // A slot is free again once the server has noticed the disconnect.
    let bearer = format!("Bearer {ADMIN}");
    let headers = [("authorization", bearer.as_str())];
    for _ in 0..200 {
        let again = send(
            &server.admin,
            "GET",
            "/admin/v1/events?limit=1",
            &headers,
            "",
        )
        .await;
        if again.status() == 200 {
            return;
        }
        read(again).await;
        crate::support::pause(std::time::Duration::from_millis(20)).await;
        // The server notices a closed stream at the next event.
        server
            .post(
                "/v1/claims",
                json!({"scope": "s", "key": "k", "policy": {"on_busy": "refuse"}}),
            )
            .await;
    }
    panic!("no place came back");
}
