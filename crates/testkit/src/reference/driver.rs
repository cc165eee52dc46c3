//! Differential test: applies one sequence to a store and to the reference, and compares every
//! answer.

use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use semel_core::store::Query;
use semel_core::{
    Claim, Claimed, Clock as _, Fence, Grant, Identity, StoreAdmin, StoreResult, Token,
};

use super::op::{KEYS, LeaseChoice, Moment, Named, OWNERS, Op};
use super::rules::KeyModel;
use super::tables::{LONGEST_RETENTION, TABLES, Tables};
use super::tally::{Rule, RuleTally};
use semel_conformance::clock::FakeClock;

/// An answer of the store that is not the reference's.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The place of the step in the sequence, from 0; past its end for the last look at everything.
    pub step: usize,
    /// By which rule the reference answered.
    pub rule: Rule,
    /// What the reference answered.
    pub expected: String,
    /// What the store answered.
    pub found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "step {} differs", self.step + 1)?;
        writeln!(f, "  reference: {} ({})", self.expected, self.rule)?;
        write!(f, "  store:     {}", self.found)
    }
}

/// Applies `ops` to `store`, whose clock `clock` has to be, and to the reference.
///
/// The store has to be empty of the driver's keys, and is so again afterwards: in the end
/// everything expires and is swept, and that is compared too.
///
/// # Errors
/// The first [`Difference`].
pub async fn compare(
    store: &dyn StoreAdmin,
    clock: &FakeClock,
    ops: &[Op],
    tally: &mut RuleTally,
) -> Result<(), Difference> {
    let mut run = Run::new(store, clock, tally);
    for (step, op) in ops.iter().enumerate() {
        run.step = step;
        run.apply(*op).await?;
    }
    run.step = ops.len();
    run.look_at_all().await?;
    run.advance(LONGEST_RETENTION);
    run.look_at_all().await?;
    run.sweep().await?;
    let records = store.stats().await.map(|stats| stats.records);
    run.same(Rule::Swept, &0, records)
}

/// What one owner knows of one key.
#[derive(Clone, Default)]
struct LiveLease {
    token: Option<Token>,
    last: Option<Grant>,
    older: Option<Grant>,
}

/// A sequence under way.
pub(super) struct Run<'a> {
    pub(super) store: &'a dyn StoreAdmin,
    clock: &'a FakeClock,
    tables: &'static Tables,
    pub(super) tally: &'a mut RuleTally,
    pub(super) now: u64,
    step: usize,
    tokens: u128,
    pub(super) models: [KeyModel<'static>; KEYS],
    held: [[LiveLease; OWNERS]; KEYS],
    winners: [Option<Grant>; KEYS],
}

impl<'a> Run<'a> {
    fn new(store: &'a dyn StoreAdmin, clock: &'a FakeClock, tally: &'a mut RuleTally) -> Self {
        let tables = LazyLock::force(&TABLES);
        Self {
            store,
            clock,
            tables,
            tally,
            now: clock.wall().as_micros(),
            step: 0,
            tokens: 0,
            models: tables.subjects.each_ref().map(KeyModel::new),
            held: Default::default(),
            winners: Default::default(),
        }
    }

    async fn apply(&mut self, op: Op) -> Result<(), Difference> {
        self.tally.operations += 1;
        match op {
            Op::Claim {
                key,
                owner,
                again,
                payload,
                terms,
            } => {
                let claim = self.asked(key, owner, again, payload, terms);
                self.claim(key, owner, &claim).await
            }
            Op::Renew {
                key,
                owner,
                lease,
                checkpoint,
            } => {
                let lease = self.lease(key, owner, lease);
                self.renew(key, &lease, checkpoint).await
            }
            Op::Settle {
                key,
                owner,
                lease,
                settlement,
            } => {
                let lease = self.lease(key, owner, lease);
                self.settle(key, &lease, settlement).await
            }
            Op::Resolve {
                key,
                fence,
                resolution,
            } => {
                let fence = self.fence(key, fence);
                self.resolve(key, fence, resolution).await
            }
            Op::Read { key } => self.read(key).await,
            Op::Delete { key } => {
                let (rule, expected) = self.models[key].delete(self.now);
                let found = self.store.delete(self.identity(key)).await;
                self.same(rule, &expected, found)
            }
            Op::Restore { key } => self.restore(key).await,
            Op::Sweep => self.sweep().await,
            Op::List {
                state,
                tenant,
                limit,
            } => {
                let tenant = tenant.map(|at| self.tables.tenants[at].to_owned());
                self.list(
                    Query::default()
                        .with_state(state)
                        .with_tenant(tenant)
                        .with_limit(limit),
                )
                .await
            }
            Op::Advance(moment) => {
                self.advance(self.until(moment));
                Ok(())
            }
        }
    }

    /// Counts the answer, and checks that both gave the same.
    pub(super) fn same<T: PartialEq + fmt::Debug>(
        &mut self,
        rule: Rule,
        expected: &T,
        found: StoreResult<T>,
    ) -> Result<(), Difference> {
        self.tally.count(rule);
        if found.as_ref().is_ok_and(|found| found == expected) {
            return Ok(());
        }
        let found = match found {
            Ok(found) => format!("{found:?}"),
            Err(error) => format!("error: {error}"),
        };
        Err(Difference {
            step: self.step,
            rule,
            expected: format!("{expected:?}"),
            found,
        })
    }

