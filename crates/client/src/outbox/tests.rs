use axum::Router;
use axum::http::Uri;
use reqwest::Response;
use reqwest_middleware::ClientWithMiddleware;

use super::*;
use crate::Error;
use crate::middleware::tests::{asks_once, nowhere, serve};

const NAME: &str = "charge ord-1";

/// An outbox in a folder of its own, which goes with it.
struct Rig {
    outbox: Outbox,
    client: ClientWithMiddleware,
}

impl Rig {
    async fn new() -> Self {
        let name = format!("semel-outbox-{:016x}", rand::random::<u64>());
        let outbox = Outbox::open(std::env::temp_dir().join(name)).await;
        Self {
            outbox: outbox.unwrap(),
            client: asks_once(),
        }
    }

    async fn begin(&self) -> OutboxCall {
        self.outbox.begin(NAME).await.unwrap()
    }

    /// The one call that has no answer yet.
    async fn pending(&self) -> OutboxCall {
        let mut calls = self.outbox.pending().await.unwrap();
        assert_eq!(calls.len(), 1);
        calls.remove(0)
    }

    /// Sends a charge to where nobody is.
    async fn send(&self, call: &OutboxCall, url: &str, cents: &'static str) -> Sent {
        call.send(&self.client, self.client.post(url).body(cents))
            .await
    }

    fn files(&self) -> usize {
        std::fs::read_dir(&self.outbox.folder).unwrap().count()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // What is left of a test that failed is in nobody's way.
        let _ = std::fs::remove_dir_all(&self.outbox.folder);
    }
}

type Sent = Result<Response, OutboxError>;

