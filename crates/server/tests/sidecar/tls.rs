//! TLS of listener and service, and tenants from certificates.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::any;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use semel_testkit::private::new_folder;
use tokio::net::TcpStream;

use crate::support::*;

/// Certificates of one CA, in a folder.
struct Papers {
    folder: PathBuf,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Papers {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("as set up");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "test authority");
        let authority =
            CertifiedIssuer::self_signed(params, KeyPair::generate().expect("as set up"))
                .expect("as set up");
        let folder = new_folder("papers");
        std::fs::write(folder.join("ca.pem"), authority.pem()).expect("as set up");
        Self { folder, authority }
    }

    /// Writes `NAME.pem` and `NAME.key`, with a DNS name or only a common name.
    fn issue(&self, file: &str, names: &[&str], common: &str) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("as set up");
        params.distinguished_name.push(DnType::CommonName, common);
        let key = KeyPair::generate().expect("as set up");
        let certificate = params.signed_by(&key, &self.authority).expect("as set up");
        std::fs::write(self.folder.join(format!("{file}.pem")), certificate.pem())
            .expect("as set up");
        std::fs::write(self.folder.join(format!("{file}.key")), key.serialize_pem())
            .expect("as set up");
    }

    fn path(&self, file: &str) -> String {
        self.folder.join(file).display().to_string()
    }

    fn listener(&self) -> String {
        format!(
            "listener.tls.cert_file = \"{}\"\nlistener.tls.key_file = \"{}\"\n",
            self.path("server.pem"),
            self.path("server.key")
        )
    }

    fn client_config(&self, own: Option<&str>, protocol: Protocol) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(Path::new(&self.path("ca.pem"))).expect("as set up"))
            .expect("as set up");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("as set up");
        let builder = builder.with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let chain = vec![
                    CertificateDer::from_pem_file(Path::new(&self.path(&format!("{name}.pem"))))
                        .expect("as set up"),
                ];
                let key =
                    PrivateKeyDer::from_pem_file(Path::new(&self.path(&format!("{name}.key"))))
                        .expect("as set up");
                builder
                    .with_client_auth_cert(chain, key)
                    .expect("as set up")
            }
        };
        let word: &[u8] = if protocol == Protocol::Http2 {
            b"h2"
        } else {
            b"http/1.1"
        };
        config.alpn_protocols = vec![word.to_vec()];
        config
    }

    async fn client(
        &self,
        sidecar: &Sidecar,
        own: Option<&str>,
        protocol: Protocol,
    ) -> std::io::Result<(Client, Vec<u8>)> {
        self.client_at(sidecar.address, own, protocol).await
    }

    async fn client_at(
        &self,
        address: SocketAddr,
        own: Option<&str>,
        protocol: Protocol,
    ) -> std::io::Result<(Client, Vec<u8>)> {
        let connector =
            tokio_rustls::TlsConnector::from(Arc::new(self.client_config(own, protocol)));
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("shop.test").expect("as set up");
        let stream = connector.connect(name, stream).await?;
        let shown = stream.get_ref().1.peer_certificates().expect("as set up")[0].to_vec();
        Ok((Client::over(stream, protocol).await, shown))
    }
}

fn counting(runs: &Runs) -> Router {
    let runs = runs.clone();
    let handler = move |headers: HeaderMap| async move {
        let proto = headers
            .get("x-forwarded-proto")
            .and_then(|value| value.to_str().ok())
            .unwrap_or("?")
            .to_owned();
        format!("run {} over {proto}", runs.begin())
    };
    Router::new().fallback(any(handler))
}

#[tokio::test]
async fn tls_listener_supports_http1_and_http2() {
    let papers = Papers::new();
    papers.issue("server", &["shop.test"], "server");
    let runs = Runs::default();
    let sidecar = Sidecar::new(service(counting(&runs)).await, &papers.listener()).await;
    for (number, protocol) in BOTH.into_iter().enumerate() {
        let (mut client, _) = papers.client(&sidecar, None, protocol).await.unwrap();
        let key = format!("k-{protocol:?}");
        let first = client.send(post("/", &key, "{}")).await;
        assert_eq!(first.text(), format!("run {} over https", number + 1));
        let again = client.send(post("/", &key, "{}")).await;
        assert!(again.is_replay());
    }
}

