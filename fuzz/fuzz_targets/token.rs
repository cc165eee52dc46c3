//! Tokens: what isn't signed with the key is nobody's; what is says exactly whose it is.
#![no_main]

use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::request::Parts;
use http::{HeaderValue, Request};
use libfuzzer_sys::fuzz_target;
use semel_server::config::{Flag, Sources, load};
use serde_json::Value;

type Whose = Box<dyn Fn(&Parts) -> [Option<String>; 2] + Send + Sync>;

/// Of this process alone: nobody can have guessed it.
static SECRET: LazyLock<String> = LazyLock::new(|| {
    use semel_core::{Entropy as _, env::SystemEntropy};
    format!("{:032x}{:032x}", SystemEntropy.next_u128(), SystemEntropy.next_u128())
});

static WHOSE: LazyLock<Whose> = LazyLock::new(|| {
    let file = std::env::temp_dir().join(format!("semel-fuzz-{}-key", std::process::id()));
    std::fs::write(&file, &*SECRET).expect("a file");
    let key_file = file.to_string_lossy().into_owned();
    let said = [
        ("upstream.urls", "http://127.0.0.1:1"), ("store.url", "memory://"), ("jwt.key_file", &key_file), ("jwt.algorithm", "HS256"),
        ("tenants.from", "jwt"), ("tenants.claim", "org"), ("principals.from", "jwt"), ("principals.claim", "sub"),
    ];
    let flag = |(path, value): (&str, &str)| Flag { name: "--set".into(), path: path.into(), value: value.into() };
    let sources = Sources { flags: said.map(flag).to_vec(), ..Sources::default() };
    let loaded = load(&sources).expect("settings");
    let whose = semel_server::identity_reader(&loaded.config).expect("a key");
    let _ = std::fs::remove_file(file);
    Box::new(whose)
});

fn ask(line: &[u8]) -> [Option<String>; 2] {
    let Ok(line) = HeaderValue::from_bytes(line) else { return [None, None] };
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.headers.insert("authorization", line);
    WHOSE(&parts)
}

fuzz_target!(|data: &[u8]| {
    let [tenant, principal] = ask(data);
    assert_eq!(tenant, None, "nobody signed it");
    assert!(principal.is_none_or(|principal| principal == "\0"), "nobody signed it");
    // The same, signed: a head and claims.
    let (head, claims) = data.split_at(data.iter().position(|byte| *byte == b'\n').unwrap_or(0));
    let signed = format!("{}.{}", BASE64.encode(head), BASE64.encode(claims));
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(SECRET.as_bytes()).expect("a key");
    mac.update(signed.as_bytes());
    let signature = BASE64.encode(mac.finalize().into_bytes());
    let [tenant, principal] = ask(format!("Bearer {signed}.{signature}").as_bytes());
    let found = [("org", tenant), ("sub", principal.filter(|principal| principal != "\0"))];
    for (claim, found) in found.into_iter().filter_map(|(claim, found)| Some((claim, found?))) {
        // Whoever has the key may write anything where nobody reads it.
        if let Ok(head) = serde_json::from_slice::<Value>(head) {
            assert_eq!(head["alg"], "HS256");
        }
        let claims: Value = serde_json::from_slice(claims).expect("claims are JSON");
        assert!(claims["exp"].is_number(), "a token ends");
        assert!(claims[claim] == found.as_str() || claims[claim].to_string() == found);
    }
});
