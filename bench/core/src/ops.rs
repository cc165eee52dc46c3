//! The operations whose instructions are counted.

use std::hash::BuildHasher as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use clap::ValueEnum;
use futures_util::FutureExt as _;
use hashbrown::{DefaultHashBuilder, HashMap};
use parking_lot::Mutex;
use semel::core::engine::{Engine, Report, Request, Response, Verdict};
use semel::core::{
    Answer, Claim, ClaimTerms, Claimed, CrashPolicy, Fingerprint, Identity, Key, MemoryConfig,
    MemoryStore, Namespace, Record, Settled, Settlement, Store, Token,
};
use semel::{Policy, tokio_env};

use crate::keys::keys;
use crate::layer::{self, Case};

/// What to count.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Op {
    /// Two writes to a sharded map.
    Bare,
    /// One read of a sharded map.
    BareRead,
    /// Claim and settle on the memory store.
    ClaimSettle,
    /// A claim that replays, on the memory store.
    Replay,
    /// A whole run of the engine: identity, claim, effect, settle.
    Run,
    /// The same, with an effect that has to wait once.
    RunWaits,
    /// A whole run, from the builder down, with a JSON payload of 5 members and a JSON answer.
    RunPayload,
    /// A whole run that replays, from the local copy.
    RunReplay,
    /// Encodes and decodes a completed record, as the stores do that pack their records.
    RecordCodec,
    /// A request to a handler, without the layer.
    NoLayer,
    /// A request with a new key through the layer.
    LayerNewKey,
    /// A request through the layer that replays.
    LayerReplay,
    /// A request without a key through the layer.
    LayerNoKey,
}

impl Op {
    /// Its name on the command line and in the budgets.
    #[must_use]
    pub fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Bare => "bare map, two writes",
            Self::BareRead => "bare map, one read",
            Self::ClaimSettle => "memory store: claim + settle, 256-byte answer",
            Self::Replay => "memory store: replay, 256-byte answer",
            Self::Run => "engine: a whole run, 256-byte answer",
            Self::RunWaits => "engine: a whole run whose effect waits",
            Self::RunPayload => "Semel: a whole run, JSON payload and answer",
            Self::RunReplay => "engine: a whole run that replays",
            Self::RecordCodec => "record: encode + decode, 256-byte answer",
            Self::NoLayer => "no layer",
            Self::LayerNewKey => "layer: a new key, small JSON",
            Self::LayerReplay => "layer: a replay, small JSON",
            Self::LayerNoKey => "layer: no key",
        }
    }
}

/// How large the answers are.
pub const ANSWER_BYTES: usize = 256;

/// Does it so many times, then ends the process.
///
/// # Errors
/// Where the operation fails.
pub fn repeat(op: Op, times: u64) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match op {
            Op::Run => engine_run(times, |i| i, false).await?,
            Op::RunWaits => engine_run(times, |i| i, true).await?,
            Op::RunReplay => engine_run(times, |_| 0, false).await?,
            Op::RunPayload => semel_run(times).await?,
            Op::RecordCodec => record_codec(times)?,
            Op::NoLayer => layer::without(times).await?,
            Op::LayerNewKey => layer::with(times, Case::NewKey).await?,
            Op::LayerReplay => layer::with(times, Case::Replay).await?,
            Op::LayerNoKey => layer::with(times, Case::NoKey).await?,
            _ => store_op(op, times)?,
        }
        // Exits without dropping the records, which is no part of the operation.
        std::process::exit(0)
    })
}

fn store_op(op: Op, times: u64) -> anyhow::Result<()> {
    let (store, terms, map) = (memory(1_000_000), terms()?, BareMap::new()?);
    let namespace = Namespace::new("", "", "charge")?;
    map.two_writes([0; 16]);
    assert!(claim_settle_once(&store, &namespace, terms, u64::MAX));
    for i in 0..times {
        match op {
            Op::Bare => map.two_writes(identity(i).address()),
            Op::BareRead => drop(black_box(map.read(&[0; 16]))),
            Op::Replay => assert!(!claim_settle_once(&store, &namespace, terms, u64::MAX)),
            _ => assert!(claim_settle_once(&store, &namespace, terms, i)),
        }
    }
    // Leaks the records, which is no part of the operation.
    std::mem::forget((store, map));
    Ok(())
}

fn record_codec(times: u64) -> anyhow::Result<()> {
    let completed = Bytes::from(packed_records()?.1);
    for _ in 0..times {
        let record = Record::decode(black_box(&completed))?;
        assert_eq!(black_box(record.encode()).len(), completed.len());
    }
    Ok(())
}

/// A sharded map that takes the same two writes, without any guarantees.
struct BareMap {
    shards: Vec<Mutex<HashMap<[u8; 16], Bytes>>>,
    hasher: DefaultHashBuilder,
    running: Vec<u8>,
    completed: Vec<u8>,
}

impl BareMap {
    fn new() -> anyhow::Result<Self> {
        let (running, completed) = packed_records()?;
        let shards = (0..128).map(|_| Mutex::default()).collect();
        Ok(Self {
            shards,
            hasher: DefaultHashBuilder::default(),
            running,
            completed,
        })
    }

    fn shard(&self, key: &[u8; 16]) -> &Mutex<HashMap<[u8; 16], Bytes>> {
        let hash = self.hasher.hash_one(key);
        &self.shards[usize::try_from(hash >> 32).unwrap_or(0) % self.shards.len()]
    }

