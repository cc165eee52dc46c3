//! `GET /admin/v1/events`: the audit trail as a live stream of server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, Stream};
use semel::core::Code;
use serde::Deserialize;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use utoipa::IntoParams;

use super::AdminState;
use crate::audit::Entry;
use crate::operators::Operator;
use crate::web::{
    Failure, Problem400, Problem401, Problem403, Problem429, Query, check_text, unhex,
};

/// The filter of an event stream.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventQuery {
    /// Only entries about the record with this id.
    #[param(nullable = false, pattern = "^[0-9a-f]{64}$")]
    id: Option<String>,
    /// Only entries of this tenant.
    #[param(nullable = false, max_length = 128, pattern = "^[ -~]+$")]
    tenant: Option<String>,
    /// Only entries of this scope.
    #[param(nullable = false, max_length = 128, pattern = "^[ -~]+$")]
    scope: Option<String>,
    /// Only entries whose kind has this prefix, such as `idempotency.` or `admin.`.
    #[param(nullable = false, max_length = 128, pattern = "^[ -~]+$")]
    kind: Option<String>,
    /// How many of the last entries to send first.
    #[param(nullable = false, minimum = 0, maximum = 1000)]
    recent: Option<usize>,
    /// The number of entries after which the stream ends. Without it, the stream has no end.
    #[param(nullable = false, minimum = 1, maximum = 1_000_000)]
    limit: Option<usize>,
}

impl EventQuery {
    fn check(&self) -> Result<(), Failure> {
        for (name, text) in [
            ("tenant", &self.tenant),
            ("scope", &self.scope),
            ("kind", &self.kind),
        ] {
            text.as_deref()
                .map_or(Ok(()), |text| check_text(name, text, 128))?;
        }
        let is_id = |id: &String| id.len() == 64 && unhex(id).is_some();
        let limits = self.recent.is_none_or(|recent| recent <= 1000)
            && self
                .limit
                .is_none_or(|limit| (1..=1_000_000).contains(&limit));
        if !limits || !self.id.as_ref().is_none_or(is_id) {
            return Err(Failure::invalid("a query parameter is out of bounds"));
        }
        Ok(())
    }

    /// Whether an entry passes the filter. Gaps always do, because a lost entry may have passed.
    fn matches(&self, entry: &Entry) -> bool {
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == found)
        };
        entry.kind == "audit.gap"
            || is(&self.id, entry.id.as_deref().unwrap_or_default())
                && is(&self.tenant, &entry.tenant)
                && is(&self.scope, &entry.scope)
                && self
                    .kind
                    .as_deref()
                    .is_none_or(|kind| entry.kind.starts_with(kind))
    }
}

/// Follow the audit trail.
///
/// Each event has the entry's kind as its name and the entry as its data. A reader that falls
/// behind gets an event `audit.gap` with how many entries it missed.
#[utoipa::path(
    get,
    path = "/admin/v1/events",
    tag = "admin",
    params(EventQuery),
    responses(
        (status = 200, description = "The entries, one event each.", body = String,
         content_type = "text/event-stream"),
        Problem400, Problem401, Problem403, Problem429
    ),
    security(("admin" = []))
)]
pub(super) async fn events(
    State(state): State<AdminState>,
    _: Operator,
    Query(query): Query<EventQuery>,
) -> Result<Response, Failure> {
    query.check()?;
    let slot = Arc::clone(&state.streams).try_acquire_owned();
    let detail = "the maximum number of event streams is open";
    let slot = slot.map_err(|_| Failure::new(Code::TooManyStreams, detail))?;
    let (recent, live) = state.trail.follow(query.recent.unwrap_or(0));
    let follower = Follower {
        remaining: query.limit.unwrap_or(usize::MAX),
        query,
        recent: recent.into(),
        live,
        _slot: slot,
    };
    Ok(Sse::new(follower.stream())
        .keep_alive(KeepAlive::default())
        .into_response())
}

pub(super) fn stream_slots(most: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(most))
}

struct Follower {
    query: EventQuery,
    recent: VecDeque<Arc<Entry>>,
    live: Receiver<Arc<Entry>>,
    remaining: usize,
    _slot: OwnedSemaphorePermit,
}

impl Follower {
    fn stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, |mut follower| async move {
            let event = follower.next().await?;
            Some((Ok(event), follower))
        })
    }

    async fn next(&mut self) -> Option<Event> {
        if self.remaining == 0 {
            return None;
        }
        loop {
            let entry = match self.recent.pop_front() {
                Some(entry) => entry,
                None => match self.live.recv().await {
                    Ok(entry) => entry,
                    Err(RecvError::Closed) => return None,
                    Err(RecvError::Lagged(missed)) => {
                        let data =
                            serde_json::json!({"type": "audit.gap", "detail": {"lost": missed}});
                        return Some(Event::default().event("audit.gap").data(data.to_string()));
                    }
                },
            };
            if !self.query.matches(&entry) {
                continue;
            }
            let Ok(data) = serde_json::to_string(&*entry) else {
                continue;
            };
            self.remaining -= 1;
            return Some(
                Event::default()
                    .id(&entry.event_id)
                    .event(&entry.kind)
                    .data(data),
            );
        }
    }
}
