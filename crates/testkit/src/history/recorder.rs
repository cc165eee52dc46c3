//! [`Recorder`]: a store wrapper that records every call.

use std::sync::Arc;

use bytes::Bytes;
use semel_core::{
    BoxFuture, Certainty, Claim, Claimed, CrashPolicy, Fence, Grant, Identity, Record, Renewed,
    Resolution, Resolved, Settled, Settlement, Store, StoreAdmin, StoreResult,
};

use super::event::{
    CallRecord, CallReply, CallRequest, EffectRecord, OPERATOR, checkpoint_mark, key_of, mark,
};
use super::lines::Line;
use super::log::HistoryLog;
use super::replies::{claimed, micros, stand};

/// A store whose calls are written down, for one client.
///
/// What sends calls twice on its own goes above a recorder, not below: a settlement that was done
/// the first time and refused the second would be written down as refused.
#[derive(Clone)]
pub struct Recorder {
    pub(super) inner: Arc<dyn StoreAdmin>,
    pub(super) log: HistoryLog,
    pub(super) client: u32,
}

impl HistoryLog {
    /// `store`, as `client` calls it.
    #[must_use]
    pub fn recorder(&self, store: Arc<dyn StoreAdmin>, client: u32) -> Recorder {
        Recorder {
            inner: store,
            log: self.clone(),
            client,
        }
    }
}

impl Recorder {
    /// The same store, as an operator calls it who sits beside this client: what it settles is an
    /// unlock.
    #[must_use]
    pub fn operator(&self) -> Self {
        Self {
            client: self.client | OPERATOR,
            ..self.clone()
        }
    }

    /// Writes down that an effect begins.
    pub fn effect_started(&self, identity: &Identity, fence: Fence, attempt: u16) {
        self.start_effect(identity, (fence, attempt), None);
    }

    /// Writes down that an effect begins, unless the time of the log is past `deadline`, in
    /// microseconds. → whether it may begin.
    pub fn effect_started_before(
        &self,
        deadline: u64,
        identity: &Identity,
        fence: Fence,
        attempt: u16,
    ) -> bool {
        self.start_effect(identity, (fence, attempt), Some(deadline))
    }

    /// The time by the clock of the log, in microseconds.
    #[must_use]
    pub fn time(&self) -> u64 {
        self.log.time()
    }

    fn start_effect(
        &self,
        identity: &Identity,
        (fence, attempt): (Fence, u16),
        deadline: Option<u64>,
    ) -> bool {
        let (client, key, began) = (self.client, key_of(identity), self.log.time());
        if deadline.is_some_and(|deadline| began >= deadline) {
            return false;
        }
        let effect = EffectRecord {
            client,
            key,
            fence: fence.0,
            attempt,
            start: self.log.tick(),
            began,
            end: None,
        };
        match &self.log.shared.pen {
            Some(pen) => pen.write(&Line::Began(effect)),
            None => self.log.shared.history.lock().effects.push(effect),
        }
        true
    }

    /// Writes down that the effect under this lease is over.
    pub fn effect_finished(&self, identity: &Identity, fence: Fence) {
        let (key, end) = (key_of(identity), self.log.tick());
        if let Some(pen) = &self.log.shared.pen {
            let (client, fence) = (self.client, fence.0);
            return pen.write(&Line::Finished {
                client,
                key,
                fence,
                end,
            });
        }
        let mut history = self.log.shared.history.lock();
        let mut effects = history.effects.iter_mut().rev();
        let ours = |effect: &&mut EffectRecord| {
            effect.client == self.client && effect.key == key && effect.fence == fence.0
        };
        if let Some(effect) = effects.find(ours) {
            effect.end = Some(end);
        }
    }

    /// Records a call before it is sent, so that it is known even if its reply is lost.
    fn asked(&self, identity: &Identity, ask: CallRequest) -> usize {
        let call = CallRecord {
            client: self.client,
            key: key_of(identity),
            began: self.log.time(),
            start: self.log.tick(),
            end: None,
            ended: None,
            ask,
            reply: CallReply::Unanswered,
        };
        if let Some(pen) = &self.log.shared.pen {
            return pen.asked(call);
        }
        let mut history = self.log.shared.history.lock();
        history.calls.push(call);
        history.calls.len() - 1
    }

    fn answered(&self, index: usize, reply: CallReply) {
        let (end, ended) = (self.log.tick(), self.log.time());
        if let Some(pen) = &self.log.shared.pen {
            return pen.write(&Line::Answered {
                number: index,
                end,
                ended,
                reply,
            });
        }
        let mut history = self.log.shared.history.lock();
        let call = &mut history.calls[index];
        (call.end, call.ended, call.reply) = (Some(end), Some(ended), reply);
    }

