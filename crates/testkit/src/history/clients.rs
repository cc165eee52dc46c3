//! Concurrent callers that misbehave in every way that real ones do: they crash, come late, send
//! twice, settle what isn't theirs any more, reuse keys. All from a seed.
//!
//! They record what they do; [`check`](super::check) tells what the store did about it. They keep
//! to their own side of the protocol: an effect is run only under a lease just won, once, and under
//! `hold` nothing is released whose effect has begun.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use semel_core::{
    Answer, Certainty, Claim, ClaimTerms, Claimed, Clock, CrashPolicy, Fence, Fingerprint, Grant,
    Identity, Key, Namespace, Resolution, Secret, Settled, Settlement, Store as _, StoreAdmin,
    StoreResult, Token,
};

use super::replies::micros;
use super::{History, HistoryLog, Recorder};
use semel_conformance::Subject;

/// How many do how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Callers at once.
    pub clients: u32,
    /// Keys that they share; every second one is under `hold`.
    pub keys: usize,
    /// What each caller does before it leaves.
    pub steps: usize,
    /// Where their whims come from.
    pub seed: u64,
    /// What is wrong with them, to show that it is noticed.
    pub flaw: Option<ClientFlaw>,
}

/// How clients may fail to keep their own side of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientFlaw {
    /// An effect begins however late its owner is (I4).
    BeginsLate,
    /// An owner that waited for a lost reply counts its lease from the last sending (I4).
    CountsFromTheLastSending,
    /// An owner gives its key back while its effect is at work (I17).
    ReleasesAtWork,
    /// An owner calls its run a doubt while its effect is at work, and an operator frees the key
    /// (I17).
    DoubtsAtWork,
}

impl Plan {
    /// A short run that meets most situations several times.
    #[must_use]
    pub const fn short(seed: u64) -> Self {
        Self {
            clients: 6,
            keys: 4,
            steps: 150,
            seed,
            flaw: None,
        }
    }
}

impl ClientFlaw {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BeginsLate => "begins_late",
            Self::CountsFromTheLastSending => "counts_from_the_last_sending",
            Self::ReleasesAtWork => "releases_at_work",
            Self::DoubtsAtWork => "doubts_at_work",
        }
    }
}

/// Lets clients loose on `subject`, half of them as another process; gives what happened. `clock`
/// has to run as fast as the store's.
///
/// # Panics
/// Where a client panics.
pub async fn run(subject: Arc<dyn Subject>, clock: Arc<dyn Clock>, plan: Plan) -> History {
    let log = HistoryLog::new(clock);
    let environment = format!("clients-{}", plan.seed);
    let mut tasks = Vec::new();
    for client in 0..plan.clients {
        let store = if client % 2 == 0 {
            subject.store()
        } else {
            subject.another()
        };
        let client = Client::new(&log, store, client, &subject, &environment, plan);
        tasks.push(tokio::spawn(client.live(plan.steps)));
    }
    for task in tasks {
        if let Err(error) = task.await {
            panic!("a client of {plan:?} died: {error}");
        }
    }
    log.history()
}

struct Client {
    store: Recorder,
    subject: Arc<dyn Subject>,
    environment: String,
    rng: StdRng,
    keys: usize,
    flaw: Option<ClientFlaw>,
    /// Leases that were left unsettled, or settled long ago: somebody may come back with them.
    pocket: VecDeque<Grant>,
}

impl Client {
    fn new(
        log: &HistoryLog,
        store: Arc<dyn StoreAdmin>,
        client: u32,
        subject: &Arc<dyn Subject>,
        environment: &str,
        plan: Plan,
    ) -> Self {
        Self {
            store: log.recorder(store, client),
            subject: Arc::clone(subject),
            environment: environment.to_owned(),
            rng: StdRng::seed_from_u64(plan.seed.wrapping_mul(1000).wrapping_add(client.into())),
            keys: plan.keys,
            flaw: plan.flaw,
            pocket: VecDeque::new(),
        }
    }

