//! One caller and one server, message by message. Calls with a key go through the gateway; everything else passes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use semel::core::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot, watch};

use crate::answer::{CANCELLED, Reply};
use crate::call::{Call, Caller};
use crate::gateway::{Gateway, Open, Plan, Sending};
use crate::message::{self, Id, Kind, Message};
use crate::outcome::Outcome;
use crate::status;
use crate::tools::{Catalog, Known};

/// How many messages may lie between two ends.
pub(crate) const QUEUE: usize = 64;
/// The most calls of one caller that run under a key at once.
const MOST_CALLS: usize = 1024;
/// The most pages of a server's list that are asked for.
const MOST_PAGES: usize = 100;
/// How long a server may take to list its tools when it is asked on our own account.
const LIST_LIMIT: Duration = Duration::from_secs(10);

/// How long a server may still talk after it was told that no more comes.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// One end: what it says, and what it is told.
pub(crate) struct End {
    pub(crate) says: mpsc::Receiver<Bytes>,
    pub(crate) told: mpsc::Sender<Bytes>,
}

/// What is known about both ends while they talk.
pub(crate) struct Session {
    gateway: Arc<Gateway>,
    caller: Caller,
    catalog: Arc<Catalog>,
    to_client: mpsc::Sender<Bytes>,
    /// Nothing, once the server is told no more.
    to_server: Mutex<Option<mpsc::Sender<Bytes>>>,
    /// Whose answers of the server's don't just pass.
    waiting: Mutex<HashMap<Id, Waiting>>,
    /// Calls under a key, to be told when they are cancelled.
    calls: Mutex<HashMap<Id, watch::Sender<bool>>>,
    /// How many there are, for whoever waits for the last.
    running: watch::Sender<usize>,
    /// One list at a time is asked for on our own account.
    listing: tokio::sync::Mutex<()>,
    lists: AtomicU64,
}

enum Waiting {
    /// A page of the list that the caller asked for.
    Page,
    /// An answer that somebody here waits for.
    Answer(oneshot::Sender<Bytes>),
}

impl Session {
    /// Lets both ends talk until one has no more to say. What runs under a key is then given `drain` to end.
    pub(crate) async fn run(
        gateway: Arc<Gateway>,
        caller: Caller,
        mut client: End,
        mut server: End,
        drain: Duration,
    ) {
        let session = Arc::new(Self {
            gateway,
            caller,
            catalog: Arc::default(),
            to_client: client.told,
            to_server: Mutex::new(Some(server.told)),
            waiting: Mutex::default(),
            calls: Mutex::default(),
            running: watch::Sender::new(0),
            listing: tokio::sync::Mutex::default(),
            lists: AtomicU64::new(0),
        });
        session.talk(&mut client.says, &mut server.says, drain).await;
        // Whoever still waits for the server learns that it is gone, and settles.
        session.waiting.lock().clear();
        let mut running = session.running.subscribe();
        let _ = tokio::time::timeout(drain, none(&mut running)).await;
    }

    /// Until the server says no more. A caller that has left may have left something running: the server hears of it
    /// when that has ended, or has had its time.
    async fn talk(
        self: &Arc<Self>,
        client: &mut mpsc::Receiver<Bytes>,
        server: &mut mpsc::Receiver<Bytes>,
        drain: Duration,
    ) {
        let mut running = self.running.subscribe();
        let mut end: Option<BoxFuture<'static, ()>> = None;
        let mut is_closing = false;
        loop {
            tokio::select! {
                said = client.recv(), if end.is_none() => match said {
                    Some(text) => self.from_client(text).await,
                    None => end = Some(self.gateway.sleep(drain)),
                },
                said = server.recv() => match said {
                    Some(text) => self.from_server(text).await,
                    None => return,
                },
                () = none(&mut running), if end.is_some() && !is_closing => {
                    is_closing = true;
                    self.to_server.lock().take();
                    end = Some(self.gateway.sleep(LAST_WORDS));
                }
                () = until(&mut end), if end.is_some() => return,
            }
        }
    }

    async fn tell_client(&self, text: Bytes) {
        // A client that is gone reads nothing: its call is done and recorded all the same.
        let _ = self.to_client.send(text).await;
    }

    async fn tell_server(&self, text: Bytes) {
        self.try_tell_server(text).await;
    }

    async fn try_tell_server(&self, text: Bytes) -> bool {
        let server = self.to_server.lock().clone();
        match server {
            Some(server) => server.send(text).await.is_ok(),
            None => false,
        }
    }

    pub(crate) async fn from_client(self: &Arc<Self>, text: Bytes) {
        let message = Message::new(text);
        match (&message.kind, message.method()) {
            (Kind::Request { .. }, Some("tools/call")) => return self.call(message).await,
            (Kind::Request { id, .. }, Some("tools/list")) => {
                self.waiting.lock().insert(id.clone(), Waiting::Page);
            }
            (Kind::Notification { .. }, Some("notifications/cancelled")) => self.cancelled(&message),
            (Kind::Batch, _) if self.has_call(&message) => {
                let text = "tool calls are taken one at a time, not in a batch";
                let id = Id("null".into());
                return self.tell_client(message::error(&id, -32600, text)).await;
            }
            _ => {}
        }
        self.tell_server(message.text).await;
    }

