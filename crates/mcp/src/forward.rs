//! The server's side of a session: forwards calls to the server and asks for its tool list.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use semel::core::BoxFuture;
use tokio::sync::{oneshot, watch};

use crate::answer::CANCELLED;
use crate::call::Call;
use crate::gateway::{Lookup, OpenDoubt, OutgoingCall, ServerGone};
use crate::message::Id;
use crate::outcome::Outcome;
use crate::session::{ResponseRoute, Session};
use crate::tools::ToolFacts;

/// The largest number of pages of a tool list that the gateway requests.
const MAX_PAGES: usize = 100;
/// How long the server may take to answer a request of the gateway's own.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// A session has a single caller, so list requests need no principal.
const PRINCIPAL: &str = "";

impl Session {
    /// Looks up a tool, and asks the server for its list if the tool is unknown.
    pub(crate) async fn look_up_tool(&self, call: &Call) -> Option<ToolFacts> {
        let is_done = || {
            let now = self.gateway.now();
            self.catalog.needs_no_listing(&call.tool, PRINCIPAL, now)
        };
        if !is_done() {
            let _one_at_a_time = self.listing.lock().await;
            let mut cursor: Option<String> = None;
            for _ in 0..MAX_PAGES {
                if is_done() {
                    break;
                }
                cursor = self.request_page(call, cursor.as_deref()).await;
                if cursor.is_none() {
                    break;
                }
            }
            if !is_done() {
                self.catalog.mark_failed(PRINCIPAL, self.gateway.now());
            }
        }
        self.catalog.get(&call.tool)
    }

    /// Requests one page. Returns the cursor of the next page; `None` after the last page or a
    /// failure.
    async fn request_page(&self, call: &Call, cursor: Option<&str>) -> Option<String> {
        let request = |id: &Id| call.list_request(id, cursor);
        let page = self.ask_server(request).await.ok()??;
        self.catalog.read_page(&page, &self.gateway.settings).1
    }

    /// Sends a request of the gateway's own, and waits for the response.
    async fn ask_server(
        &self,
        request: impl FnOnce(&Id) -> Bytes,
    ) -> Result<Option<Bytes>, ServerGone> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let id = Id(format!("\"semel:{number}\"").into());
        let answer = self.expect_response(id.clone());
        let is_sent = self.try_send_to_server(request(&id)).await;
        let answer = match is_sent {
            true => {
                let answer = async { answer.await.map_err(|_| ServerGone) };
                self.gateway
                    .clock()
                    .timeout(REQUEST_LIMIT, answer)
                    .await
                    .ok()
            }
            false => Some(Err(ServerGone)),
        };
        self.waiting.lock().remove(&id);
        match answer {
            Some(Ok(answer)) => Ok(Some(answer)),
            // Nobody will answer: the session has ended.
            Some(Err(_)) => Err(ServerGone),
            None => Ok(None),
        }
    }

    /// Makes the lookups of this session.
    pub(crate) fn lookup(self: &Arc<Self>) -> Lookup {
        let session = Arc::clone(self);
        Arc::new(move |lookup| {
            let session = Arc::clone(&session);
            Box::pin(async move { session.ask_server(|id| lookup.message(id)).await })
        })
    }

    fn expect_response(&self, id: Id) -> oneshot::Receiver<Bytes> {
        let (waiter, answer) = oneshot::channel();
        self.waiting
            .lock()
            .insert(id, ResponseRoute::Answer(waiter));
        answer
    }

    /// Forwards a call and waits for its outcome.
    pub(crate) fn send(
        self: &Arc<Self>,
        id: Id,
        cancel: watch::Receiver<bool>,
    ) -> impl FnOnce(OutgoingCall) -> BoxFuture<'static, Outcome> + Send + 'static {
        let session = Arc::clone(self);
        move |sending| {
            Box::pin(async move {
                if *cancel.borrow() {
                    return Outcome::NotSent(CANCELLED);
                }
                let answer = session.expect_response(id);
                if !session.try_send_to_server(sending.message).await {
                    return Outcome::NotSent("the server has ended");
                }
                session.answer(answer, cancel, sending.doubt).await
            })
        }
    }

    async fn answer(
        &self,
        mut answer: oneshot::Receiver<Bytes>,
        mut cancel: watch::Receiver<bool>,
        doubt: OpenDoubt,
    ) -> Outcome {
        let settings = &self.gateway.settings;
        let mut limit = self.gateway.call_limit();
        let cancelled = async { cancel.wait_for(|cancelled| *cancelled).await.is_ok() };
        let is_cancelled = tokio::select! {
            answer = &mut answer => return answer.map_or(Outcome::Lost, Outcome::Answered),
            () = &mut limit => false,
            is_cancelled = cancelled => is_cancelled,
        };
        if is_cancelled {
            let mut grace = self.gateway.sleep(settings.cancel_grace);
            tokio::select! {
                answer = &mut answer => return answer.map_or(Outcome::Lost, Outcome::Answered),
                () = &mut grace => {}
            }
        }
        // A late answer still resolves the doubt.
        let gateway = Arc::clone(&self.gateway);
        tokio::spawn(async move {
            if let Ok(message) = answer.await {
                gateway.resolve_late(&doubt, &message).await;
            }
        });
        match is_cancelled {
            true => Outcome::Cancelled,
            false => Outcome::TimedOut,
        }
    }
}
