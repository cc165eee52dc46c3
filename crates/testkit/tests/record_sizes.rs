//! The table of record sizes in `docs/scale.md`, from the codec itself.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use semel_conformance::clock::{FakeClock, env};
use semel_core::engine::{ANSWER_SCOPE, Engine, Report, Request, Response, Verdict};
use semel_core::policy::Policy;
use semel_core::store::Query;
use semel_core::{
    Answer, AnswerBody, Fingerprint, Key, MemoryConfig, MemoryStore, Namespace, Secret, Store as _,
    StoreAdmin,
};
use semel_stores::compressed::CompressedStore;
use semel_stores::encrypted::{EncryptedStore, EncryptionKey, Keyring, SharedKeyring, WriteKey};

const HOUR: Duration = Duration::from_secs(3600);

/// A list of payments as JSON, cut to a size. Ids and amounts are random, so that it compresses as
/// such answers do.
fn payments(bytes: usize) -> String {
    let mut text = String::from("[");
    let mut number = 1_u64;
    while text.len() < bytes {
        // Knuth's linear congruential generator: the same ids everywhere.
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let _ = write!(
            text,
            "{{\"id\":\"pay_{number:016x}\",\"amount\":{},\"currency\":\"eur\",\"status\":\"{}\"}},",
            (number >> 32) % 100_000,
            ["succeeded", "pending", "refunded"][usize::try_from((number >> 40) % 3).unwrap_or(0)],
        );
    }
    text.truncate(bytes);
    text
}

/// A status and a content type, in the form of the HTTP layer.
const HEAD: &[u8] = b"\x01\x00\xc9\x00\x01\x00\x0ccontent-type\x10\x00application/json\x00\x00";

/// How the store of a column is opened.
#[derive(Clone, Copy)]
struct Column {
    compresses: bool,
    encrypts: bool,
}

fn over(bare: &Arc<MemoryStore>, column: Column) -> Arc<dyn StoreAdmin> {
    let mut store: Arc<dyn StoreAdmin> = bare.clone();
    if column.encrypts {
        let key = EncryptionKey::new(1, &[7; 32]).expect("a key");
        let ring = Keyring::new(vec![key], WriteKey::Newest).expect("a ring");
        store = Arc::new(EncryptedStore::new(store, SharedKeyring::new(ring), true));
    }
    Arc::new(CompressedStore::new(store, column.compresses))
}

/// The bytes of the record of the key, and of the record of its answer if that is kept apart.
async fn sizes(column: Column, body: usize, policy: Policy) -> (usize, usize) {
    let clock = FakeClock::new();
    let bare = MemoryStore::new(MemoryConfig::default(), Arc::new(clock.clone()));
    let bare = Arc::new(bare);
    let engine = Engine::new(over(&bare, column), env(&clock, 1));
    let namespace = Namespace::new("", "acme", "/payments").expect("a namespace");
    let key = Key::parse("ord-00001234").expect("a key");
    let fingerprint = Fingerprint::builder(&Secret::none()).part(b"x").finish();
    let request = Request::new(&engine, namespace, &key, fingerprint, Arc::new(policy));
    let answer = Answer {
        head: HEAD.into(),
        body: AnswerBody::Kept(payments(body).into()),
    };
    let ran = engine
        .execute(request, |_| async move {
            Report::new((), Verdict::Complete(answer))
        })
        .await;
    assert!(matches!(ran, Response::Ran(_)));
    let page = bare.list(&Query::default()).await.expect("a page");
    let mut sizes = (0, 0);
    for (identity, record) in &page.records {
        let length = record.encode().len();
        match record.namespace.scope() {
            ANSWER_SCOPE => sizes.1 += length,
            _ => sizes.0 += length,
        }
        assert!(bare.read(identity).await.expect("an answer").is_some());
    }
    sizes
}

async fn table() -> String {
    let columns = [(false, false), (true, false), (false, true), (true, true)];
    let columns = columns.map(|(compresses, encrypts)| Column {
        compresses,
        encrypts,
    });
    let mut table = String::from(
        "| body | record | compressed | encrypted | both | with `answer_retention`: answer | … then \
         what is left |\n|---|---|---|---|---|---|---|\n",
    );
    let short = Policy::default().with_answer_retention(HOUR);
    for (name, body) in [
        ("64 B", 64),
        ("256 B", 256),
        ("2 KiB", 2048),
        ("32 KiB", 32768),
    ] {
        let _ = write!(table, "| {name} |");
        for column in columns {
            let (record, _) = sizes(column, body, Policy::default()).await;
            let _ = write!(table, " {record} |");
        }
        let (left, answer) = sizes(columns[0], body, short.clone()).await;
        let _ = writeln!(table, " {answer} | {left} |");
    }
    table
}

#[tokio::test]
async fn table_of_record_sizes_is_the_codecs() {
    let table = table().await;
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/scale.md");
    let page = std::fs::read_to_string(page).expect("the page");
    assert!(
        page.contains(&table),
        "docs/scale.md has other figures; these are right:\n{table}"
    );
}
