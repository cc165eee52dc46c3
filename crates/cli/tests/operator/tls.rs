//! An admin listener with TLS that requires a client certificate.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use semel_testkit::private::new_folder;

use crate::support::{Sidecar, semel};

/// Writes a CA certificate, and two certificates that it issued, with their keys.
fn write_papers(folder: &Path) {
    let write = |name: &str, text: String| {
        std::fs::write(folder.join(name), text).expect("as set up");
    };
    let mut params = CertificateParams::new(Vec::<String>::new()).expect("as set up");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("as set up");
    let authority = CertifiedIssuer::self_signed(params, key).expect("as set up");
    write("ca.pem", authority.pem());
    for name in ["server", "operator"] {
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("as set up");
        let key = KeyPair::generate().expect("as set up");
        let certificate = params.signed_by(&key, &authority).expect("as set up");
        write(&format!("{name}.pem"), certificate.pem());
        write(&format!("{name}.key"), key.serialize_pem());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_certificate_is_required() {
    let folder = new_folder("papers");
    write_papers(&folder);
    let path = |name: &str| folder.join(name).display().to_string();
    let tls = format!(
        "tls.cert_file = \"{}\"\ntls.key_file = \"{}\"\ntls.client_ca_file = \"{}\"\n",
        path("server.pem"),
        path("server.key"),
        path("ca.pem")
    );
    let sidecar = Sidecar::start("memory://", &tls).await;
    let admin = sidecar.admin.replace("http:", "https:");
    let ask = async |flags: &str| {
        let line = format!("keys list --admin {admin} {flags}");
        semel(&line.split_whitespace().collect::<Vec<_>>()).await
    };
    ask("").await.failed(10, "can't be reached");
    let trusting = format!("--ca-file {}", path("ca.pem"));
    ask(&trusting).await.failed(10, "");
    let shown = format!(
        "{trusting} --cert-file {} --key-file {}",
        path("operator.pem"),
        path("operator.key")
    );
    assert!(ask(&shown).await.good().contains("no record matches"));
}
