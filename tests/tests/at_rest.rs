//! What lies on a server's disk: with encryption, no file of it has an answer, a checkpoint, a
//! payload or a key in plain text.
//!
//! Each server is the test's own. Its whole folder is searched, journals included.

use std::path::Path;
use std::time::Duration;

use semel::encrypted::{DataKeyUse, EncryptionKey, Keyring, WriteKey};
use semel::{Encryption, Failure, Semel};
use semel_testkit::private::{
    MariaDbServer, PostgresServer, RedisServer, SeaweedServer, new_folder,
};

/// Texts that are nowhere else.
struct Markers {
    key: String,
    payload: String,
    answer: String,
    large: String,
    checkpoint: String,
}

fn random_text() -> String {
    format!("{:032x}", semel::tokio_env().entropy.next_u128())
}

impl Markers {
    fn new() -> Self {
        Self {
            key: random_text(),
            payload: random_text(),
            answer: random_text(),
            large: random_text(),
            checkpoint: random_text(),
        }
    }

    /// What stores keep.
    fn kept(&self) -> [(&'static str, &str); 3] {
        [
            ("answer", &self.answer),
            ("large answer", &self.large),
            ("checkpoint", &self.checkpoint),
        ]
    }

    /// What nobody keeps, encrypted or not.
    fn never_kept(&self) -> [(&'static str, &str); 2] {
        [("key", &self.key), ("payload", &self.payload)]
    }
}

fn encryption() -> Encryption {
    let key = EncryptionKey::new(1, &[7; 32]).expect("a key");
    let keys = Keyring::new(vec![key], WriteKey::Newest).expect("a ring");
    Encryption::new(keys).data_keys(DataKeyUse::Subject)
}

/// Opens the store as soon as the server keeps something.
async fn open(url: &str, environment: &str, using: Option<Encryption>) -> Semel {
    let clock = semel::tokio_env().clock;
    for _ in 0..120 {
        let mut builder = Semel::builder().environment(environment);
        if let Some(encryption) = &using {
            builder = builder.encryption(encryption.clone());
        }
        match builder.open(url).await {
            Ok(semel) => return semel,
            Err(_) => clock.sleep(Duration::from_millis(500)).await,
        }
    }
    panic!("{environment}: the store can't be opened");
}

/// A run, a run with a large answer, and a run that nobody knows the outcome of.
async fn use_store(semel: &Semel, markers: &Markers) {
    let operation = || semel.operation("order").subject("a customer");
    let answer = markers.answer.clone();
    let call = operation().key(&markers.key).payload(&markers.payload);
    let ran = call.run(|_| async { Ok::<_, Failure>(answer) }).await;
    assert!(!ran.expect("an answer").replayed);

    // Nothing that a server would compress.
    let filler: Vec<String> = (0..2_000).map(|_| random_text()).collect();
    let large = format!("{}{}", markers.large, filler.concat());
    let key = format!("{}-large", markers.key);
    let call = operation().key(&key).payload(&markers.payload);
    let ran = call.run(|_| async { Ok::<_, Failure>(large) }).await;
    assert!(!ran.expect("an answer").replayed);

    let checkpoint = markers.checkpoint.clone();
    let key = format!("{}-doubt", markers.key);
    let call = operation().key(&key).payload(&markers.payload);
    let ran = call.run(|lease| async move {
        lease.checkpoint(checkpoint).await.map_err(Failure::retry)?;
        Err::<String, _>(Failure::unknown("no reply"))
    });
    ran.await.expect_err("nobody knows");
}

/// The content of all files below `folder`; what is no text is replaced.
fn files(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all.extend(files(&path));
        } else if path.is_file()
            && let Ok(content) = std::fs::read(&path)
        {
            // A server may remove a file at any time.
            all.push(String::from_utf8_lossy(&content).into_owned());
        }
    }
    all
}

fn has(files: &[String], text: &str) -> bool {
    let hex = semel::core::hex::hex(text.as_bytes());
    let mut files = files.iter();
    files.any(|file| file.contains(text) || file.contains(&hex))
}

/// Uses the store without and with encryption. `flush` makes the server write everything down.
async fn check(url: &str, folder: &Path, mut flush: impl FnMut()) {
    let (plain, encrypted) = (Markers::new(), Markers::new());
    use_store(&open(url, "plain", None).await, &plain).await;
    use_store(
        &open(url, "encrypted", Some(encryption())).await,
        &encrypted,
    )
    .await;
    flush();
    let files = files(folder);
    // A search that finds nothing anywhere would show nothing.
    for (what, text) in plain.kept() {
        assert!(
            has(&files, text),
            "the search doesn't find the plain {what}"
        );
    }
    for (what, text) in encrypted.kept().into_iter().chain(encrypted.never_kept()) {
        assert!(!has(&files, text), "the {what} is on the disk");
    }
    for (what, text) in plain.never_kept() {
        assert!(
            !has(&files, text),
            "the {what} is on the disk, without encryption"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_has_no_plain_text() {
    let folder = new_folder("at-rest");
    let url = format!("sqlite://{}/semel.db", folder.display());
    check(&url, &folder, || ()).await;
    std::fs::remove_dir_all(&folder).expect("a folder of our own");
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_has_no_plain_text() {
    let arguments = [
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        "--rdbcompression",
        "no",
    ];
    let server = RedisServer::start(&arguments).await;
    let save = || assert!(server.ask(&["SAVE"]).contains("OK"));
    check(&server.url(), server.folder(), save).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_has_no_plain_text() {
    let server = PostgresServer::start(&["wal_compression=off"]).await;
    let write = || drop(server.sql("postgres", "CHECKPOINT"));
    check(&server.url(), server.folder(), write).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_has_no_plain_text() {
    let server = MariaDbServer::start(&["log-bin=binlog"]).await;
    let write = || drop(server.sql("FLUSH TABLES; FLUSH LOGS"));
    check(&server.url(), server.folder(), write).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bucket_has_no_plain_text() {
    let server = SeaweedServer::start();
    let url = SeaweedServer::url_at(server.address());
    check(&url, server.folder(), || ()).await;
}