    fn two_writes(&self, key: [u8; 16]) {
        self.shard(&key)
            .lock()
            .insert(key, self.running.clone().into());
        self.shard(&key)
            .lock()
            .insert(key, self.completed.clone().into());
    }

    fn read(&self, key: &[u8; 16]) -> Option<Bytes> {
        self.shard(key).lock().get(key).cloned()
    }
}

/// What a store that packs its records writes at claim, and then at settle.
fn packed_records() -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
    let store = memory(1);
    let namespace = Namespace::new("", "", "charge")?;
    let claim = claim(&namespace, terms()?, 0);
    let packed = || {
        let record = store
            .read(&claim.identity)
            .now_or_never()
            .context("it never waits")??;
        anyhow::Ok(record.context("the record is there")?.encode())
    };
    let claimed = store
        .claim(&claim)
        .now_or_never()
        .context("it never waits")??;
    let Claimed::Won(grant) = claimed else {
        anyhow::bail!("the store was empty")
    };
    let running = packed()?;
    let settlement = Settlement::Complete(Answer::from_body(vec![7_u8; ANSWER_BYTES]).into());
    store
        .settle(&grant, &settlement)
        .now_or_never()
        .context("it never waits")??;
    Ok((running, packed()?))
}

pub(crate) fn terms() -> anyhow::Result<ClaimTerms> {
    let day = Duration::from_secs(24 * 60 * 60);
    Ok(ClaimTerms::new(
        Duration::from_secs(30),
        day,
        CrashPolicy::Takeover,
        5,
    )?)
}

/// Spread like a digest, at no cost.
pub(crate) fn identity(i: u64) -> Identity {
    let mut bytes = [0; 32];
    let mut x = i;
    for chunk in bytes.chunks_mut(8) {
        x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        chunk.copy_from_slice(&(mixed ^ (mixed >> 27)).to_le_bytes());
    }
    Identity::from_bytes(bytes)
}

pub(crate) fn memory(capacity: usize) -> MemoryStore {
    MemoryStore::new(
        MemoryConfig::default().with_capacity(capacity),
        tokio_env().clock,
    )
}

/// A claim of the `i`-th identity.
#[must_use]
pub fn claim(namespace: &Namespace, terms: ClaimTerms, i: u64) -> Claim {
    Claim {
        retry: false,
        identity: identity(i),
        fingerprint: Fingerprint::from_bytes([1; Fingerprint::BYTES]),
        token: Token(u128::from(i) + 1),
        terms,
        secret_id: 0,
        namespace: namespace.clone(),
        hint: Default::default(),
    }
}

/// Whether the claim won.
pub(crate) fn claim_settle_once(
    store: &MemoryStore,
    namespace: &Namespace,
    terms: ClaimTerms,
    i: u64,
) -> bool {
    let claim = claim(namespace, terms, i);
    let claimed = store
        .claim(&claim)
        .now_or_never()
        .expect("the memory store never waits");
    let Ok(Claimed::Won(grant)) = claimed else {
        black_box(claimed.expect("the store has room"));
        return false;
    };
    let settlement = Settlement::Complete(Answer::from_body(vec![7_u8; ANSWER_BYTES]).into());
    let settled = store.settle(&grant, &settlement).now_or_never();
    assert!(matches!(settled, Some(Ok(Settled::Done))));
    true
}

async fn engine_run(times: u64, number: impl Fn(u64) -> u64, waits: bool) -> anyhow::Result<()> {
    let engine = Engine::new(Arc::new(memory(1_000_000)), tokio_env());
    let namespace = Namespace::new("", "acme", "charge")?;
    let policy = Arc::new(Policy::default());
    for (_, key) in (0..times).zip(keys(number)) {
        let key = Key::parse(&key)?;
        let fingerprint = Fingerprint::builder(engine.secret()).part(b"4200").finish();
        let (namespace, policy) = (namespace.clone(), Arc::clone(&policy));
        let request = Request::new(&engine, namespace, &key, fingerprint, policy);
        let effect = move |_| async move {
            if waits {
                tokio::task::yield_now().await;
            }
            let answer = Answer::from_body(vec![7_u8; ANSWER_BYTES]);
            Report::new((), Verdict::Complete(answer))
        };
        let response = engine.execute(request, effect).await;
        assert!(matches!(response, Response::Ran(_) | Response::Replayed(_)));
    }
    std::mem::forget(engine);
    Ok(())
}

#[derive(serde::Serialize)]
struct Order {
    id: u64,
    cents: u64,
    currency: &'static str,
    customer: &'static str,
    note: Option<&'static str>,
}

async fn semel_run(times: u64) -> anyhow::Result<()> {
    let semel = semel::Semel::open("memory://?capacity=1000000").await?;
    for (i, key) in (0..times).zip(keys(|i| i)) {
        let order = Order {
            id: i,
            cents: 4200,
            currency: "EUR",
            customer: "cus_81",
            note: None,
        };
        let call = semel.operation("charge").key(&key).payload(&order);
        let answer = call.run(|_| async { Ok::<_, std::io::Error>("x".repeat(ANSWER_BYTES)) });
        assert!(!answer.await?.replayed);
    }
    std::mem::forget(semel);
    Ok(())
}
