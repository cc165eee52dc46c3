//! Start, readiness, reload, drain.

use axum::Router;
use axum::extract::State;
use axum::routing::any;
use semel_server::config::{Sources, load};
use semel_server::{DrainOutcome, Mounts, OpenOptions, Server, StartError};
use semel_testkit::private::{PostgresServer, RedisServer, new_folder};

use crate::support::*;

async fn named(name: &'static str) -> std::net::SocketAddr {
    service(Router::new().fallback(any(move || async move { name }))).await
}

/// A service that acts at once and answers on a signal.
async fn gated(runs: &Runs, gate: &std::sync::Arc<tokio::sync::Notify>) -> std::net::SocketAddr {
    let handler = |State((runs, gate)): State<(Runs, std::sync::Arc<tokio::sync::Notify>)>| async move {
        let run = runs.begin();
        gate.notified().await;
        format!("run {run}")
    };
    let state = (runs.clone(), gate.clone());
    service(Router::new().fallback(any(handler)).with_state(state)).await
}

#[tokio::test]
async fn without_upstream_only_own_paths_are_served() {
    let sidecar = Sidecar::on("memory://", "", "api.access = \"loopback\"\n").await;
    let ready = sidecar.send(plain("GET", "/_semel/readyz", "")).await;
    assert_eq!(ready.status, 200);
    let answer = sidecar.send(post("/charges", "k-1", "{}")).await;
    assert_eq!(answer.status, 404);
    assert_eq!(answer.json()["code"], "not_found");
    assert_eq!(sidecar.keys(semel::core::State::Completed).await, 0);
    // A reload can add a service.
    let service = named("a").await;
    let settings = "api.access = \"loopback\"\n";
    write(
        &sidecar.file,
        "memory://",
        &format!("http://{service}"),
        settings,
    );
    sidecar.server.reload().expect("good settings");
    let answer = sidecar.send(post("/charges", "k-1", "{}")).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "a"));
}

#[tokio::test]
async fn ready_after_the_self_check() {
    let sidecar = Sidecar::new(named("a").await, "admin.address = \"127.0.0.1:0\"\n").await;
    let ready = sidecar.send(plain("GET", "/_semel/readyz", "")).await;
    assert_eq!(ready.status, 200);
    assert_eq!(
        ready.json(),
        serde_json::json!({"ready": true}),
        "no more for everybody"
    );
    let admin = sidecar.server.admin_address().unwrap();
    let mut client = Client::connect(admin, Protocol::Http1).await;
    let document = client.send(plain("GET", "/readyz", "")).await.json();
    assert_eq!(
        (&document["ready"], &document["selfCheck"]),
        (&true.into(), &"passed".into())
    );
    assert_eq!(
        client.send(plain("GET", "/healthz", "")).await.text(),
        "ok\n"
    );
    assert_eq!(
        client.send(plain("GET", "/anything", "")).await.status,
        404,
        "nothing is forwarded from there"
    );
}

#[tokio::test]
#[ignore = "needs servers"]
async fn not_ready_while_the_store_is_down() {
    let mut redis = RedisServer::start(&[]).await;
    let sidecar = Sidecar::on(
        &redis.url(),
        &format!("http://{}", named("a").await),
        "engine.store_timeout = \"500ms\"\n",
    )
    .await;
    assert_eq!(
        sidecar
            .send(plain("GET", "/_semel/readyz", ""))
            .await
            .status,
        200
    );
    redis.kill();
    let answer = sidecar.send(post("/", "k-1", "{}")).await;
    assert_eq!(
        answer.problem_and_retry(),
        (503, "idempotency_store_unavailable".to_owned(), true),
        "closed, not open"
    );
    pause(600).await;
    let ready = sidecar.send(plain("GET", "/_semel/readyz", "")).await;
    assert_eq!(
        (ready.status.as_u16(), &ready.json()["ready"]),
        (503, &false.into())
    );
    assert_eq!(
        sidecar
            .send(plain("GET", "/_semel/healthz", ""))
            .await
            .status,
        200,
        "the process itself lives"
    );
    assert_eq!(
        sidecar.send(plain("GET", "/", "")).await.text(),
        "a",
        "what has no key needs no store"
    );
}

