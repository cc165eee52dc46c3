//! The claim path and the storage of a broken store.

use std::time::Duration;

use semel_core::{Busy, Claim, Claimed, Identity, InDoubt, Record, StoreResult, protocol};

use super::{BrokenStore, Bug, claim};

impl BrokenStore {
    /// The identity under which a store with this bug looks for the claimed key.
    fn looked_up(&self, ask: &Claim) -> Identity {
        if !self.has(Bug::KeyWithoutNamespace) {
            return ask.identity;
        }
        let kept = self.shared.kept.lock();
        let known = kept.records.iter();
        let known =
            known.filter_map(|(address, packed)| Some((address, Record::decode(packed).ok()?)));
        let mut same = known
            .filter(|(_, record)| record.hint == ask.hint && record.fingerprint == ask.fingerprint);
        let same = same.next();
        same.map_or(ask.identity, |(address, record)| {
            Identity::from_halves(address, &record.seal)
        })
    }

    /// What a replica that is one write behind says, where that needs no write.
    fn lagging(&self, ask: &Claim) -> Option<Claimed> {
        if !self.elsewhere || !self.has(Bug::ReplicaLags) {
            return None;
        }
        let kept = self.shared.kept.lock();
        let previous = kept.previous.get(&ask.identity.address())?;
        let record = Record::decode_for(&ask.identity, previous).ok()?;
        let decision = claim::claim(None, Some(&record), ask, self.now());
        decision.write.is_none().then_some(decision.answer)
    }

    pub(super) fn claim_once(&self, ask: &Claim) -> StoreResult<Claimed> {
        if let Some(answer) = self.lagging(ask) {
            return Ok(answer);
        }
        if !self.has(Bug::ClaimWithoutTheKey) {
            let found = self.load(&self.shared.kept.lock(), &ask.identity)?;
            protocol::check_keys(found.as_ref(), ask, self.now())?;
        }
        let decide = |found: Option<&Record>, now| claim::claim(self.shared.bug, found, ask, now);
        let answer = self.step(&self.looked_up(ask), decide)?;
        let is_replay = matches!(answer, Claimed::Replay(_));
        if self.elsewhere && is_replay && self.has(Bug::AnswerIsBusyElsewhere) {
            return Ok(protocol::overtaken());
        }
        if self.elsewhere
            && self.has(Bug::AnswerIsDoubtedElsewhere)
            && is_replay
            && let Some(record) = self.load(&self.shared.kept.lock(), &ask.identity)?
        {
            return Ok(Claimed::InDoubt(InDoubt {
                fence: record.fence,
                attempt: record.attempt,
                checkpoint: record.checkpoint,
            }));
        }
        if !matches!(answer, Claimed::Won(_)) {
            self.shared.kept.lock().lost.insert(ask.identity.address());
        }
        Ok(answer)
    }

    /// Reads, lets others go first, and writes all the same.
    pub(super) async fn claim_unguarded(&self, ask: &Claim) -> StoreResult<Claimed> {
        let found = self.load(&self.shared.kept.lock(), &ask.identity)?;
        let decision = claim::claim(self.shared.bug, found.as_ref(), ask, self.now());
        round_trip().await;
        if let Some(record) = &decision.write {
            self.save(&mut self.shared.kept.lock(), &ask.identity, record)?;
        }
        Ok(decision.answer)
    }

    /// Locks the key, and unlocks it only if it gets that far.
    pub(super) async fn claim_locked(&self, ask: &Claim) -> StoreResult<Claimed> {
        let address = ask.identity.address();
        if !self.shared.kept.lock().locks.insert(address) {
            let retry_after = ask.terms.lease();
            return Ok(Claimed::Busy(Busy {
                since: Duration::ZERO,
                attempt: 1,
                retry_after,
            }));
        }
        round_trip().await;
        let answer = self.claim_once(ask);
        self.shared.kept.lock().locks.remove(&address);
        answer
    }

    /// Sends, and takes the first reply that comes.
    pub(super) async fn claim_piped(&self, ask: &Claim) -> StoreResult<Claimed> {
        let answer = self.claim_once(ask)?;
        self.shared.kept.lock().replies.push_back(answer.clone());
        tokio::task::yield_now().await;
        let first = self.shared.kept.lock().replies.pop_front();
        Ok(first.unwrap_or(answer))
    }
}

/// As long as a way to a server and back: others get a word in.
pub(super) async fn round_trip() {
    for _ in 0..16 {
        // Other tasks of this thread, and other threads of this machine.
        tokio::task::yield_now().await;
        std::thread::yield_now();
    }
}
