//! A whole run of the engine on a store: identity, claim, effect, settlement.

use anyhow::ensure;
use semel::Semel;
use semel::encrypted::{EncryptionKey, Keyring, WriteKey};

use super::RETENTION;
use crate::turns::Setup;
use semel_bench_core::ops::ANSWER_BYTES;
use semel_bench_core::report::Row;

/// Encryption may cost a twentieth of the throughput.
const ENCRYPTED: f64 = 0.95;

/// One run of a new key.
pub(crate) async fn run(semel: Semel, run: u128, i: u64) -> anyhow::Result<()> {
    let key = format!("{run:032x}-{i}");
    let operation = semel.operation("bench").retention(RETENTION);
    let call = operation.key(&key).payload(&i);
    let answer = call.run(|_| async { Ok::<_, std::io::Error>("x".repeat(ANSWER_BYTES)) });
    ensure!(!answer.await?.replayed);
    Ok(())
}

/// The engine on the store at `url`, without encryption.
pub(crate) async fn plain(url: &str) -> anyhow::Result<Semel> {
    Ok(Semel::builder().environment("bench").open(url).await?)
}

/// The engine on the store at `url`, with encrypted records. Its environment is its own: a store
/// remembers the keys that an environment is used with.
pub(crate) async fn encrypted(url: &str, using: semel::Encryption) -> anyhow::Result<Semel> {
    let builder = Semel::builder().environment("bench-encrypted");
    Ok(builder.encryption(using).open(url).await?)
}

/// A key that everybody may know: it encrypts nothing but what the bench makes.
pub(crate) fn encryption() -> anyhow::Result<semel::Encryption> {
    let key = EncryptionKey::new(1, &[7; 32]);
    let key = key.ok_or_else(|| anyhow::anyhow!("ids begin at 1"))?;
    let keys = Keyring::new(vec![key], WriteKey::Newest)?;
    Ok(semel::Encryption::new(keys))
}

/// Runs with encrypted records, against runs with plain ones.
pub(super) async fn encryption_row(name: &str, url: &str, setup: Setup) -> anyhow::Result<Row> {
    let with = encrypted(url, encryption()?).await?;
    let without = plain(url).await?;
    let number = semel::tokio_env().entropy.next_u128();
    let row = setup.compare(
        format!("{name}: a whole run, encrypted against plain"),
        Some(ENCRYPTED),
        move |i| run(with.clone(), number, i),
        move |i| run(without.clone(), number, i),
    );
    row.await
}
