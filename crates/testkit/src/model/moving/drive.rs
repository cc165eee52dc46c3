//! Runs the shipped code (mirror, spilled bodies, copier) as far as its calls have been answered.

use std::sync::Arc;

use semel_core::{Claimed, Fence, Grant, Renewed, Settled, StoreAdmin, StoreResult, Token};
use semel_stores::compose::copy::{CopyOutcome, copy_record};
use semel_stores::compose::{Mirror, Spill};
use semel_stores::encrypted::Keyring;

use super::super::breaks::Break;
use super::super::codec::{answer_no, fence_no, settlement, small, time};
use super::super::world::Verdict;
use super::Moving;
use super::script::{Script, Scripted};
use super::world::{Client, How, Lease, Phase, Place, Run, Sent, Uses};

/// How a call of the engine ended.
pub(super) enum Ended {
    Claimed(StoreResult<Claimed>),
    Renewed(StoreResult<Renewed>),
    Settled(StoreResult<Settled>),
}

impl Moving {
    /// The store that a node has.
    fn store(&self, script: &Arc<Script>, client: &Client) -> Arc<dyn StoreAdmin> {
        let [old, new] = [Place::Old, Place::New].map(|place| script.store(place));
        let pair = |first: Arc<Scripted>, second| Arc::new(Mirror::new(first, second));
        match client.uses {
            Uses::Old => old,
            Uses::New => new,
            Uses::OldAndNew | Uses::NewAndOld => {
                let old_first = (client.uses == Uses::OldAndNew) != self.turns(client);
                if old_first {
                    pair(old, new)
                } else {
                    pair(new, old)
                }
            }
            Uses::Spill => {
                let bodies = script.store(Place::Bodies);
                Arc::new(Spill::new(old, bodies, 0, Arc::clone(&self.still) as _))
            }
        }
    }

    /// Whether a broken rule has the node settle its stores the other way round.
    fn turns(&self, client: &Client) -> bool {
        let settles = matches!(client.phase, Phase::Settling { .. });
        settles && client.uses.stores().len() == 2 && self.has(Break::SecondSettledFirst)
    }

    /// How the node's call ended, or what it asks next.
    pub(super) fn ended(&self, client: &Client) -> Result<Ended, Sent> {
        let heard = client.heard.as_deref().unwrap_or_default();
        let script = Script::new(&self.codec, heard);
        let store = self.store(&script, client);
        let grant = |lease: &Lease| self.grant(client.token, lease);
        match &client.phase {
            Phase::Renewing { lease, .. } | Phase::Working { lease, .. } => {
                let grant = grant(lease);
                script.run(store.renew(&grant, None)).map(Ended::Renewed)
            }
            Phase::Settling {
                lease,
                verdict,
                answer,
            } => {
                let grant = if self.turns(client) {
                    grant(&turned(lease))
                } else {
                    grant(lease)
                };
                let how = how(*verdict, lease, *answer).settlement();
                script.run(store.settle(&grant, &how)).map(Ended::Settled)
            }
            _ => {
                let claim = self.codec.claim(client.token);
                script.run(store.claim(claim)).map(Ended::Claimed)
            }
        }
    }

    /// What became of the record that the copier brings, or what it asks next.
    pub(super) fn brought(&self, run: &Run) -> Option<Result<StoreResult<CopyOutcome>, Sent>> {
        let listed = run.at.as_ref()?;
        let script = Script::new(&self.codec, &listed.heard);
        let to = script.store(Place::New);
        let record = self.codec.record(&listed.row);
        let clocks = self.config.ahead.map(|ahead| time(listed.when + ahead));
        let identity = self.codec.claim(1).identity;
        let (clocks, keys) = (clocks.into(), Keyring::empty());
        let work = copy_record(&*to, run.pass, &identity, &record, clocks, &keys);
        Some(script.run(work))
    }

    fn grant(&self, token: u8, lease: &Lease) -> Grant {
        let ask = self.codec.claim(token);
        Grant {
            identity: ask.identity,
            fence: Fence(u64::from(lease.fence)),
            token: Token(u128::from(token)),
            attempt: u16::from(lease.attempt),
            checkpoint: super::super::codec::checkpoint(lease.checkpoint).unwrap_or_default(),
            lease: ask.terms.lease(),
            crash: lease.crash,
            memo: lease.memo.clone(),
        }
    }
}

/// A lease of two stores as the same two would have given it in the other order: the memo has the
/// second's fence.
fn turned(lease: &Lease) -> Lease {
    let (fence, rest) = lease.memo.split_at(size_of::<u64>());
    let twin = u64::from_le_bytes(fence.try_into().expect("eight bytes"));
    let first = u64::from(lease.fence).to_le_bytes();
    Lease {
        fence: fence_no(Fence(twin)),
        memo: [&first, rest].concat().into(),
        ..lease.clone()
    }
}

pub(super) fn lease(grant: &Grant) -> Lease {
    Lease {
        fence: fence_no(grant.fence),
        attempt: small(grant.attempt),
        checkpoint: !grant.checkpoint.is_empty(),
        crash: grant.crash,
        memo: grant.memo.clone(),
    }
}

/// The settlement that a verdict calls for, with the answer that the effect gave.
pub(super) fn how(verdict: Verdict, lease: &Lease, answer: u16) -> How {
    use semel_core::Settlement;
    match settlement(verdict, lease.crash, answer) {
        Settlement::Complete(answer) => How::Complete(answer_no(&answer)),
        Settlement::Fail(answer) => How::Fail(answer_no(&answer)),
        Settlement::Release => How::Release,
        Settlement::Doubt => How::Doubt,
    }
}
