//! The admin API's stream of events.

use axum::body::Body;
use futures_util::StreamExt as _;
use serde_json::Value;
use sse_stream::SseStream;

use crate::client::{Client, Path};
use crate::exit::{self, Exit};

/// Entries of the audit trail, as they are written.
pub(crate) struct Events {
    stream: SseStream<Body>,
    name: String,
}

/// Which entries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) id: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) scope: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) recent: Option<u32>,
    pub(crate) limit: Option<u32>,
}

impl Events {
    pub(crate) async fn open(client: &Client, wanted: &Wanted) -> Result<Self, Exit> {
        let path = Path::new("/admin/v1/events")
            .with("id", wanted.id.as_ref())
            .with("tenant", wanted.tenant.as_ref())
            .with("scope", wanted.scope.as_ref())
            .with("kind", wanted.kind.as_ref())
            .with("recent", wanted.recent)
            .with("limit", wanted.limit);
        Ok(Self {
            stream: SseStream::new(client.stream(&path).await?),
            name: client.name.clone(),
        })
    }

    /// The next entry; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Result<Value, Exit>> {
        loop {
            match self.stream.next().await? {
                Err(error) => {
                    let message = format!("{} broke off: {error}", self.name);
                    return Some(Err(Exit::failed(exit::UNREACHABLE, message)));
                }
                // Without data it only says that the connection lives.
                Ok(event) => {
                    let data = event.data.as_deref().map(serde_json::from_str::<Value>);
                    if let Some(Ok(entry)) = data {
                        return Some(Ok(entry));
                    }
                }
            }
        }
    }
}