    async fn live(mut self, steps: usize) {
        for _ in 0..steps {
            match self.rng.random_range(0..100) {
                0..70 => self.ask().await,
                70..80 => self.come_back().await,
                80..84 => self.forget().await,
                84..88 => self.look().await,
                88..90 => drop(self.store.sweep(100).await),
                90..95 => self.wait(0.5).await,
                95..98 => self.wait(1.5).await,
                _ => self.wait(12.0).await,
            }
            tokio::task::yield_now().await;
        }
    }

    async fn forget(&mut self) {
        let claim = self.some_claim();
        drop(self.store.delete(&claim.identity).await);
    }

    async fn look(&mut self) {
        let claim = self.some_claim();
        drop(self.store.read(&claim.identity).await);
    }

    /// Lets up to this many leases' time pass.
    async fn wait(&mut self, leases: f64) {
        let share = self.rng.random::<f64>() * leases;
        self.subject
            .pass(self.subject.spans().lease.mul_f64(share))
            .await;
    }

    fn some_claim(&mut self) -> Claim {
        let (index, odd) = (self.rng.random_range(0..self.keys), self.chance(0.1));
        let crash = if index % 2 == 0 {
            CrashPolicy::Takeover
        } else {
            CrashPolicy::Hold
        };
        let payload: &[u8] = if odd {
            b"another payload"
        } else {
            b"the payload"
        };
        let lease = self.subject.spans().lease;
        claim(
            &self.environment,
            index,
            payload,
            crash,
            lease,
            Token(self.rng.random()),
        )
    }

    fn chance(&mut self, of: f64) -> bool {
        self.rng.random::<f64>() < of
    }

    /// An answer that nobody else gives.
    fn answer(&mut self) -> Arc<Answer> {
        Arc::new(Answer::from_body(
            self.rng.random::<u128>().to_be_bytes().to_vec(),
        ))
    }

    /// Claims a key, again where the reply was lost, and goes on as told.
    async fn ask(&mut self) {
        let claim = self.some_claim();
        let mut sent = self.store.time();
        let mut answer = self.store.claim(&claim).await;
        for _ in 0..3 {
            let again = is_unknown(&answer) || self.chance(0.1);
            if !again {
                break;
            }
            if self.flaw == Some(ClientFlaw::CountsFromTheLastSending) {
                self.wait(1.5).await;
                sent = self.store.time();
            }
            answer = self.store.claim(&claim).await;
        }
        match answer {
            Ok(Claimed::Won(lease)) => {
                let deadline = sent.saturating_add(micros(lease.lease) / 10 * 9);
                self.own(lease, claim.terms.crash(), deadline).await;
                // A copy of the claim may turn up at any time. Whatever it is told, nobody acts on
                // it.
                if self.chance(0.15) {
                    drop(self.store.claim(&claim).await);
                }
            }
            Ok(Claimed::InDoubt(doubt)) if self.chance(0.5) => {
                self.resolve(&claim.identity, doubt.fence).await;
            }
            _ => {}
        }
    }

    /// Ends a doubt, again where the reply was lost, and sometimes thinks better of it.
    async fn resolve(&mut self, identity: &Identity, fence: Fence) {
        let mut resolutions = vec![
            Resolution::Complete(self.answer()),
            Resolution::Fail(self.answer()),
            Resolution::Release,
        ];
        let first = resolutions.swap_remove(self.rng.random_range(0..3));
        let resolved = self.store.resolve(identity, fence, &first).await;
        if is_unknown(&resolved) || self.chance(0.3) {
            drop(self.store.resolve(identity, fence, &first).await);
        }
        if self.chance(0.2) {
            drop(self.store.resolve(identity, fence, &resolutions[0]).await);
        }
    }

