//! `downstream.json`: keys for downstream systems (P42).

use semel_core::Identity;
use serde::Serialize;

use super::{File, Secret, hex, secret};

#[derive(Serialize)]
pub(super) struct Case {
    secret: Option<Secret>,
    identity: String,
    step: &'static str,
    key: String,
}

/// Place of the secret; every byte of the identity; step.
const INPUTS: [(usize, u8, &str); 7] = [
    (0, 0, "psp"),
    (1, 0, "psp"),
    (2, 0, "psp"),
    (0, 0xff, "psp"),
    (0, 0, "mail"),
    (0, 0, ""),
    (1, 0x5a, "überweisung"),
];

pub(super) fn file() -> File<Case> {
    File {
        about: "P42: \"semel-\" and the first 16 bytes, in hex, of BLAKE3-keyed(k, parts) over the \
                identity and the name of the step, each after its length as 4 little-endian bytes; \
                k = BLAKE3-derive-key(\"semel v1 downstream key\", material).",
        cases: INPUTS.into_iter().map(case).collect(),
    }
}

fn case((at, byte, step): (usize, u8, &'static str)) -> Case {
    let (shown, secret) = secret(at);
    let identity = Identity::from_bytes([byte; 32]);
    Case {
        secret: shown,
        identity: hex(identity.as_bytes()),
        step,
        key: identity.derive_key(&secret, step),
    }
}