#[tokio::test]
async fn reload_applies_to_new_requests() {
    let (one, two) = (named("one").await, named("two").await);
    let sidecar = Sidecar::new(one, "").await;
    let mut client = sidecar.client(Protocol::Http1).await;
    assert_eq!(client.send(post("/", "k-1", "{}")).await.text(), "one");
    let settings = "[[routes]]\npath = \"/strict\"\nrequire_key = true\n";
    write(
        &sidecar.file,
        "memory://",
        &format!("http://{two}"),
        settings,
    );
    assert_eq!(sidecar.server.reload().unwrap(), Vec::<&str>::new());
    assert_eq!(
        client.send(plain("GET", "/", "")).await.text(),
        "two",
        "on a connection that was there before"
    );
    let replay = client.send(post("/", "k-1", "{}")).await;
    assert_eq!(
        (replay.text(), replay.is_replay()),
        ("one", true),
        "records stay"
    );
    assert_eq!(
        client
            .send(plain("POST", "/strict", "{}"))
            .await
            .problem_and_retry()
            .1,
        "idempotency_key_required"
    );
}

#[tokio::test]
async fn running_requests_keep_their_settings() {
    let (runs, gate) = (Runs::default(), std::sync::Arc::default());
    let slow = gated(&runs, &gate).await;
    let sidecar = std::sync::Arc::new(Sidecar::new(slow, "").await);
    let asking = tokio::spawn({
        let sidecar = sidecar.clone();
        async move { sidecar.send(post("/", "k-1", "{}")).await }
    });
    until("the service is asked", || runs.count() == 1).await;
    write(
        &sidecar.file,
        "memory://",
        &format!("http://{}", named("two").await),
        "",
    );
    sidecar.server.reload().unwrap();
    assert_eq!(sidecar.send(plain("GET", "/", "")).await.text(), "two");
    gate.notify_one();
    assert_eq!(asking.await.unwrap().text(), "run 1");
}

#[tokio::test]
async fn broken_file_is_refused_on_reload() {
    let sidecar = Sidecar::new(named("one").await, "").await;
    for broken in [
        "upstream.urls = [\"ftp://x\"]\n",
        "not toml",
        "[[routes]]\npath = \"/{\"\n",
        "nonsense = 1\n",
    ] {
        let settings =
            format!("store.url = \"memory://\"\nlistener.address = \"127.0.0.1:0\"\n{broken}");
        let settings = if broken.starts_with("upstream") {
            settings
        } else {
            format!("upstream.urls = [\"http://127.0.0.1:1\"]\n{settings}")
        };
        std::fs::write(&sidecar.file, settings).unwrap();
        assert!(sidecar.server.reload().is_err(), "{broken}");
        assert_eq!(sidecar.send(plain("GET", "/", "")).await.text(), "one");
    }
}

/// A reload can't change the address of a public listener, so it must not trust more peers because
/// of a new one.
#[tokio::test]
async fn reload_trusts_nobody_new() {
    let tenant = |headers: axum::http::HeaderMap| async move {
        let named = headers.get("x-tenant").and_then(|name| name.to_str().ok());
        named.unwrap_or("nobody").to_owned()
    };
    let upstream = service(Router::new().fallback(axum::routing::any(tenant))).await;
    let file = new_folder("sidecar").join("semel.toml");
    let settings = |listener: &str| {
        let text = format!(
            "store.url = \"memory://\"\nupstream.urls = [\"http://{upstream}\"]\n{listener}\n\
             tenants.from = \"header\"\ntenants.header = \"x-tenant\"\n"
        );
        std::fs::write(&file, text).expect("a file");
    };
    settings("listener.address = \"0.0.0.0:0\"\nlistener.trusted_peers = [\"192.0.2.1\"]");
    let (server, _) = crate::support::start(&file).await;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], server.address().port()));
    let mut client = Client::connect(address, Protocol::Http1).await;
    let mut told = async || {
        let request = with(plain("GET", "/", ""), "x-tenant", "acme");
        client.send(request).await.text().to_owned()
    };
    assert_eq!(told().await, "nobody");
    settings("listener.address = \"127.0.0.1:0\"");
    assert_eq!(server.reload().unwrap(), ["listener.address"]);
    assert_eq!(told().await, "nobody");
}

#[tokio::test]
async fn reload_reports_settings_that_need_a_restart() {
    let one = named("one").await;
    let sidecar = Sidecar::new(one, "").await;
    let settings = "limits.connections = 5\nlimits.waiting = 1\n";
    write(
        &sidecar.file,
        "memory://?capacity=5",
        &format!("http://{one}"),
        settings,
    );
    assert_eq!(sidecar.server.reload().unwrap(), ["store", "limits"]);
}

