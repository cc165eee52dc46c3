//! `identity.json`: the identity of a key in a namespace (P2).

use semel_core::{Identity, KeyRules, Namespace};
use serde::Serialize;

use super::{File, Secret, hex, secret};

#[derive(Serialize)]
pub(super) struct Case {
    secret: Option<Secret>,
    environment: &'static str,
    tenant: &'static str,
    scope: &'static str,
    principal: &'static str,
    key: &'static str,
    identity: String,
    address: String,
    seal: String,
}

type Input = (usize, [&'static str; 3], &'static str, &'static str);

/// Place of the secret; environment, tenant, scope; key; principal.
const INPUTS: [Input; 20] = [
    (0, ["", "", "charge"], "ord-1", ""),
    (1, ["", "", "charge"], "ord-1", ""),
    (2, ["", "", "charge"], "ord-1", ""),
    (0, ["production", "acme", "charge"], "ord-123", ""),
    (2, ["production", "acme", "charge"], "ord-123", ""),
    (2, ["staging", "acme", "charge"], "ord-123", ""),
    // The same letters, cut in other places: never the same identity.
    (0, ["", "acme", "charge"], "ord-1", ""),
    (0, ["", "acm", "echarge"], "ord-1", ""),
    (0, ["acme", "", "charge"], "ord-1", ""),
    (0, ["", "", "acmecharge"], "ord-1", ""),
    (0, ["", "acme", "charg"], "eord-1", ""),
    // Case, composed and decomposed letters, and letters past U+FFFF are told apart.
    (0, ["", "", "charge"], "ORD-1", ""),
    (1, ["prüfung", "Ⅳ", "zahlung"], "é", ""),
    (1, ["pru\u{308}fung", "Ⅳ", "zahlung"], "é", ""),
    (1, ["", "😀", "оплата"], "e\u{301}", ""),
    (0, ["e", "t", "s"], "k", ""),
    // Two callers of one key, one of whom is named like an end of the key.
    (0, ["", "acme", "charge"], "ord-1", "alice"),
    (0, ["", "acme", "charge"], "ord-1", "bob"),
    (2, ["", "acme", "charge"], "ord-1", "alice"),
    (0, ["", "acme", "charge"], "ord-1alice", ""),
];

pub(super) fn file() -> File<Case> {
    File {
        about: "P2: identity = BLAKE3-keyed(k, parts) over environment, tenant, scope, key, and \
                principal unless empty, each after its length as 4 little-endian bytes; k = BLAKE3-derive-key(\"semel v1 \
                identity\", material). No secret is empty material. All outputs are hex.",
        cases: INPUTS.into_iter().map(case).collect(),
    }
}

fn case((at, [environment, tenant, scope], key, principal): Input) -> Case {
    let (shown, secret) = secret(at);
    let namespace = Namespace::with_principal(environment, tenant, scope, principal)
        .expect("a fitting namespace");
    let rules = KeyRules::default().with_extra("é\u{301}");
    let checked = rules.check(key).expect("a fitting key");
    let identity = Identity::new(&secret, &namespace, &checked);
    Case {
        secret: shown,
        environment,
        tenant,
        scope,
        principal,
        key,
        identity: hex(identity.as_bytes()),
        address: hex(&identity.address()),
        seal: hex(&identity.seal()),
    }
}