    /// Whether a batch has a call that would have to be looked at.
    fn has_call(&self, batch: &Message) -> bool {
        let messages: Vec<Box<RawValue>> = serde_json::from_slice(&batch.text).unwrap_or_default();
        let mut messages = messages
            .iter()
            .map(|raw| Message::new(Bytes::copy_from_slice(raw.get().as_bytes())));
        messages.any(|message| {
            Call::read(&message).is_some_and(|call| self.gateway.concerns(&call))
        })
    }

    fn cancelled(&self, message: &Message) {
        let id = message.params().get("requestId").map(|raw| Id(raw.get().into()));
        if let Some(call) = id.and_then(|id| self.calls.lock().get(&id).cloned()) {
            call.send_replace(true);
        }
    }

    pub(crate) async fn from_server(&self, text: Bytes) {
        let message = Message::new(text);
        match &message.kind {
            Kind::Response { id } => {
                let waiting = self.waiting.lock().remove(id);
                match waiting {
                    // Nobody to tell is fine: whoever waited has gone, and has seen to it.
                    Some(Waiting::Answer(waiter)) => return drop(waiter.send(message.text)),
                    Some(Waiting::Page) => {
                        let (page, _) = self.catalog.page(&message.text, &self.gateway.settings);
                        return self.tell_client(page).await;
                    }
                    None => {}
                }
            }
            Kind::Notification { method } if method == "notifications/tools/list_changed" => {
                self.catalog.changed();
            }
            _ => {}
        }
        self.tell_client(message.text).await;
    }

    async fn call(self: &Arc<Self>, message: Message) {
        let Some(call) = Call::read(&message) else {
            return self.tell_server(message.text).await;
        };
        let is_status = call.tool == status::NAME
            && self.gateway.settings.enforces()
            && self.catalog.get(status::NAME).is_none();
        if !is_status && !self.gateway.concerns(&call) {
            return self.tell_server(message.text).await;
        }
        let Some(cancel) = self.take(&call.id) else {
            let text = "this id is in use by a call that still runs, or too many calls run";
            return self.tell_client(message::error(&call.id, -32600, text)).await;
        };
        let session = Arc::clone(self);
        tokio::spawn(async move {
            let id = call.id.clone();
            match is_status {
                true => {
                    let status = session.gateway.status(&call, &session.caller).await;
                    session.tell_client(status).await;
                }
                false => session.protect(message, call, cancel).await,
            }
            session.calls.lock().remove(&id);
            session.running.send_modify(|running| *running = running.saturating_sub(1));
        });
    }

    fn take(&self, id: &Id) -> Option<watch::Receiver<bool>> {
        let mut calls = self.calls.lock();
        if calls.len() >= MOST_CALLS || calls.contains_key(id) {
            return None;
        }
        let cancel = watch::Sender::new(false);
        let receiver = cancel.subscribe();
        calls.insert(id.clone(), cancel);
        self.running.send_modify(|running| *running += 1);
        Some(receiver)
    }

    async fn protect(self: &Arc<Self>, message: Message, call: Call, cancel: watch::Receiver<bool>) {
        let known = self.known(&call).await;
        let reply = match self.gateway.plan(call, known, &self.caller) {
            Plan::Pass => return self.tell_server(message.text).await,
            Plan::Answer(reply) => reply,
            Plan::Run(job) => {
                let send = self.send(job.call.id.clone(), cancel);
                self.gateway.run(*job, send).await
            }
        };
        if let Reply::Message(text) = reply {
            self.tell_client(text).await;
        }
    }

    /// What is known of the tool; asks the server where its list was not seen yet.
    async fn known(&self, call: &Call) -> Option<Known> {
        let is_done = || self.catalog.get(&call.tool).is_some() || self.catalog.is_whole();
        if !is_done() {
            let _one_at_a_time = self.listing.lock().await;
            let mut cursor: Option<String> = None;
            for _ in 0..MOST_PAGES {
                if is_done() {
                    break;
                }
                cursor = match self.page(call, cursor.as_deref()).await {
                    Some(next) => next,
                    None => break,
                };
            }
        }
        self.catalog.get(&call.tool)
    }

    /// Asks for a page. → where it goes on; nothing where the server gave none.
    async fn page(&self, call: &Call, cursor: Option<&str>) -> Option<Option<String>> {
        let number = self.lists.fetch_add(1, Ordering::Relaxed);
        let id = Id(format!("\"semel:{number}\"").into());
        let answer = self.expect(id.clone());
        self.tell_server(call.list(&id, cursor)).await;
        let answer = tokio::time::timeout(LIST_LIMIT, answer).await;
        self.waiting.lock().remove(&id);
        let answer = answer.ok()?.ok()?;
        Some(self.catalog.page(&answer, &self.gateway.settings).1)
    }

    fn expect(&self, id: Id) -> oneshot::Receiver<Bytes> {
        let (waiter, answer) = oneshot::channel();
        self.waiting.lock().insert(id, Waiting::Answer(waiter));
        answer
    }

    /// Sends a call on, and waits for what becomes of it.
    fn send(
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
        let mut limit = self.gateway.sleep(settings.call_limit);
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

/// Ends when nothing runs.
async fn none(running: &mut watch::Receiver<usize>) {
    // An error says that the session is gone: nothing runs in it.
    let _ = running.wait_for(|running| *running == 0).await;
}

/// Ends when the time is up; never, where there is none.
async fn until(end: &mut Option<BoxFuture<'static, ()>>) {
    match end {
        Some(end) => end.await,
        None => std::future::pending().await,
    }
}