/// Whether a call that was given up on may be done.
fn may_be_done(sent: &Sent) -> bool {
    let Err(OutboxError::Call(error)) = sent else {
        panic!("{sent:?}");
    };
    match Error::find_in(error) {
        Some(Error::GaveUp { unknown, .. }) => *unknown,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn resend_repeats_exactly_the_stored_request() {
    let (rig, url) = (Rig::new().await, nowhere());
    let call = rig.begin().await;
    assert!(!call.was_sent());
    let never = call.resend(&rig.client).await;
    assert!(matches!(never, Err(OutboxError::NeverSent)));
    let first = rig.send(&call, &url, "500").await;
    assert!(!may_be_done(&first), "nobody is there, and nobody was");
    assert!(call.was_sent(), "it is on disk to be sent");
    // From here on nobody vouches for what attempts before have done.
    assert!(may_be_done(&call.resend(&rig.client).await));
    assert!(may_be_done(&rig.send(&call, &url, "500").await));
    let other = rig.send(&call, &url, "600").await;
    assert!(matches!(other, Err(OutboxError::Changed)));
    let found = rig.pending().await;
    assert!(may_be_done(&found.resend(&rig.client).await));
    let begun = rig.begin().await;
    assert!(may_be_done(&rig.send(&begun, &url, "500").await));
    call.forget().await.unwrap();
    assert_eq!(rig.files(), 0);
}

#[tokio::test]
async fn request_stored_by_another_process_stays() {
    let (rig, url) = (Rig::new().await, nowhere());
    let live = rig.begin().await;
    let (stale, other) = (rig.pending().await, rig.pending().await);
    assert!(!may_be_done(&rig.send(&live, &url, "500").await));
    assert!(!stale.was_sent());
    stale.forget().await.unwrap();
    let found = rig.pending().await;
    assert!(found.was_sent(), "a live process sends it");
    assert_eq!(found.key().unwrap(), live.key().unwrap());
    let changed = rig.send(&other, &url, "600").await;
    assert!(matches!(changed, Err(OutboxError::Changed)));
    // The same request is the same call, and may have been sent by the other.
    assert!(may_be_done(&rig.send(&other, &url, "500").await));
    assert_eq!(rig.files(), 1, "nothing is left beside or aside");
}

#[tokio::test]
async fn call_begun_again_is_a_new_call() {
    let (rig, url) = (Rig::new().await, nowhere());
    let first = rig.begin().await;
    let (stale, other) = (rig.pending().await, rig.pending().await);
    first.forget().await.unwrap();
    let second = rig.begin().await;
    assert_ne!(stale.key().unwrap(), second.key().unwrap());
    let changed = rig.send(&stale, &url, "500").await;
    assert!(matches!(changed, Err(OutboxError::Changed)));
    other.forget().await.unwrap();
    let found = rig.pending().await;
    assert_eq!(found.key().unwrap(), second.key().unwrap());
    assert!(!found.was_sent());
    assert_eq!(rig.files(), 1, "nothing is left beside or aside");
}

#[tokio::test]
async fn forgotten_call_is_stored_again_before_it_is_sent() {
    let (rig, url) = (Rig::new().await, nowhere());
    let live = rig.begin().await;
    rig.pending().await.forget().await.unwrap();
    assert_eq!(rig.files(), 0);
    let sent = rig.send(&live, &url, "500").await;
    assert!(may_be_done(&sent), "whoever forgot it may have sent it");
    let found = rig.pending().await;
    assert!(found.was_sent());
    assert_eq!(found.key().unwrap(), live.key().unwrap());
}

#[tokio::test]
async fn call_set_aside_is_restored_unless_its_name_is_taken() {
    let rig = Rig::new().await;
    let call = rig.begin().await;
    let (path, aside) = (rig.outbox.path(NAME), rig.outbox.folder.join(".old-1"));
    std::fs::rename(&path, &aside).unwrap();
    rig.outbox.recall(&aside).unwrap();
    assert_eq!(rig.pending().await.key().unwrap(), call.key().unwrap());
    assert_eq!(rig.files(), 1);
    std::fs::rename(&path, &aside).unwrap();
    let newer = rig.begin().await;
    rig.outbox.recall(&aside).unwrap();
    assert_eq!(rig.pending().await.key().unwrap(), newer.key().unwrap());
    assert_eq!(rig.files(), 1);
}

#[tokio::test]
async fn relative_url_needs_a_base() {
    let rig = Rig::new().await;
    let router = Router::new().fallback(|uri: Uri| async move { uri.to_string() });
    let address = serve(router).await;
    let call = rig.begin().await;
    let url = format!("http://{address}/charges?next=http://shop");
    rig.send(&call, &url, "500").await.unwrap();
    // As a client with a base of its own has written it.
    let path = rig.outbox.path(NAME);
    let text = std::fs::read_to_string(&path).unwrap();
    let relative = text.replace(&format!("http://{address}"), "");
    assert_ne!(text, relative);
    std::fs::write(&path, relative).unwrap();
    let found = rig.pending().await;
    let nowhere = found.resend(&rig.client).await;
    assert!(matches!(nowhere, Err(OutboxError::Relative)), "{nowhere:?}");
    for (base, whole) in [
        ("", "/charges?next=http://shop"),
        ("/shop/", "/shop/charges?next=http://shop"),
        ("/shop?a=b", "/shop/charges?next=http://shop"),
    ] {
        let base = format!("http://{address}{base}").parse().unwrap();
        let outbox = rig.outbox.clone().with_base(base);
        let found = outbox.pending().await.unwrap().remove(0);
        let answer = found.resend(&rig.client).await.unwrap();
        assert_eq!(answer.text().await.unwrap(), whole);
    }
}

#[tokio::test]
async fn file_under_another_name_is_damaged() {
    let rig = Rig::new().await;
    let (outbox, call) = (&rig.outbox, rig.begin().await);
    // As a copy by hand would leave it.
    let (one, other) = (outbox.path(NAME), outbox.path("charge ord-2"));
    std::fs::copy(&one, &other).unwrap();
    let begun = outbox.begin("charge ord-2").await;
    assert!(matches!(begun, Err(OutboxError::Damaged { .. })));
    let pending = outbox.pending().await;
    assert!(matches!(pending, Err(OutboxError::Damaged { .. })));
    // Nor is one without a usable key begun with a new one.
    let text = std::fs::read_to_string(&one).unwrap();
    let key = call.key().unwrap();
    std::fs::write(&one, text.replace(key.as_str(), "two words")).unwrap();
    let begun = outbox.begin(NAME).await;
    assert!(matches!(begun, Err(OutboxError::Damaged { .. })));
    // Nor is one that isn't text if nobody reads it.
    let mut bytes = text.replacen('{', "{\"?\":\"?\",", 1).into_bytes();
    bytes[6] = 0x8f;
    std::fs::write(&one, bytes).unwrap();
    let begun = outbox.begin(NAME).await;
    assert!(matches!(begun, Err(OutboxError::Damaged { .. })));
}