#[tokio::test]
async fn certificate_counts_as_credential_without_principals() {
    let papers = Papers::new();
    papers.issue("server", &["shop.test"], "server");
    papers.issue("acme", &["acme.test"], "acme");
    papers.issue("umbrella", &["umbrella.test"], "umbrella");
    let runs = Runs::default();
    let settings = format!(
        "{}listener.tls.client_ca_file = \"{}\"\n",
        papers.listener(),
        papers.path("ca.pem")
    );
    let sidecar = Sidecar::new(service(counting(&runs)).await, &settings).await;
    let client = async |who: &str| {
        let client = papers.client(&sidecar, Some(who), Protocol::Http1).await;
        client.unwrap().0
    };
    let mut acme = client("acme").await;
    assert_eq!(acme.send(post("/", "k", "{}")).await.status, 200);
    assert!(acme.send(post("/", "k", "{}")).await.is_replay());
    let other = client("umbrella").await.send(post("/", "k", "{}")).await;
    assert_eq!(other.problem_and_retry().1, "idempotency_conflict");
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn tenant_comes_from_the_certificate() {
    let papers = Papers::new();
    papers.issue("server", &["shop.test"], "server");
    papers.issue("acme", &["acme.test"], "not this");
    papers.issue("umbrella", &[], "umbrella");
    let runs = Runs::default();
    let settings = format!(
        "{}listener.tls.client_ca_file = \"{}\"\ntenants.from = \"certificate\"\n",
        papers.listener(),
        papers.path("ca.pem")
    );
    let sidecar = Sidecar::new(service(counting(&runs)).await, &settings).await;
    for (number, tenant) in ["acme", "umbrella"].into_iter().enumerate() {
        let (mut client, _) = papers
            .client(&sidecar, Some(tenant), Protocol::Http1)
            .await
            .unwrap();
        let first = client.send(post("/", "same-key", "{}")).await;
        assert_eq!(
            first.text(),
            format!("run {} over https", number + 1),
            "keys of tenants never meet"
        );
        assert!(client.send(post("/", "same-key", "{}")).await.is_replay());
    }
    let page = sidecar
        .semel
        .store()
        .list(&Default::default())
        .await
        .unwrap();
    let mut tenants: Vec<&str> = page
        .records
        .iter()
        .map(|(_, record)| record.namespace.tenant())
        .filter(|tenant| !tenant.is_empty())
        .collect();
    tenants.sort_unstable();
    assert_eq!(tenants, ["acme.test", "cn=umbrella"]);
    // Without a certificate the connection fails.
    if let Ok((mut client, _)) = papers.client(&sidecar, None, Protocol::Http1).await {
        assert!(client.try_begin(post("/", "k", "{}")).await.is_err());
    }
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn reload_reads_new_certificates() {
    let papers = Papers::new();
    papers.issue("server", &["shop.test"], "first");
    let sidecar = Sidecar::new(
        service(counting(&Runs::default())).await,
        &papers.listener(),
    )
    .await;
    let (mut old, first) = papers
        .client(&sidecar, None, Protocol::Http1)
        .await
        .unwrap();
    papers.issue("server", &["shop.test"], "second");
    sidecar.server.reload().unwrap();
    let (_, second) = papers
        .client(&sidecar, None, Protocol::Http1)
        .await
        .unwrap();
    assert_ne!(first, second);
    assert_eq!(
        old.send(plain("GET", "/", "")).await.status,
        200,
        "the old connection goes on"
    );
}

/// The status of a request to the admin API; `None` if the connection fails.
async fn asked(papers: &Papers, admin: SocketAddr, own: Option<&str>) -> Option<u16> {
    let (mut client, _) = papers.client_at(admin, own, Protocol::Http1).await.ok()?;
    let question = plain("GET", "/admin/v1/records", "");
    let answer = client.try_begin(question).await.ok()?;
    Some(answer.status().as_u16())
}

#[tokio::test]
async fn reload_never_opens_the_admin_api() {
    let papers = Papers::new();
    papers.issue("server", &["shop.test"], "server");
    papers.issue("ann", &["ann.test"], "ann");
    std::fs::write(papers.folder.join("token"), "a token of some length").unwrap();
    let own = format!(
        "api.access = \"loopback\"\nadmin.address = \"127.0.0.1:0\"\nadmin.tls.cert_file = \
         \"{}\"\nadmin.tls.key_file = \"{}\"\n",
        papers.path("server.pem"),
        papers.path("server.key")
    );
    let authority = format!("admin.tls.client_ca_file = \"{}\"\n", papers.path("ca.pem"));
    let token = format!("admin.token_file = \"{}\"\n", papers.path("token"));
    let file = new_folder("sidecar").join("semel.toml");
    let write = |more: &str| write(&file, "memory://", "", &format!("{own}{more}"));
    write(&authority);
    let (server, _) = start_node(&file).await;
    let admin = server.admin_address().unwrap();
    assert_eq!(asked(&papers, admin, Some("ann")).await, Some(200));
    assert_eq!(asked(&papers, admin, None).await, None);
    let optional = format!("{authority}admin.tls.client_optional = true\n{token}");
    for changed in [token, optional] {
        write(&changed);
        let told = server.reload().unwrap();
        assert!(!told.is_empty(), "what holds only after a start is told");
        assert_eq!(asked(&papers, admin, None).await, None, "{changed}");
        assert_eq!(asked(&papers, admin, Some("ann")).await, Some(200));
    }
}

#[tokio::test]
async fn admin_api_accepts_only_certificates_with_an_allowed_name() {
    let papers = Papers::new();
    papers.issue("server", &["shop.test"], "server");
    papers.issue("ann", &["ann.test"], "ann");
    papers.issue("bob", &["bob.test"], "bob");
    // A common name is no DNS name.
    papers.issue("eve", &[], "ann.test");
    let settings = format!(
        "api.access = \"loopback\"\nadmin.address = \"127.0.0.1:0\"\nadmin.allowed_names = \
         [\"ann.test\"]\nadmin.tls.cert_file = \"{}\"\nadmin.tls.key_file = \
         \"{}\"\nadmin.tls.client_ca_file = \"{}\"\n",
        papers.path("server.pem"),
        papers.path("server.key"),
        papers.path("ca.pem")
    );
    let file = new_folder("sidecar").join("semel.toml");
    write(&file, "memory://", "", &settings);
    let (server, _) = start_node(&file).await;
    let admin = server.admin_address().unwrap();
    assert_eq!(asked(&papers, admin, Some("ann")).await, Some(200));
    assert_eq!(asked(&papers, admin, Some("bob")).await, Some(403));
    assert_eq!(asked(&papers, admin, Some("eve")).await, Some(403));
    assert_eq!(asked(&papers, admin, None).await, None);
}

#[tokio::test]
async fn tls_upstream_gets_the_host_of_the_client() {
    let papers = Papers::new();
    papers.issue("server", &["localhost"], "service");
    let told = |headers: axum::http::HeaderMap| async move {
        let all = |name: &str| {
            let values = headers.get_all(name).iter();
            let values: Vec<_> = values.filter_map(|value| value.to_str().ok()).collect();
            values.join(",")
        };
        format!("{} via {}", all("host"), all("via"))
    };
    let upstream = service(Router::new().fallback(axum::routing::any(told))).await;
    let inner = Sidecar::new(upstream, &papers.listener()).await;
    let url = format!("https://localhost:{}", inner.address.port());
    let trust = format!("upstream.ca_file = \"{}\"\n", papers.path("ca.pem"));
    let outer = Sidecar::on("memory://", &url, &trust).await;
    let answer = outer.send(plain("GET", "/", "")).await;
    assert_eq!(answer.text(), "shop.test via 1.1 semel,1.1 semel");
    // HTTP/2 sends the authority of the connection.
    let settings = format!("{trust}upstream.host = \"upstream\"\n");
    let outer = Sidecar::on("memory://", &url, &settings).await;
    let answer = outer.send(plain("GET", "/", "")).await;
    let own = format!("localhost:{}", inner.address.port());
    assert_eq!(answer.text(), format!("{own} via 1.1 semel,2 semel"));
}

/// Only HTTP/2 carries gRPC. A media type alone must not choose the host that the service sees.
#[tokio::test]
async fn media_type_does_not_change_the_host() {
    let papers = Papers::new();
    papers.issue("server", &["localhost"], "service");
    let told = |headers: HeaderMap| async move {
        let host = headers.get("host").and_then(|host| host.to_str().ok());
        host.unwrap_or("none").to_owned()
    };
    let upstream = service(Router::new().fallback(any(told))).await;
    let inner = Sidecar::new(upstream, &papers.listener()).await;
    let url = format!("https://localhost:{}", inner.address.port());
    let trust = format!("upstream.ca_file = \"{}\"\n", papers.path("ca.pem"));
    let outer = Sidecar::on("memory://", &url, &trust).await;
    for method in ["GET", "POST"] {
        let request = with(plain(method, "/", ""), "content-type", "application/grpc");
        assert_eq!(outer.send(request).await.text(), "shop.test", "{method}");
    }
}

/// Clients that connect and send nothing take all places, also those for health probes.
#[tokio::test]
async fn silent_tls_clients_leave_room_for_health_probes() {
    let papers = Papers::new();
    papers.issue("server", &["shop.test"], "service");
    let runs = Runs::default();
    let settings = format!(
        "{}limits.connections = 2\nlistener.head_timeout = \"1m\"\n",
        papers.listener()
    );
    let sidecar = Sidecar::new(service(counting(&runs)).await, &settings).await;
    let mut silent = Vec::new();
    for _ in 0..80 {
        silent.push(
            TcpStream::connect(sidecar.address)
                .await
                .expect("a connection"),
        );
    }
    let probe = async {
        let (mut client, _) = papers.client(&sidecar, None, Protocol::Http1).await?;
        Ok::<_, std::io::Error>(
            client
                .send(plain("GET", "/_semel/healthz", ""))
                .await
                .status,
        )
    };
    let probe = tokio::time::timeout(std::time::Duration::from_secs(20), probe).await;
    assert_eq!(probe.expect("an answer in time").expect("a handshake"), 200);
}

#[tokio::test]
async fn upstream_certificate_is_verified() {
    let papers = Papers::new();
    papers.issue("server", &["localhost"], "service");
    let runs = Runs::default();
    // A service with TLS: another sidecar in front of the plain one.
    let inner = Sidecar::new(service(counting(&runs)).await, &papers.listener()).await;
    let url = format!("https://localhost:{}", inner.address.port());
    let trusting = Sidecar::on(
        "memory://",
        &url,
        &format!("upstream.ca_file = \"{}\"\n", papers.path("ca.pem")),
    )
    .await;
    let answer = trusting.send(post("/", "k-1", "{}")).await;
    assert_eq!(answer.text(), "run 1 over https");
    // With another CA nothing is sent, and the key is free.
    let others = Papers::new();
    let settings = format!(
        "defaults.crash = \"hold\"\nupstream.ca_file = \"{}\"\n",
        others.path("ca.pem")
    );
    let doubting = Sidecar::on("memory://", &url, &settings).await;
    let answer = doubting.send(post("/", "k-1", "{}")).await;
    assert_eq!(
        answer.problem_and_retry(),
        (502, "upstream_unreachable".to_owned(), true)
    );
    assert_eq!(runs.count(), 1);
}
