//! Tenants and principals from headers and JSON web tokens.

use axum::Router;
use axum::extract::State;
use axum::routing::any;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use ring::{hmac, rand::SystemRandom};
use semel_testkit::private::new_folder;
use serde_json::{Value, json};

use crate::support::*;

const SECRET: &str = "thirty-two bytes of a secret, or more";

async fn counting(runs: &Runs) -> std::net::SocketAddr {
    let handler = |State(runs): State<Runs>| async move { format!("run {}", runs.begin()) };
    service(
        Router::new()
            .fallback(any(handler))
            .with_state(runs.clone()),
    )
    .await
}

fn hs256() -> String {
    let file = new_folder("token").join("secret");
    std::fs::write(&file, SECRET).expect("as set up");
    format!(
        "jwt.algorithm = \"HS256\"\njwt.key_file = \"{}\"\n",
        file.display()
    )
}

/// A time in the far future, in seconds.
const LATER: u64 = 32_503_680_000;

fn token(claims: &Value, secret: &str) -> String {
    token_with(&json!({"alg": "HS256", "typ": "JWT"}), claims, secret)
}

/// A token with this header.
fn token_with(head: &Value, claims: &Value, secret: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    signed(head, claims, |message| {
        hmac::sign(&key, message).as_ref().to_vec()
    })
}

fn signed(head: &Value, claims: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let [head, claims] = [head, claims].map(|part| encode(part.to_string().as_bytes()));
    let message = format!("{head}.{claims}");
    let signature = encode(&sign(message.as_bytes()));
    format!("Bearer {message}.{signature}")
}

/// A key pair of a token provider, with a key id.
struct Pair {
    id: &'static str,
    key: rcgen::KeyPair,
}

impl Pair {
    fn new(id: &'static str) -> Self {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256);
        Self {
            id,
            key: key.expect("as set up"),
        }
    }

    /// The public key as a member of a JWKS.
    fn jwk(&self) -> Value {
        let point = self.key.public_key_raw();
        let part = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": self.id,
            "x": part(&point[1..33]), "y": part(&point[33..65])})
    }

    /// A token with the id of this key, or with another id.
    fn token(&self, claims: &Value, name: Option<&str>) -> String {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let key = EcdsaKeyPair::from_pkcs8(algorithm, &self.key.serialize_der(), &random);
        let key = key.expect("as set up");
        let head = json!({"alg": "ES256", "kid": name.unwrap_or(self.id)});
        let sign = |message: &[u8]| {
            key.sign(&random, message)
                .expect("a signature")
                .as_ref()
                .to_vec()
        };
        signed(&head, claims, sign)
    }
}

#[tokio::test]
async fn tenant_comes_from_the_token() {
    let runs = Runs::default();
    let settings = format!(
        "tenants.from = \"jwt\"\nprincipals.from = \"jwt\"\n{}",
        hs256()
    );
    let sidecar = Sidecar::new(counting(&runs).await, &settings).await;
    let ask =
        |token: String| sidecar.send(with(post("/", "same-key", "{}"), "authorization", &token));
    let of = |tenant: &str, user: &str, jti: u64| {
        token(
            &json!({"tenant_id": tenant, "sub": user, "exp": LATER, "jti": jti}),
            SECRET,
        )
    };
    assert_eq!(ask(of("acme", "ann", 1)).await.text(), "run 1");
    let refreshed = ask(of("acme", "ann", 2)).await;
    assert!(refreshed.is_replay(), "another token of the same person");
    assert_eq!(ask(of("acme", "bob", 1)).await.text(), "run 2");
    assert_eq!(ask(of("umbrella", "ann", 1)).await.text(), "run 3");
    assert_eq!(runs.count(), 3);
}