#[tokio::test]
async fn drain_finishes_requests_of_disconnected_callers() {
    let (runs, gate) = (
        Runs::default(),
        std::sync::Arc::<tokio::sync::Notify>::default(),
    );
    let sidecar = Sidecar::new(gated(&runs, &gate).await, "").await;
    let mut stays = sidecar.client(Protocol::Http1).await;
    let staying = tokio::spawn(async move { stays.send(post("/", "stays", "{}")).await });
    let mut leaves = sidecar.raw().await;
    leaves
        .try_write(
            "POST / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: leaves\r\nContent-Length: 2\r\n\r\n{}",
        )
        .await;
    until("both are asked", || runs.count() == 2).await;
    drop(leaves);
    let (address, semel) = (sidecar.address, sidecar.semel.clone());
    let draining = tokio::spawn(sidecar.server.drain());
    until("it listens no more", || {
        std::net::TcpStream::connect(address).is_err()
    })
    .await;
    assert!(!draining.is_finished());
    gate.notify_one();
    gate.notify_one();
    let answer = staying.await.unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(draining.await.unwrap(), DrainOutcome::Complete);
    let query = semel::core::store::Query::default()
        .with_state(semel::core::State::Completed)
        .with_scope("http".to_owned());
    let done = semel.store().list(&query).await.unwrap();
    assert_eq!(done.records.len(), 2, "both were recorded");
}

#[tokio::test]
async fn drain_ends_after_its_time() {
    let (runs, gate) = (Runs::default(), std::sync::Arc::default());
    let sidecar = Sidecar::new(gated(&runs, &gate).await, "drain_time = \"200ms\"\n").await;
    let mut raw = sidecar.raw().await;
    raw.try_write(
        "POST / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 2\r\n\r\n{}",
    )
    .await;
    until("the service is asked", || runs.count() == 1).await;
    assert_eq!(sidecar.server.drain().await, DrainOutcome::CutOff);
    assert_eq!(raw.rest().await, "", "cut off without an answer");
}

async fn start(settings: &str) -> Result<Server, StartError> {
    let file = new_folder("start").join("semel.toml");
    std::fs::write(&file, settings).expect("as set up");
    let loaded = load(&Sources {
        file: Some(file),
        ..Sources::default()
    })?;
    let semel = OpenOptions::for_tool(&loaded.config).open_store().await?;
    Server::start(loaded, semel, Mounts::default()).await
}

#[tokio::test]
#[ignore = "needs servers"]
async fn self_check_detects_a_forgetful_store() {
    let server = PostgresServer::start(&[]).await;
    let settings = format!(
        "store.url = \"{}\"\nlistener.address = \"127.0.0.1:0\"\nupstream.urls = \
         [\"http://127.0.0.1:1\"]\n",
        server.url()
    );
    assert!(start(&settings).await.is_ok());
    let forgetful = "CREATE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                     DELETE FROM semel.records WHERE address = NEW.address; RETURN NULL; END $$; \
                     CREATE TRIGGER forget AFTER UPDATE ON semel.records FOR EACH ROW EXECUTE FUNCTION forget()";
    server.sql("semel", forgetful);
    let error = start(&settings).await.err().map(|error| error.to_string());
    let error = error.expect("it doesn't start");
    assert!(error.contains("self-check failed"), "{error}");
    // With `self_check = "warn"` the process starts anyway.
    let warned = format!("health.self_check = \"warn\"\n{settings}");
    assert!(start(&warned).await.is_ok());
}

#[tokio::test]
async fn start_errors_have_a_fix() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let upstream = "upstream.urls = [\"http://127.0.0.1:1\"]\n";
    let cases = [
        (
            format!(
                "store.url = \"memory://\"\nlistener.address = \"127.0.0.1:{port}\"\n{upstream}"
            ),
            "another process listens there",
        ),
        (
            format!("store.url = \"redis://127.0.0.1:1\"\n{upstream}"),
            "start the store, or set another one",
        ),
        (
            format!("store.url = \"oracle://x\"\n{upstream}"),
            "no store of this build has the scheme oracle",
        ),
        (
            "store.url = \"memory://\"\nupstream.urls = [\"127.0.0.1:3000\"]\n".to_owned(),
            "a URL with http://",
        ),
        (
            format!("store.url = \"memory://\"\n{upstream}[[routes]]\npath = \"/a{{b\"\n"),
            "the path /a{b is invalid",
        ),
    ];
    for (settings, words) in cases {
        let error = start(&settings)
            .await
            .err()
            .unwrap_or_else(|| panic!("it started: {settings}"));
        assert!(error.to_string().contains(words), "{error}");
    }
}
