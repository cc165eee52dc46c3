//! The ways to a server: users with few permissions, TLS, prefixes, URLs; and which servers are
//! refused.

use std::collections::BTreeSet;

use semel_core::store::{Query, Store as _};
use semel_core::{CrashPolicy, Identity, Key, Namespace, Secret};
use semel_stores::redis::RedisStore;
use semel_testkit::private::{RedisServer, new_folder};

use super::support::{
    again, chance, cluster, complete, is_short, open, refused, scene, suite, variable,
};

/// The line from `docs/stores/redis.md`, word for word.
const USER: &str = include_str!("../../../../docs/stores/redis.md");

pub(crate) fn documented_user() -> Vec<&'static str> {
    let line = USER.lines().find(|line| line.starts_with("ACL SETUSER"));
    line.expect("the page has the line").split(' ').collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_documented_user_can_do_all_that_the_suite_asks() {
    let server = RedisServer::start(&[]).await;
    let _ = server.ask(&documented_user());
    // The default user is closed, as it should be where users are limited.
    let _ = server.ask(&["ACL", "SETUSER", "default", "off"]);
    let url = format!("redis://semel:secret@127.0.0.1:{}", server.port());
    suite(&url, |_| true).await;
}

#[tokio::test]
async fn the_documented_user_sees_nothing_else() {
    let server = RedisServer::start(&[]).await;
    let _ = server.ask(&documented_user());
    let client = redis::Client::open(format!("redis://semel:secret@127.0.0.1:{}", server.port()));
    let connection = client.unwrap().get_multiplexed_async_connection().await;
    let mut connection = connection.unwrap();
    for refused in [
        &["GET", "other"][..],
        &["PUBLISH", "other", "x"],
        &["FLUSHALL"],
        &["CONFIG", "GET", "*"],
    ] {
        let mut cmd = redis::cmd(refused[0]);
        let sent = cmd.arg(&refused[1..]).exec_async(&mut connection).await;
        let error = sent.expect_err("refused");
        assert_eq!(error.code(), Some("NOPERM"), "{refused:?}");
    }
}

#[tokio::test]
async fn a_wrong_password_is_said_and_not_repeated() {
    let server = RedisServer::start(&[]).await;
    let _ = server.ask(&["CONFIG", "SET", "requirepass", "right"]);
    let said = refused(&format!("redis://:wr0ngpass@127.0.0.1:{}", server.port())).await;
    assert!(said.contains("check its configuration"), "{said}");
    assert!(!said.contains("wr0ngpass"), "{said}");
    open(&format!("redis://:right@127.0.0.1:{}", server.port())).await;
}

struct Certificates {
    folder: std::path::PathBuf,
}

