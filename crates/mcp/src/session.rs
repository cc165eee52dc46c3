//! [`Session`]: relays messages between one client and one server. Calls with a key go through the
//! gateway; everything else passes.

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
use crate::peer::Peer;
use crate::tools::{Catalog, STATUS_TOOL};

/// The largest number of keyed calls of one client at once.
const MAX_CALLS: usize = 1024;

/// How long the server may still send messages after its input was closed.
const FLUSH_TIME: Duration = Duration::from_secs(5);

/// The state of a session.
pub(crate) struct Session {
    pub(crate) gateway: Arc<Gateway>,
    caller: Caller,
    pub(crate) catalog: Arc<Catalog>,
    to_client: mpsc::Sender<Bytes>,
    /// `None` once the server's input is closed.
    to_server: Mutex<Option<mpsc::Sender<Bytes>>>,
    /// Where responses of the server go; a response without an entry passes to the client.
    pub(crate) waiting: Mutex<HashMap<Id, ResponseRoute>>,
    /// Cancellation switches of the running keyed calls.
    calls: Mutex<HashMap<Id, watch::Sender<bool>>>,
    /// The number of running keyed calls.
    running: watch::Sender<usize>,
    /// Serializes the list requests of the gateway.
    pub(crate) listing: tokio::sync::Mutex<()>,
    /// The number of the gateway's own requests.
    pub(crate) requests: AtomicU64,
}

pub(crate) enum ResponseRoute {
    /// A page of the list that the client requested.
    Page,
    /// A response that a task of the gateway waits for.
    Answer(oneshot::Sender<Bytes>),
}

impl Session {
    /// Relays messages until one end closes. Keyed calls then get `drain` to finish.
    pub(crate) async fn run(
        gateway: Arc<Gateway>,
        caller: Caller,
        mut client: Peer,
        mut server: Peer,
        drain: Duration,
    ) {
        let session = Arc::new(Self {
            gateway,
            caller,
            catalog: Arc::default(),
            to_client: client.outgoing,
            to_server: Mutex::new(Some(server.outgoing)),
            waiting: Mutex::default(),
            calls: Mutex::default(),
            running: watch::Sender::new(0),
            listing: tokio::sync::Mutex::default(),
            requests: AtomicU64::new(0),
        });
        session
            .relay_messages(&mut client.incoming, &mut server.incoming, drain)
            .await;
        // Closes the server's input before the waiters are dropped: a call that comes now is
        // reported as not sent. In the other order it would wait for a response that never comes.
        session.to_server.lock().take();
        // Waiting calls learn that the server is gone, and settle.
        session.waiting.lock().clear();
        let mut running = session.running.subscribe();
        let clock = session.gateway.clock();
        let _ = clock.timeout(drain, wait_until_idle(&mut running)).await;
    }

    /// Runs until the server closes, or until the client has left and its calls have finished.
    async fn relay_messages(
        self: &Arc<Self>,
        client: &mut mpsc::Receiver<Bytes>,
        server: &mut mpsc::Receiver<Bytes>,
        drain: Duration,
    ) {
        // Both directions run concurrently, so that a slow reader on one side does not block the
        // other. Many servers stop reading while their output is not read.
        let from_client = async {
            while let Some(text) = client.recv().await {
                self.handle_client_message(text).await;
            }
            self.drain_calls(drain).await;
        };
        let from_server = async {
            while let Some(text) = server.recv().await {
                self.handle_server_message(text).await;
            }
        };
        tokio::select! {
            () = from_client => {}
            () = from_server => {}
        }
    }

    /// Waits for the calls of a client that has left, at most for `drain`, and then closes the
    /// server's input.
    async fn drain_calls(&self, drain: Duration) {
        let mut running = self.running.subscribe();
        tokio::select! {
            () = wait_until_idle(&mut running) => {}
            () = self.gateway.sleep(drain) => return,
        }
        self.to_server.lock().take();
        self.gateway.sleep(FLUSH_TIME).await;
    }

    async fn send_to_client(&self, text: Bytes) {
        // The client may be gone. Its call has settled all the same.
        let _ = self.to_client.send(text).await;
    }

    pub(crate) async fn send_to_server(&self, text: Bytes) {
        self.try_send_to_server(text).await;
    }

    pub(crate) async fn try_send_to_server(&self, text: Bytes) -> bool {
        let server = self.to_server.lock().clone();
        match server {
            Some(server) => server.send(text).await.is_ok(),
            None => false,
        }
    }