    async fn recorded<'a, T>(
        &self,
        identity: &Identity,
        ask: CallRequest,
        send: impl FnOnce() -> BoxFuture<'a, StoreResult<T>> + Send,
        to_reply: impl Fn(&T) -> CallReply + Send,
    ) -> StoreResult<T> {
        let index = self.asked(identity, ask);
        let result = send().await;
        let reply = match &result {
            Ok(answer) => to_reply(answer),
            Err(error) => CallReply::Failed {
                definite: error.certainty == Certainty::Definite,
            },
        };
        self.answered(index, reply);
        result
    }
}

#[deny(
    clippy::missing_trait_methods,
    reason = "a wrapper passes every call on"
)]
impl Store for Recorder {
    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, StoreResult<Claimed>> {
        let ask = CallRequest::Claim {
            token: claim.token.0,
            payload: mark(&claim.fingerprint),
            hold: claim.terms.crash() == CrashPolicy::Hold,
            lease: micros(claim.terms.lease()),
            retention: micros(claim.terms.retention()),
            max_attempts: claim.terms.max_attempts(),
        };
        let to_reply = |answer: &Claimed| claimed(&claim.identity, answer);
        Box::pin(self.recorded(&claim.identity, ask, || self.inner.claim(claim), to_reply))
    }

    fn renew<'a>(
        &'a self,
        lease: &'a Grant,
        checkpoint: Option<&'a Bytes>,
    ) -> BoxFuture<'a, StoreResult<Renewed>> {
        let ask = CallRequest::Renew {
            fence: lease.fence.0,
            token: lease.token.0,
            checkpoint: checkpoint.map(|checkpoint| checkpoint_mark(checkpoint)),
        };
        let to_reply = |answer: &Renewed| match answer {
            Renewed::Held => CallReply::Held,
            Renewed::Lost => CallReply::Lost,
        };
        let send = move || self.inner.renew(lease, checkpoint);
        Box::pin(self.recorded(&lease.identity, ask, send, to_reply))
    }

    fn settle<'a>(
        &'a self,
        lease: &'a Grant,
        settlement: &'a Settlement,
    ) -> BoxFuture<'a, StoreResult<Settled>> {
        let (fence, token) = (lease.fence.0, lease.token.0);
        let ask = CallRequest::Settle {
            fence,
            token,
            ending: settlement.into(),
        };
        let to_reply = |answer: &Settled| match answer {
            Settled::Done => CallReply::Done,
            Settled::Lost => CallReply::Lost,
        };
        let send = move || self.inner.settle(lease, settlement);
        Box::pin(self.recorded(&lease.identity, ask, send, to_reply))
    }

    fn resolve<'a>(
        &'a self,
        identity: &'a Identity,
        fence: Fence,
        resolution: &'a Resolution,
    ) -> BoxFuture<'a, StoreResult<Resolved>> {
        let ask = CallRequest::Resolve {
            fence: fence.0,
            ending: resolution.into(),
        };
        let to_reply = |answer: &Resolved| match answer {
            Resolved::Done => CallReply::Done,
            Resolved::NotInDoubt => CallReply::NotInDoubt,
        };
        let send = move || self.inner.resolve(identity, fence, resolution);
        Box::pin(self.recorded(identity, ask, send, to_reply))
    }

    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<Option<Record>>> {
        let to_reply = |found: &Option<Record>| CallReply::Seen(found.as_ref().map(stand));
        Box::pin(self.recorded(
            identity,
            CallRequest::Read,
            || self.inner.read(identity),
            to_reply,
        ))
    }

    semel_core::forward_store!(|self| self.inner => watch, capabilities);
}

/// Of an operator's calls only deletions are written down: the others change no live record.
#[deny(
    clippy::missing_trait_methods,
    reason = "a wrapper passes every call on"
)]
impl StoreAdmin for Recorder {
    fn delete<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<bool>> {
        let to_reply = |found: &bool| CallReply::Deleted(*found);
        Box::pin(self.recorded(
            identity,
            CallRequest::Delete,
            || self.inner.delete(identity),
            to_reply,
        ))
    }

    semel_core::forward_store!(|self| self.inner => list, restore, sweep, expired, now, stats, connections, diagnose);
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recorder(client {}, {:?})", self.client, self.log)
    }
}