#[tokio::test]
async fn invalid_token_is_refused() {
    let runs = Runs::default();
    let settings = format!(
        "tenants.from = \"jwt\"\njwt.audience = \"shop\"\n{}",
        hs256()
    );
    let sidecar = Sidecar::new(counting(&runs).await, &settings).await;
    let good = json!({"tenant_id": "acme", "aud": "shop", "exp": LATER});
    let unsigned =
        "Bearer eyJhbGciOiJub25lIn0.eyJ0ZW5hbnRfaWQiOiJhY21lIiwiZXhwIjozMjUwMzY4MDAwMH0."
            .to_owned();
    let wrong = [
        (token(&good, "another secret of thirty-two bytes!"), true),
        (
            token(
                &json!({"tenant_id": "acme", "aud": "shop", "exp": 1000}),
                SECRET,
            ),
            true,
        ),
        (
            token(
                &json!({"tenant_id": "acme", "aud": "other", "exp": LATER}),
                SECRET,
            ),
            true,
        ),
        (
            token(&json!({"tenant_id": "acme", "aud": "shop"}), SECRET),
            true,
        ),
        (unsigned, true),
        ("Bearer nonsense".to_owned(), true),
        ("Basic YTpi".to_owned(), false),
    ];
    for (token, is_invalid) in wrong {
        let answer = sidecar
            .send(with(post("/", "k-1", "{}"), "authorization", &token))
            .await;
        assert_eq!(
            answer.problem_and_retry(),
            (401, "token_required".to_owned(), false),
            "{token}"
        );
        let challenge = answer.header("www-authenticate").unwrap();
        assert_eq!(
            challenge.contains("invalid_token"),
            is_invalid,
            "{token}: {challenge}"
        );
    }
    assert_eq!(sidecar.send(post("/", "k-1", "{}")).await.status, 401);
    // A token without a tenant is valid.
    let nobody = token(&json!({"aud": "shop", "exp": LATER}), SECRET);
    let answer = sidecar
        .send(with(post("/", "k-1", "{}"), "authorization", &nobody))
        .await;
    assert_eq!(answer.problem_and_retry().1, "idempotency_tenant_required");
    assert_eq!(runs.count(), 0);
    // Requests without a key pass through.
    assert_eq!(sidecar.send(plain("POST", "/", "{}")).await.text(), "run 1");
    let good = token(&good, SECRET);
    assert_eq!(
        sidecar
            .send(with(post("/", "k-1", "{}"), "authorization", &good))
            .await
            .text(),
        "run 2"
    );
}

