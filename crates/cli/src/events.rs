//! The event stream of the admin API (server-sent events).

use axum::body::Body;
use futures_util::StreamExt as _;
use serde_json::Value;
use sse_stream::SseStream;

use crate::client::{ApiPath, Client};
use crate::exit::{self, Exit};

/// Entries of the audit trail, as they are written.
pub(crate) struct AuditStream {
    stream: SseStream<Body>,
    name: String,
}

/// The filter of a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventFilter {
    pub(crate) id: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) scope: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) recent: Option<u32>,
    pub(crate) limit: Option<u32>,
}

impl AuditStream {
    pub(crate) async fn open(client: &Client, wanted: &EventFilter) -> Result<Self, Exit> {
        let path = ApiPath::new("/admin/v1/events")
            .with("id", wanted.id.as_ref())
            .with("tenant", wanted.tenant.as_ref())
            .with("scope", wanted.scope.as_ref())
            .with("kind", wanted.kind.as_ref())
            .with("recent", wanted.recent)
            .with("limit", wanted.limit);
        let body = client.stream(&path).await?;
        Ok(Self::of(body, client.name.clone()))
    }

    /// The entries of a stream that is open already.
    pub(crate) fn of(body: Body, name: String) -> Self {
        Self {
            stream: SseStream::new(body),
            name,
        }
    }

    /// The next entry; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Result<Value, Exit>> {
        loop {
            match self.stream.next().await? {
                Err(error) => {
                    let message = format!("the stream of {} broke off: {error}", self.name);
                    return Some(Err(Exit::failed(exit::UNREACHABLE, message)));
                }
                // An event without data is a keep-alive.
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
