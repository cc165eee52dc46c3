//! One caller and one server, message by message. Calls with a key go through the gateway; everything else passes.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot, watch};

use crate::answer::Reply;
use crate::call::{Call, Caller};
use crate::gateway::{Gateway, Plan};
use crate::message::{self, Id, Kind, Message};
use crate::status;
use crate::tools::Catalog;

/// How many messages may lie between two ends.
pub(crate) const QUEUE: usize = 64;
/// The most calls of one caller that run under a key at once.
const MOST_CALLS: usize = 1024;

/// How long a server may still talk after it was told that no more comes.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// One end: what it says, and what it is told.
pub(crate) struct End {
    pub(crate) says: mpsc::Receiver<Bytes>,
    pub(crate) told: mpsc::Sender<Bytes>,
}

/// What is known about both ends while they talk.
pub(crate) struct Session {
    pub(crate) gateway: Arc<Gateway>,
    caller: Caller,
    pub(crate) catalog: Arc<Catalog>,
    to_client: mpsc::Sender<Bytes>,
    /// Nothing, once the server is told no more.
    to_server: Mutex<Option<mpsc::Sender<Bytes>>>,
    /// Whose answers of the server's don't just pass.
    pub(crate) waiting: Mutex<HashMap<Id, Waiting>>,
    /// Calls under a key, to be told when they are cancelled.
    calls: Mutex<HashMap<Id, watch::Sender<bool>>>,
    /// How many there are, for whoever waits for the last.
    running: watch::Sender<usize>,
    /// One list at a time is asked for on our own account.
    pub(crate) listing: tokio::sync::Mutex<()>,
    pub(crate) lists: AtomicU64,
}

pub(crate) enum Waiting {
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
        session
            .talk(&mut client.says, &mut server.says, drain)
            .await;
        // First this: a call that comes now was not sent. The other way round it would begin to wait after the waiters
        // were let go, for an answer that nobody gives.
        session.to_server.lock().take();
        // Whoever still waits for the server learns that it is gone, and settles.
        session.waiting.lock().clear();
        let mut running = session.running.subscribe();
        let _ = tokio::time::timeout(drain, none(&mut running)).await;
    }

    /// Until the server says no more, or its caller has left and what that left running has ended.
    async fn talk(
        self: &Arc<Self>,
        client: &mut mpsc::Receiver<Bytes>,
        server: &mut mpsc::Receiver<Bytes>,
        drain: Duration,
    ) {
        // Side by side: an end that takes no more for a while is still heard. Many servers read on only when what they say
        // is taken.
        let from_client = async {
            while let Some(text) = client.recv().await {
                self.client_says(text).await;
            }
            self.client_left(drain).await;
        };
        let from_server = async {
            while let Some(text) = server.recv().await {
                self.server_says(text).await;
            }
        };
        tokio::select! {
            () = from_client => {}
            () = from_server => {}
        }
    }

    /// A caller that has left may have left something running: the server hears of it when that has ended, or has had
    /// its time.
    async fn client_left(&self, drain: Duration) {
        let mut running = self.running.subscribe();
        tokio::select! {
            () = none(&mut running) => {}
            () = self.gateway.sleep(drain) => return,
        }
        self.to_server.lock().take();
        self.gateway.sleep(LAST_WORDS).await;
    }

    async fn tell_client(&self, text: Bytes) {
        // A client that is gone reads nothing: its call is done and recorded all the same.
        let _ = self.to_client.send(text).await;
    }

    pub(crate) async fn tell_server(&self, text: Bytes) {
        self.try_tell_server(text).await;
    }

    pub(crate) async fn try_tell_server(&self, text: Bytes) -> bool {
        let server = self.to_server.lock().clone();
        match server {
            Some(server) => server.send(text).await.is_ok(),
            None => false,
        }
    }

    pub(crate) async fn client_says(self: &Arc<Self>, text: Bytes) {
        let message = Message::new(text);
        match (&message.kind, message.method()) {
            (Kind::Request { .. }, Some("tools/call")) => return self.call(message).await,
            (Kind::Request { id, .. }, Some("tools/list")) => {
                self.waiting.lock().insert(id.clone(), Waiting::Page);
            }
            (Kind::Notification { .. }, Some("notifications/cancelled")) => {
                self.cancelled(&message);
            }
            (Kind::Batch, _) if self.gateway.settings.enforces() && self.has_call(&message) => {
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
        messages
            .any(|message| Call::read(&message).is_some_and(|call| self.gateway.concerns(&call)))
    }

    fn cancelled(&self, message: &Message) {
        let id = message
            .params()
            .get("requestId")
            .map(|raw| Id(raw.get().into()));
        if let Some(call) = id.and_then(|id| self.calls.lock().get(&id).cloned()) {
            call.send_replace(true);
        }
    }

    pub(crate) async fn server_says(&self, text: Bytes) {
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
            // What is only observed is refused nothing (P39).
            if !self.gateway.settings.enforces() {
                return self.tell_server(message.text).await;
            }
            let text = "this id is in use by a call that still runs, or too many calls run";
            return self
                .tell_client(message::error(&call.id, -32600, text))
                .await;
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
            session
                .running
                .send_modify(|running| *running = running.saturating_sub(1));
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

    async fn protect(
        self: &Arc<Self>,
        message: Message,
        call: Call,
        cancel: watch::Receiver<bool>,
    ) {
        let known = self.known(&call).await;
        let reply = match self.gateway.plan(call, known, &self.caller) {
            Plan::Pass => return self.tell_server(message.text).await,
            Plan::Keyless(text) => return self.tell_server(text).await,
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
}

/// Ends when nothing runs.
async fn none(running: &mut watch::Receiver<usize>) {
    // An error says that the session is gone: nothing runs in it.
    let _ = running.wait_for(|running| *running == 0).await;
}