impl Certificates {
    /// An authority of our own, and what it says of this machine.
    fn new() -> Self {
        let folder = new_folder("certificates");
        let authority = rcgen::KeyPair::generate().expect("a certificate");
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("a certificate");
        // Not the name that its children have by default, or they seem to have signed themselves.
        let name = &mut params.distinguished_name;
        name.push(rcgen::DnType::CommonName, "an authority");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca = params.self_signed(&authority).expect("a certificate");
        let issuer = rcgen::Issuer::new(params, authority);
        let key = rcgen::KeyPair::generate().expect("a certificate");
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let server = rcgen::CertificateParams::new(names).expect("a certificate");
        let server = server.signed_by(&key, &issuer).expect("a certificate");
        let write = |name: &str, text: String| {
            std::fs::write(folder.join(name), text).expect("a certificate");
        };
        write("ca.pem", ca.pem());
        write("cert.pem", server.pem());
        write("key.pem", key.serialize_pem());
        Self { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_suite_passes_over_tls_with_an_authority_of_ones_own() {
    let (files, port) = (Certificates::new(), semel_testkit::private::free_port());
    let (cert, key, ca) = (
        files.path("cert.pem"),
        files.path("key.pem"),
        files.path("ca.pem"),
    );
    let port = port.to_string();
    let settings = [
        "--tls-port",
        &port,
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
    ];
    // Clients need certificates too, unless that is turned off: `cert` and `key` are used with it
    // on.
    let _server = RedisServer::start(&settings).await;
    let url = format!("rediss://localhost:{port}?ca={ca}&cert={cert}&key={key}");
    suite(&url, is_short).await;

    let said = refused(&format!("rediss://localhost:{port}?cert={cert}&key={key}")).await;
    assert!(
        said.contains("can't be reached"),
        "an unknown authority: {said}"
    );
    let said = refused(&format!("rediss://localhost:{port}?ca=/nowhere.pem")).await;
    assert!(said.contains("can't be read"), "{said}");
}

#[tokio::test]
async fn stores_with_different_prefixes_share_a_server_and_never_meet() {
    let server = RedisServer::start(&[]).await;
    let one = scene(format!("{}?prefix=one:", server.url())).await;
    let two = scene(format!("{}?prefix=two:", server.url())).await;
    let claim = one.fresh().unwrap();
    let lease = one.won(&claim).await.unwrap();
    one.settled(&lease, &complete("first")).await.unwrap();
    two.won(&again(&claim)).await.unwrap();
    for (scene, state) in [
        (&one, semel_core::State::Completed),
        (&two, semel_core::State::Running),
    ] {
        let page = scene.store().list(&Query::default()).await.unwrap();
        assert_eq!(page.records.len(), 1);
        assert_eq!(page.records[0].1.state, state);
    }
    assert!(
        server
            .ask(&["KEYS", "*"])
            .lines()
            .all(|key| key.starts_with("one:") || key.starts_with("two:"))
    );
}

/// A page that ends exactly where a server of the cluster does goes on at the next server.
#[tokio::test]
async fn a_listing_of_a_cluster_leaves_no_server_out() {
    let url = format!("{}?prefix=listing-{:x}:", cluster(), chance());
    let scene = scene(url).await;
    let terms = scene.lapsing(CrashPolicy::Takeover).unwrap();
    let mut expected = BTreeSet::new();
    for _ in 0..12 {
        expected.insert(
            scene
                .won(&scene.fresh_on(terms).unwrap())
                .await
                .unwrap()
                .identity,
        );
    }
    for limit in 1..=13 {
        let mut query = Query::default().with_limit(limit);
        let mut seen = BTreeSet::new();
        loop {
            let page = scene.store().list(&query).await.unwrap();
            seen.extend(page.records.iter().map(|(identity, _)| *identity));
            match page.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, expected, "pages of {limit}");
    }
    for identity in expected {
        scene.store().delete(&identity).await.unwrap();
    }
}

#[tokio::test]
async fn a_replica_is_refused() {
    let master = RedisServer::start(&[]).await;
    let port = master.port().to_string();
    let replica = RedisServer::start(&["--replicaof", "127.0.0.1", &port]).await;
    let said = refused(&replica.url()).await;
    assert!(said.contains("is a replica"), "{said}");
}

#[tokio::test]
async fn urls_that_make_no_sense_are_refused_without_being_repeated() {
    let reasons = [
        ("redis://user:s3cret@a,b", "several hosts"),
        ("redis+cluster://user:s3cret@a:1/3", "no numbered databases"),
        ("redis+sentinel://user:s3cret@a:1", "name of the master"),
        ("redis+other://user:s3cret@a:1", "sentinel or cluster"),
        ("redis://user:s3cret@a:1?durability=much", "durability is"),
        ("redis://user:s3cret@a:1?durability=wait:0", "durability is"),
        ("redis://user:s3cret@a:1?prefix={x}", "a prefix has"),
        ("redis://user:s3cret@a:1?pool=s3cret", "isn't known"),
        ("redis://user:s3cret@a:port", "a host"),
        ("redis://user:s3cret@a:1/x", "isn't a number"),
        ("redis://user:s3cret@a:1/1/2", "too many parts"),
        ("rediss://user:s3cret@a:1?cert=x", "come together"),
    ];
    for (url, reason) in reasons {
        let said = refused(url).await;
        assert!(said.contains(reason), "{url}: {said}");
        assert!(!said.contains("s3cret"), "{said}");
    }
}

#[tokio::test]
async fn a_numbered_database_and_a_store_without_a_password_open() {
    let url = variable("SEMEL_TEST_REDIS_URL");
    let scene = scene(format!("{url}/3")).await;
    let claim = scene.fresh().unwrap();
    scene.won(&claim).await.unwrap();
    let other = open(&url).await;
    assert!(other.read(&claim.identity).await.unwrap().is_none());
    scene.store().delete(&claim.identity).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_callers_share_the_connections_of_one() {
    let server = RedisServer::start(&[]).await;
    let store = open(&server.url()).await;
    let made = || {
        let info = server.ask(&["INFO", "stats"]);
        let count = info
            .lines()
            .find_map(|line| line.strip_prefix("total_connections_received:"));
        let count = count.and_then(|text| text.trim().parse::<u64>().ok());
        count.expect("a count")
    };
    let call = |store: RedisStore, callers: u32| async move {
        for number in 0..20 {
            let identity = Identity::new(
                &Secret::none(),
                &Namespace::new("", "", "shared").expect("a namespace"),
                &Key::parse(&format!("k-{callers}-{number}")).expect("a key"),
            );
            assert!(store.read(&identity).await.unwrap().is_none());
        }
    };
    call(store.clone(), 0).await;
    let before = made();
    let callers: Vec<_> = (1..=100)
        .map(|number| tokio::spawn(call(store.clone(), number)))
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    // The one that asks for the count.
    assert_eq!(made() - before, 1);
}
