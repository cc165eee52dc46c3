//! The server's side of a session: what is asked of it on our own account, and calls on their way to it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use semel::core::BoxFuture;
use tokio::sync::{oneshot, watch};

use crate::answer::CANCELLED;
use crate::call::Call;
use crate::gateway::{Open, Sending};
use crate::message::Id;
use crate::outcome::Outcome;
use crate::session::{Session, Waiting};
use crate::tools::Known;

/// The most pages of a server's list that are asked for.
const MOST_PAGES: usize = 100;
/// How long a server may take to list its tools when it is asked on our own account.
const LIST_LIMIT: Duration = Duration::from_secs(10);
/// A session has one caller: there is nobody to tell apart.
const ASKS_AS: &str = "";

impl Session {
    /// What is known of the tool; asks the server where its list was not seen yet.
    pub(crate) async fn known(&self, call: &Call) -> Option<Known> {
        let is_done = || {
            let now = self.gateway.now();
            self.catalog.is_enough(&call.tool, ASKS_AS, now)
        };
        if !is_done() {
            let _one_at_a_time = self.listing.lock().await;
            let mut cursor: Option<String> = None;
            for _ in 0..MOST_PAGES {
                if is_done() {
                    break;
                }
                cursor = self.page(call, cursor.as_deref()).await;
                if cursor.is_none() {
                    break;
                }
            }
            if !is_done() {
                self.catalog.failed(ASKS_AS, self.gateway.now());
            }
        }
        self.catalog.get(&call.tool)
    }

    /// Asks for a page. → where the list goes on; nothing at its end, or where the server gave none.
    async fn page(&self, call: &Call, cursor: Option<&str>) -> Option<String> {
        let number = self.lists.fetch_add(1, Ordering::Relaxed);
        let id = Id(format!("\"semel:{number}\"").into());
        let answer = self.expect(id.clone());
        let answer = match self.try_tell_server(call.list(&id, cursor)).await {
            true => tokio::time::timeout(LIST_LIMIT, answer).await.ok(),
            false => None,
        };
        self.waiting.lock().remove(&id);
        self.catalog.page(&answer?.ok()?, &self.gateway.settings).1
    }

    fn expect(&self, id: Id) -> oneshot::Receiver<Bytes> {
        let (waiter, answer) = oneshot::channel();
        self.waiting.lock().insert(id, Waiting::Answer(waiter));
        answer
    }

    /// Sends a call on, and waits for what becomes of it.
    pub(crate) fn send(
        self: &Arc<Self>,
        id: Id,
        cancel: watch::Receiver<bool>,
    ) -> impl FnOnce(Sending) -> BoxFuture<'static, Outcome> + Send + 'static {
        let session = Arc::clone(self);
        move |sending| {
            Box::pin(async move {
                if *cancel.borrow() {
                    return Outcome::NotSent(CANCELLED);
                }
                let answer = session.expect(id);
                if !session.try_tell_server(sending.message).await {
                    return Outcome::NotSent("the server has ended");
                }
                session.answer(answer, cancel, sending.open).await
            })
        }
    }

    async fn answer(
        &self,
        mut answer: oneshot::Receiver<Bytes>,
        mut cancel: watch::Receiver<bool>,
        open: Open,
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
        // Should it come after all, it ends the doubt.
        let gateway = Arc::clone(&self.gateway);
        tokio::spawn(async move {
            if let Ok(message) = answer.await {
                gateway.late(&open, &message).await;
            }
        });
        match is_cancelled {
            true => Outcome::Cancelled,
            false => Outcome::TimedOut,
        }
    }
}
