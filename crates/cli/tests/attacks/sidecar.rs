//! Attacks on the sidecar.

use std::io::Write as _;
use std::net::TcpStream;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use semel_testkit::private::new_folder;
use serde_json::{Value, json};
use sha2::Sha256;

use crate::support::*;

#[test]
fn other_cookie_does_not_get_the_stored_response() {
    let service = Service::start();
    let sidecar = sidecar(service.address, "");
    let ask = |cookie| {
        post(
            sidecar.address,
            "/me/export",
            "export-1",
            &[("Cookie", cookie)],
            "{}",
        )
    };
    assert!(ask("sid=alice").body.contains("sid=alice"));
    let other = ask("sid=mallory");
    assert_eq!(other.status(), 422, "{other:?}");
    assert!(!other.body.contains("alice"), "{other:?}");
    assert!(ask("sid=alice").is_replay());
    assert_eq!(service.runs(), 1);
}

#[test]
fn anonymous_redirect_does_not_block_a_paying_user() {
    let service = Service::start();
    let sidecar = sidecar(service.address, "");
    let ask = |more: &[_]| {
        post(
            sidecar.address,
            "/app/pay",
            "cart-77",
            more,
            "{\"cart\":77}",
        )
    };
    assert_eq!(ask(&[]).status(), 302);
    let paid = ask(&[("Cookie", "sid=alice")]);
    assert_eq!((paid.status(), paid.is_replay()), (200, false), "{paid:?}");
}

#[test]
fn admin_api_requires_a_token() {
    let service = Service::start();
    let closed = sidecar(service.address, "");
    let records = "GET /admin/v1/records";
    assert_eq!(send(closed.admin, records, &[], "").status(), 403);
    assert_eq!(send(closed.admin, "GET /healthz", &[], "").status(), 200);
    assert_eq!(send(closed.admin, "GET /metrics", &[], "").status(), 200);
    let open = sidecar(service.address, "admin.open = true\n");
    assert_eq!(send(open.admin, records, &[], "").status(), 200);
}

#[test]
fn forwarded_headers_of_clients_are_removed() {
    let service = Service::start();
    let sidecar = sidecar(service.address, "");
    let lies = [
        ("Forwarded", "for=1.2.3.4"),
        ("X-Real-IP", "1.2.3.4"),
        ("X-Forwarded-Prefix", "1.2.3.4"),
        ("X-Original-URL", "1.2.3.4"),
        ("Semel-Anything", "1.2.3.4"),
    ];
    let answer = post(sidecar.address, "/f", "fw-1", &lies, "{}");
    assert_eq!(answer.status(), 200);
    assert!(!answer.body.contains("1.2.3.4"), "{}", answer.body);
}

#[test]
fn header_name_with_an_underscore_is_refused() {
    let service = Service::start();
    let sidecar = sidecar(service.address, "");
    let answer = post(
        sidecar.address,
        "/f",
        "us-1",
        &[("Semel_Fence", "99")],
        "{}",
    );
    assert_eq!(answer.status(), 400, "{answer:?}");
    assert_eq!(service.runs(), 0);
}

#[test]
fn two_decimals_are_two_payloads() {
    let service = Service::start();
    let sidecar = sidecar(service.address, "");
    for wei in ["0.100000000000000001", "0.100000000000000002", "1e-400"] {
        let answer = post(
            sidecar.address,
            "/w",
            "wei-1",
            &[],
            &format!("{{\"wei\":{wei}}}"),
        );
        assert_eq!(
            (answer.status(), answer.is_replay()),
            (400, false),
            "{answer:?}"
        );
    }
    assert_eq!(
        post(sidecar.address, "/w", "wei-1", &[], "{\"wei\":0.1}").status(),
        200
    );
}

#[test]
fn no_form_of_a_path_bypasses_its_route() {
    let service = Service::start();
    let route = "[[routes]]\npath = \"/charges\"\nrequire_key = true\ncrash = \"hold\"\n";
    let sidecar = sidecar(service.address, route);
    for path in [
        "/charges",
        "/charges/",
        "//charges",
        "/Charges",
        "/%63harges",
        "/charges;a=1",
        "/./charges",
    ] {
        let answer = send(sidecar.address, &format!("POST {path}"), &[], "x");
        assert_eq!(answer.status(), 400, "{path}: {answer:?}");
    }
    assert_eq!(service.runs(), 0);
}

const SECRET: &str = "thirty-two bytes of a secret, or more";

fn token(more: &Value) -> String {
    let mut claims = json!({"tenant_id": "acme", "exp": 32_503_680_000_u64});
    for (name, value) in more.as_object().expect("as set up") {
        claims[name] = value.clone();
    }
    let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let claims = encode(claims.to_string().as_bytes());
    let message = format!("{}.{claims}", encode(b"{\"alg\":\"HS256\"}"));
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("as set up");
    mac.update(message.as_bytes());
    format!("Bearer {message}.{}", encode(&mac.finalize().into_bytes()))
}

#[test]
fn token_without_required_claims_is_refused() {
    let file = new_folder("attacks").join("secret");
    std::fs::write(&file, SECRET).expect("a file");
    let service = Service::start();
    let settings = format!(
        "tenants.from = \"jwt\"\njwt = {{ algorithm = \"HS256\", key_file = \"{}\", audience = \"shop\", issuer = \"https://idp\" }}\n",
        file.display()
    );
    let sidecar = sidecar(service.address, &settings);
    let ask = |claims: &Value| {
        let credential = token(claims);
        post(
            sidecar.address,
            "/x",
            "j",
            &[("Authorization", &credential)],
            "{}",
        )
    };
    for claims in [
        json!({}),
        json!({"aud": 7, "iss": 7}),
        json!({"aud": "shop", "iss": "https://idp", "nbf": "99999999999"}),
    ] {
        assert_eq!(ask(&claims).status(), 401, "{claims}");
    }
    assert_eq!(service.runs(), 0);
    assert_eq!(
        ask(&json!({"aud": "shop", "iss": "https://idp"})).status(),
        200
    );
}

#[test]
fn disconnected_clients_respect_the_connection_limit() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    // A service that accepts connections and never answers.
    let (told, taken) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming().flatten() {
            held.push(stream);
            let _ = told.send(());
        }
    });
    let sidecar = sidecar(
        address,
        "limits.running = 20\nupstream.connect_timeout = \"1s\"\n",
    );
    let mut clients = Vec::new();
    for number in 0..100 {
        let mut stream = TcpStream::connect(sidecar.address).expect("a connection");
        let request = format!(
            "POST /r HTTP/1.1\r\nHost: a\r\nIdempotency-Key: d-{number}\r\nContent-Length: 0\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("a connection");
        clients.push(stream);
    }
    for _ in 0..20 {
        let patience = std::time::Duration::from_secs(30);
        taken.recv_timeout(patience).expect("a connection");
    }
    drop(clients);
    let last = post(sidecar.address, "/r", "last", &[], "{}");
    assert_eq!(last.status(), 503, "{last:?}");
    assert!(last.header("retry-after").is_some(), "{last:?}");
    // The client's pool may open a connection and then use another one.
    let taken = taken.try_iter().count();
    assert!(taken < 10, "{taken} connections more");
}