#[tokio::test]
async fn invalid_token_differs_from_no_token() {
    let runs = Runs::default();
    let settings = format!("principals.from = \"jwt\"\n{}", hs256());
    let sidecar = Sidecar::new(counting(&runs).await, &settings).await;
    assert_eq!(
        sidecar.send(post("/", "k-1", "{}")).await.text(),
        "run 1",
        "nobody in particular"
    );
    let forged = token(
        &json!({"sub": "ann", "exp": LATER}),
        "another secret of thirty-two bytes!",
    );
    let answer = sidecar
        .send(with(post("/", "k-1", "{}"), "authorization", &forged))
        .await;
    assert_eq!(answer.problem_and_retry().1, "token_required");
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn tokens_without_a_principal_share_no_answers() {
    let runs = Runs::default();
    let settings = format!("principals.from = \"jwt\"\n{}", hs256());
    let sidecar = Sidecar::new(counting(&runs).await, &settings).await;
    let ask = |credential: String| {
        sidecar.send(with(post("/", "k-1", "{}"), "authorization", &credential))
    };
    let machine = |jti: u64| token(&json!({"exp": LATER, "jti": jti}), SECRET);
    assert_eq!(ask(machine(1)).await.text(), "run 1");
    for other in [machine(2), "Basic YTpi".to_owned()] {
        assert_eq!(
            ask(other).await.problem_and_retry().1,
            "idempotency_conflict"
        );
    }
    assert!(ask(machine(1)).await.is_replay());
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn tokens_signed_with_a_private_key() {
    let pair = Pair::new("any");
    let file = new_folder("token").join("key.pem");
    std::fs::write(&file, pair.key.public_key_pem()).unwrap();
    let runs = Runs::default();
    let settings = format!(
        "tenants.from = \"jwt\"\njwt.algorithm = \"ES256\"\njwt.key_file = \"{}\"\n",
        file.display()
    );
    let sidecar = Sidecar::new(counting(&runs).await, &settings).await;
    let claims = json!({"tenant_id": 17, "exp": LATER});
    let good = pair.token(&claims, None);
    let answer = sidecar
        .send(with(post("/", "k-1", "{}"), "authorization", &good))
        .await;
    assert_eq!(answer.text(), "run 1");
    // A token that uses the public key as a shared secret is a forgery.
    let forged = token(&claims, &pair.key.public_key_pem());
    let answer = sidecar
        .send(with(post("/", "k-1", "{}"), "authorization", &forged))
        .await;
    assert_eq!(answer.status, 401);
}

#[tokio::test]
async fn required_claims_are_enforced() {
    let runs = Runs::default();
    let settings = format!(
        "tenants.from = \"jwt\"\njwt.audience = \"shop\"\njwt.issuer = \"https://idp\"\n{}",
        hs256()
    );
    let sidecar = Sidecar::new(counting(&runs).await, &settings).await;
    let ask = |token: String| sidecar.send(with(post("/", "k-1", "{}"), "authorization", &token));
    let good = json!({"tenant_id": "acme", "exp": LATER, "aud": ["shop"], "iss": "https://idp"});
    let but = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        token(&claims, SECRET)
    };
    for (name, value) in [
        ("aud", Value::Null),
        ("aud", json!(7)),
        ("aud", json!([])),
        ("iss", Value::Null),
        ("iss", json!(7)),
        ("iss", json!("https://other")),
        ("exp", Value::Null),
        ("exp", json!("32503680000")),
        ("nbf", json!("99999999999")),
        ("nbf", json!(LATER)),
    ] {
        let answer = ask(but(name, value.clone())).await;
        assert_eq!(
            answer.problem_and_retry().1,
            "token_required",
            "{name}: {value}"
        );
    }
    for head in [
        json!({"alg": "HS256", "typ": "logout+jwt"}),
        json!({"alg": "HS256", "crit": ["b64"], "b64": false}),
    ] {
        let answer = ask(token_with(&head, &good, SECRET)).await;
        assert_eq!(answer.problem_and_retry().1, "token_required", "{head}");
    }
    assert_eq!(runs.count(), 0);
    let head = json!({"alg": "HS256", "typ": "at+jwt"});
    assert_eq!(ask(token_with(&head, &good, SECRET)).await.text(), "run 1");
}

#[tokio::test]
async fn numeric_claim_differs_from_text() {
    let runs = Runs::default();
    let settings = format!("principals.from = \"jwt\"\n{}", hs256());
    let sidecar = Sidecar::new(counting(&runs).await, &settings).await;
    let ask = |who: Value| {
        let token = token(&json!({"sub": who, "exp": LATER}), SECRET);
        sidecar.send(with(post("/", "k-1", "{}"), "authorization", &token))
    };
    for (run, who) in [json!(7), json!("7"), json!("#7")].into_iter().enumerate() {
        assert_eq!(ask(who).await.text(), format!("run {}", run + 1));
    }
}

#[tokio::test]
async fn jwks_key_is_selected_by_kid() {
    let [old, new, stranger] = [Pair::new("old"), Pair::new("new"), Pair::new("stranger")];
    let file = new_folder("token").join("keys.json");
    let set = json!({"keys": [old.jwk(), new.jwk(), {"kty": "oct", "kid": "x", "k": "YQ"}]});
    std::fs::write(&file, set.to_string()).unwrap();
    let runs = Runs::default();
    let settings = format!(
        "tenants.from = \"jwt\"\njwt.algorithm = \"ES256\"\njwt.jwks_file = \"{}\"\n",
        file.display()
    );
    let sidecar = Sidecar::new(counting(&runs).await, &settings).await;
    let ask = |token: String| sidecar.send(with(post("/", "k-1", "{}"), "authorization", &token));
    let claims = json!({"tenant_id": "acme", "exp": LATER});
    assert_eq!(ask(old.token(&claims, None)).await.text(), "run 1");
    assert!(
        ask(old.token(&claims, None)).await.status.is_client_error(),
        "another token"
    );
    let other = json!({"tenant_id": "umbrella", "exp": LATER});
    assert_eq!(ask(new.token(&other, None)).await.text(), "run 2");
    for forged in [
        stranger.token(&claims, None),
        stranger.token(&claims, Some("old")),
        old.token(&claims, Some("new")),
    ] {
        assert_eq!(ask(forged).await.problem_and_retry().1, "token_required");
    }
}

#[tokio::test]
async fn jwks_url_is_fetched() {
    let pair = Pair::new("one");
    let set = json!({"keys": [pair.jwk()]}).to_string();
    let provider = service(Router::new().fallback(any(move || async move { set }))).await;
    let runs = Runs::default();
    let settings = format!(
        "tenants.from = \"jwt\"\njwt.algorithm = \"ES256\"\njwt.jwks_url = \
         \"http://{provider}/keys\"\n"
    );
    let sidecar = Sidecar::new(counting(&runs).await, &settings).await;
    let token = pair.token(&json!({"tenant_id": "acme", "exp": LATER}), None);
    for _ in 0..500 {
        let answer = sidecar
            .send(with(post("/", "k-1", "{}"), "authorization", &token))
            .await;
        if answer.status == 200 {
            assert_eq!(answer.text(), "run 1");
            return;
        }
        assert_eq!(answer.problem_and_retry().1, "token_required");
        pause(10).await;
    }
    panic!("the keys were not fetched");
}

#[tokio::test]
async fn repeated_tenant_header_is_ignored() {
    let runs = Runs::default();
    let settings = "tenants.from = \"header\"\ntenants.header = \"x-tenant\"\n[[routes]]\npath = \
        \"/open\"\nhas_tenants = false\n";
    let sidecar = Sidecar::new(counting(&runs).await, settings).await;
    let ask = |tenant: &'static str| sidecar.send(with(post("/", "k-1", "{}"), "x-tenant", tenant));
    assert_eq!(ask("acme").await.text(), "run 1");
    assert_eq!(ask("umbrella").await.text(), "run 2");
    assert!(ask("acme").await.is_replay());
    let two = with(
        with(post("/", "k-1", "{}"), "x-tenant", "acme"),
        "x-tenant",
        "umbrella",
    );
    assert_eq!(
        sidecar.send(two).await.problem_and_retry().1,
        "idempotency_tenant_required"
    );
    assert_eq!(
        sidecar
            .send(post("/", "k-1", "{}"))
            .await
            .problem_and_retry()
            .1,
        "idempotency_tenant_required"
    );
    assert_eq!(
        sidecar.send(post("/open", "k-1", "{}")).await.text(),
        "run 3"
    );
}

#[tokio::test]
async fn key_can_come_from_a_header_or_the_body() {
    let runs = Runs::default();
    let settings = "[[routes]]\npath = \"/header\"\nkey_header = \"x-order-id\"\n[[routes]]\npath \
        = \"/body\"\nkey_field = \"idempotency_key\"\n";
    let sidecar = Sidecar::new(counting(&runs).await, settings).await;
    let by_header = || with(plain("POST", "/header", "{}"), "x-order-id", "o-1");
    assert_eq!(sidecar.send(by_header()).await.text(), "run 1");
    assert!(sidecar.send(by_header()).await.is_replay());
    let by_body = || {
        with(
            plain("POST", "/body", "{\"idempotency_key\":\"o-1\"}"),
            "content-type",
            "application/json",
        )
    };
    assert_eq!(sidecar.send(by_body()).await.text(), "run 2");
    assert!(sidecar.send(by_body()).await.is_replay());
    assert_eq!(
        sidecar.send(post("/header", "ignored", "{}")).await.text(),
        "run 3"
    );
    assert_eq!(
        sidecar.send(post("/header", "ignored", "{}")).await.text(),
        "run 4"
    );
}

/// While keys are rotated, tokens of the old and of the new key are accepted.
#[tokio::test]
async fn each_of_several_key_files_verifies_tokens() {
    let folder = new_folder("token");
    let pairs = ["one", "two", "three"].map(Pair::new);
    let file = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).expect("as set up");
        folder.join(name).display().to_string()
    };
    let public = pairs
        .each_ref()
        .map(|pair| file(pair.id, &pair.key.public_key_pem()));
    let secrets = ["a", "b", "c"].map(|name| format!("{name}: {SECRET}"));
    let shared = secrets.each_ref().map(|secret| file(&secret[..1], secret));
    let claims = json!({"sub": "jo", "exp": LATER});
    let settings = |algorithm: &str, files: &[String; 3]| {
        format!(
            "principals.from = \"jwt\"\njwt.algorithm = \"{algorithm}\"\njwt.key_file = \
             {:?}\njwt.key_files = [{:?}]\n",
            files[0], files[1]
        )
    };
    let of_pairs = pairs.each_ref().map(|pair| pair.token(&claims, None));
    let of_secrets = secrets.each_ref().map(|secret| token(&claims, secret));
    for (settings, tokens) in [
        (settings("ES256", &public), of_pairs),
        (settings("HS256", &shared), of_secrets),
    ] {
        let sidecar = Sidecar::new(counting(&Runs::default()).await, &settings).await;
        for (token, status) in tokens.iter().zip([200, 200, 401]) {
            let request = with(post("/", "k-1", "{}"), "authorization", token);
            let answer = sidecar.send(request).await;
            assert_eq!(answer.status, status, "{settings}: {}", answer.text());
        }
    }
}