    pub(super) fn identity(&self, key: usize) -> &'static Identity {
        &self.tables.subjects[key].identity
    }

    fn asked(
        &mut self,
        key: usize,
        owner: usize,
        again: bool,
        payload: usize,
        terms: usize,
    ) -> Claim {
        let subject = &self.tables.subjects[key];
        let token = self.held[key][owner]
            .token
            .filter(|_| again)
            .unwrap_or_else(|| {
                self.tokens += 1;
                Token(self.tokens)
            });
        Claim {
            // Every other asker says that it is a retry, which must not make a difference (P4).
            retry: token.0.is_multiple_of(2),
            identity: subject.identity,
            fingerprint: self.tables.payloads[payload],
            token,
            terms: self.tables.terms[terms],
            secret_id: subject.secret_id,
            namespace: subject.namespace.clone(),
            hint: subject.hint,
        }
    }

    async fn claim(&mut self, key: usize, owner: usize, claim: &Claim) -> Result<(), Difference> {
        let (rule, expected) = self.models[key].claim(claim, self.now);
        let found = self.store.claim(claim).await;
        self.same(rule, &expected, found)?;
        let held = &mut self.held[key][owner];
        held.token = Some(claim.token);
        let Claimed::Won(grant) = expected else {
            return Ok(());
        };
        if held
            .last
            .as_ref()
            .is_none_or(|last| last.fence != grant.fence)
        {
            held.older = held.last.replace(grant.clone());
            let by_clock = grant.fence.0 == self.now;
            self.tally.count(if by_clock {
                Rule::FenceByClock
            } else {
                Rule::FenceByLast
            });
        }
        self.winners[key] = Some(grant);
        Ok(())
    }

    async fn renew(
        &mut self,
        key: usize,
        lease: &Grant,
        checkpoint: Option<usize>,
    ) -> Result<(), Difference> {
        let checkpoint = checkpoint.map(|at| &self.tables.checkpoints[at]);
        let (rule, expected) = self.models[key].renew(lease, checkpoint, self.now);
        let found = self.store.renew(lease, checkpoint).await;
        self.same(rule, &expected, found)
    }

    async fn settle(&mut self, key: usize, lease: &Grant, end: usize) -> Result<(), Difference> {
        let end = &self.tables.settlements[end];
        let (rule, expected) = self.models[key].settle(lease, end, self.now);
        let found = self.store.settle(lease, end).await;
        self.same(rule, &expected, found)
    }

    async fn resolve(&mut self, key: usize, fence: Fence, end: usize) -> Result<(), Difference> {
        let end = &self.tables.resolutions[end];
        let (rule, expected) = self.models[key].resolve(fence, end, self.now);
        let found = self.store.resolve(self.identity(key), fence, end).await;
        self.same(rule, &expected, found)
    }

    async fn restore(&mut self, key: usize) -> Result<(), Difference> {
        let taken = self.models[key].taken();
        let Some((entry, record)) = taken.map(|(entry, record)| (entry.clone(), record)) else {
            return Ok(());
        };
        let (rule, expected) = self.models[key].restore(entry, self.now);
        let found = self.store.restore(self.identity(key), &record).await;
        self.same(rule, &expected, found)
    }

    /// The lease that an owner shows. One that never won shows what it could have made up.
    fn lease(&self, key: usize, owner: usize, which: LeaseChoice) -> Grant {
        let held = &self.held[key][owner];
        let chosen = match which {
            LeaseChoice::Older => held.older.as_ref(),
            _ => held.last.as_ref().or(self.winners[key].as_ref()),
        };
        let Some(chosen) = chosen else {
            return Grant {
                identity: *self.identity(key),
                fence: Fence(self.now),
                token: Token(0),
                attempt: 1,
                crash: semel_core::CrashPolicy::Takeover,
                checkpoint: bytes::Bytes::new(),
                lease: Duration::from_millis(10),
                memo: bytes::Bytes::new(),
            };
        };
        let mut lease = chosen.clone();
        match which {
            LeaseChoice::Last | LeaseChoice::Older => {}
            LeaseChoice::WrongFence => lease.fence.0 += 1,
            LeaseChoice::WrongToken => lease.token.0 ^= 1 << 64,
        }
        lease
    }

    fn fence(&self, key: usize, which: Named) -> Fence {
        let current = self.models[key]
            .entry()
            .map_or(self.now, |entry| entry.fence());
        Fence(match which {
            Named::Current => current,
            Named::Earlier => current - 1,
            Named::Later => current + 1,
        })
    }

    fn until(&self, moment: Moment) -> Duration {
        let (key, after) = match moment {
            Moment::By(micros) => return Duration::from_micros(micros),
            Moment::LeaseEnd { key, after } | Moment::Expiry { key, after } => (key, after),
        };
        let model = &self.models[key];
        let taken = || model.taken().map(|(entry, _)| entry);
        let edge = model.entry().or_else(taken).map(|entry| match moment {
            Moment::LeaseEnd { .. } => entry.lease_end(),
            _ => entry.expiry(),
        });
        let target = edge.and_then(|edge| edge.checked_add_signed(after.into()));
        let ahead = target
            .and_then(|target| target.checked_sub(self.now))
            .filter(|by| *by > 0);
        ahead.map_or(Duration::from_millis(1), Duration::from_micros)
    }

    fn advance(&mut self, by: Duration) {
        self.clock.advance(by);
        self.now = self.clock.wall().as_micros();
    }
}