    /// Has a lease: runs, or dies first, or comes too late.
    async fn own(&mut self, lease: Grant, crash: CrashPolicy, deadline: u64) {
        match self.rng.random_range(0..10) {
            0..2 => return self.pocket.push_back(lease),
            2 => return self.settle(&lease, Settlement::Release).await,
            _ => {}
        }
        let deadline = match self.flaw {
            Some(ClientFlaw::BeginsLate) => {
                self.wait(1.5).await;
                u64::MAX
            }
            _ => deadline,
        };
        let (key, fence, attempt) = (&lease.identity, lease.fence, lease.attempt);
        if !self
            .store
            .effect_started_before(deadline, key, fence, attempt)
        {
            return self.pocket.push_back(lease);
        }
        if self.flaw.is_some() {
            self.settle_at_work(&lease, crash).await;
        }
        if self.chance(0.3) {
            self.wait(0.8).await;
            drop(self.store.renew(&lease, None).await);
        }
        if self.chance(0.1) {
            self.wait(1.5).await;
        }
        tokio::task::yield_now().await;
        self.store.effect_finished(&lease.identity, lease.fence);
        let settlement = match self.rng.random_range(0..10) {
            0 => return self.pocket.push_back(lease),
            1 => Settlement::Fail(self.answer()),
            2 => Settlement::Doubt,
            3 if crash == CrashPolicy::Takeover => Settlement::Release,
            _ => Settlement::Complete(self.answer()),
        };
        self.settle(&lease, settlement).await;
    }

    /// What no owner may do while its effect is at work.
    async fn settle_at_work(&mut self, lease: &Grant, crash: CrashPolicy) {
        match self.flaw {
            Some(ClientFlaw::ReleasesAtWork) if crash == CrashPolicy::Takeover => {
                self.settle(lease, Settlement::Release).await;
            }
            Some(ClientFlaw::DoubtsAtWork) => {
                self.settle(lease, Settlement::Doubt).await;
                let release = Resolution::Release;
                drop(
                    self.store
                        .resolve(&lease.identity, lease.fence, &release)
                        .await,
                );
            }
            _ => return,
        }
        // Others have their turn meanwhile.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    /// Settles, again where the reply was lost, and sometimes once more, and sometimes otherwise.
    async fn settle(&mut self, lease: &Grant, settlement: Settlement) {
        let first = self.store.settle(lease, &settlement).await;
        if is_unknown(&first) || self.chance(0.15) {
            drop(self.store.settle(lease, &settlement).await);
        }
        if matches!(first, Ok(Settled::Done)) && self.chance(0.1) {
            let another = Settlement::Complete(self.answer());
            drop(self.store.settle(lease, &another).await);
        }
        if self.chance(0.2) {
            self.pocket.push_back(lease.clone());
        }
    }

    /// Comes back with a lease from before.
    async fn come_back(&mut self) {
        let Some(lease) = self.pocket.pop_front() else {
            return;
        };
        if self.chance(0.4) {
            drop(self.store.renew(&lease, None).await);
        } else {
            let settlement = Settlement::Complete(self.answer());
            drop(self.store.settle(&lease, &settlement).await);
        }
        if self.chance(0.5) {
            self.pocket.push_back(lease);
        }
    }
}

fn is_unknown<T>(result: &StoreResult<T>) -> bool {
    result
        .as_ref()
        .is_err_and(|error| error.certainty == Certainty::Unknown)
}

fn claim(
    environment: &str,
    index: usize,
    payload: &[u8],
    crash: CrashPolicy,
    lease: Duration,
    token: Token,
) -> Claim {
    let parts = || {
        let namespace = Namespace::new(environment, "", "scope").ok()?;
        let terms = ClaimTerms::new(lease, lease * 10, crash, 3).ok()?;
        Some((namespace, terms, Key::parse(&format!("key-{index}")).ok()?))
    };
    let Some((namespace, terms, key)) = parts() else {
        unreachable!("plain text makes a key, and a subject's lease makes terms");
    };
    let secret = Secret::none();
    Claim {
        retry: false,
        identity: Identity::new(&secret, &namespace, &key),
        fingerprint: Fingerprint::builder(&secret).part(payload).finish(),
        token,
        terms,
        secret_id: secret.id(),
        namespace,
        hint: key.hint(),
    }
}