    pub(crate) async fn handle_client_message(self: &Arc<Self>, text: Bytes) {
        let message = Message::new(text);
        match (&message.kind, message.method()) {
            (Kind::Request { .. }, Some("tools/call")) => return self.call(message).await,
            (Kind::Request { id, .. }, Some("tools/list")) => {
                self.waiting.lock().insert(id.clone(), ResponseRoute::Page);
            }
            (Kind::Notification { .. }, Some("notifications/cancelled")) => {
                self.cancel_call(&message);
            }
            (Kind::Batch, _) if self.gateway.settings.enforces() && self.has_call(&message) => {
                let text = "tool calls are taken one at a time, not in a batch";
                let id = Id("null".into());
                return self.send_to_client(message::error(&id, -32600, text)).await;
            }
            _ => {}
        }
        self.send_to_server(message.text).await;
    }

    /// Whether a batch contains a call that may need protection.
    fn has_call(&self, batch: &Message) -> bool {
        let messages: Vec<Box<RawValue>> = serde_json::from_slice(&batch.text).unwrap_or_default();
        let mut messages = messages
            .iter()
            .map(|raw| Message::new(Bytes::copy_from_slice(raw.get().as_bytes())));
        messages.any(|message| {
            Call::read(&message).is_some_and(|call| self.gateway.may_need_key(&call))
        })
    }

    fn cancel_call(&self, message: &Message) {
        let id = message
            .params()
            .get("requestId")
            .map(|raw| Id(raw.get().into()));
        if let Some(call) = id.and_then(|id| self.calls.lock().get(&id).cloned()) {
            call.send_replace(true);
        }
    }

    pub(crate) async fn handle_server_message(&self, text: Bytes) {
        let message = Message::new(text);
        match &message.kind {
            Kind::Response { id } => {
                let waiting = self.waiting.lock().remove(id);
                match waiting {
                    // The waiter may have given up; it has handled that case itself.
                    Some(ResponseRoute::Answer(waiter)) => return drop(waiter.send(message.text)),
                    Some(ResponseRoute::Page) => {
                        let (page, _) = self
                            .catalog
                            .read_page(&message.text, &self.gateway.settings);
                        return self.send_to_client(page).await;
                    }
                    None => {}
                }
            }
            Kind::Notification { method } if method == "notifications/tools/list_changed" => {
                self.catalog.mark_changed();
            }
            _ => {}
        }
        self.send_to_client(message.text).await;
    }

    async fn call(self: &Arc<Self>, message: Message) {
        let Some(call) = Call::read(&message) else {
            return self.send_to_server(message.text).await;
        };
        let is_status = call.tool == STATUS_TOOL
            && self.gateway.settings.enforces()
            && self.catalog.get(STATUS_TOOL).is_none();
        self.gateway
            .report_rewording(&call, &self.caller, &self.catalog);
        if !is_status && !self.gateway.may_need_key(&call) {
            return self.send_to_server(message.text).await;
        }
        let Some(cancel) = self.register_call(&call.id) else {
            // In observe mode nothing is refused (P39).
            if !self.gateway.settings.enforces() {
                return self.send_to_server(message.text).await;
            }
            let text = "this id is in use by a call that still runs, or too many calls run";
            return self
                .send_to_client(message::error(&call.id, -32600, text))
                .await;
        };
        let session = Arc::clone(self);
        tokio::spawn(async move {
            let id = call.id.clone();
            match is_status {
                true => {
                    let status = session.gateway.status(&call, &session.caller).await;
                    session.send_to_client(status).await;
                }
                false => session.protect(message, call, cancel).await,
            }
            session.calls.lock().remove(&id);
            session
                .running
                .send_modify(|running| *running = running.saturating_sub(1));
        });
    }

    fn register_call(&self, id: &Id) -> Option<watch::Receiver<bool>> {
        let mut calls = self.calls.lock();
        if calls.len() >= MAX_CALLS || calls.contains_key(id) {
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
        let facts = self.look_up_tool(&call).await;
        let reply = match self.gateway.plan(call, facts, &self.caller) {
            Plan::Pass => return self.send_to_server(message.text).await,
            Plan::Keyless(text) => return self.send_to_server(text).await,
            Plan::Answer(reply) => reply,
            Plan::Run(keyed) => {
                let send = self.send(keyed.call.id.clone(), cancel);
                let lookup = keyed.can_be_verified().then(|| self.lookup());
                self.gateway.run(*keyed, lookup, send).await
            }
        };
        if let Reply::Message(text) = reply {
            self.send_to_client(text).await;
        }
    }
}

/// Completes when no keyed call is running.
async fn wait_until_idle(running: &mut watch::Receiver<usize>) {
    // An error means that the session is gone, and nothing runs in it.
    let _ = running.wait_for(|running| *running == 0).await;
}
