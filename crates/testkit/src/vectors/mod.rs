//! The test vectors under `spec/vectors`: inputs written by hand here, outputs computed by the
//! core.
//!
//! Another language reads the files; see `spec/vectors/README.md`. A change of the protocol's bytes
//! shows as a change of those files.

mod downstream;
mod encrypted;
mod fingerprint;
mod identity;
mod keys;
mod record;

use semel_core::hex::hex;
use serde::Serialize;

/// Every vector file: its name, and its whole text.
///
/// ```
/// let files = semel_testkit::vectors::all();
/// assert!(files.iter().any(|(name, _)| *name == "identity.json"));
/// ```
#[must_use]
pub fn all() -> Vec<(&'static str, String)> {
    vec![
        ("downstream.json", pretty(&downstream::file())),
        ("encrypted.json", pretty(&encrypted::file())),
        ("fingerprint.json", pretty(&fingerprint::file())),
        ("identity.json", pretty(&identity::file())),
        ("keys.json", pretty(&keys::file())),
        ("record.json", pretty(&record::file())),
    ]
}

fn pretty(file: &impl Serialize) -> String {
    serde_json::to_string_pretty(file).expect("vectors are plain data") + "\n"
}

/// One file: what it is about, and its cases.
#[derive(Serialize)]
struct File<T> {
    about: &'static str,
    cases: Vec<T>,
}

/// A text, written out, or as pieces that repeat where it would be long.
#[derive(Clone, Serialize)]
#[serde(untagged)]
enum Text {
    Plain(&'static str),
    Repeated(Vec<Piece>),
}

#[derive(Clone, Copy, Serialize)]
struct Piece {
    repeat: &'static str,
    times: usize,
}

impl Text {
    fn repeated(pieces: &[(&'static str, usize)]) -> Self {
        Self::Repeated(
            pieces
                .iter()
                .map(|&(repeat, times)| Piece { repeat, times })
                .collect(),
        )
    }

    fn written_out(&self) -> String {
        match self {
            Self::Plain(text) => (*text).to_owned(),
            Self::Repeated(pieces) => pieces
                .iter()
                .map(|piece| piece.repeat.repeat(piece.times))
                .collect(),
        }
    }
}

/// A secret: its id, and its material in hex.
#[derive(Clone, Serialize)]
struct Secret {
    id: u16,
    material: String,
}

/// No secret, a short one with every kind of byte, and a longer text.
const SECRETS: [Option<(u16, &[u8])>; 3] = [
    None,
    Some((
        1,
        &[
            0, 1, 2, 3, 0x7f, 0x80, 0xfe, 0xff, 0, 1, 2, 3, 0x7f, 0x80, 0xfe, 0xff,
        ],
    )),
    Some((65_535, b"thirty-two bytes from a generator")),
];

/// The secret of a place in [`SECRETS`], for the file and for the core.
fn secret(at: usize) -> (Option<Secret>, semel_core::Secret) {
    match SECRETS[at] {
        None => (None, semel_core::Secret::none()),
        Some((id, material)) => (
            Some(Secret {
                id,
                material: hex(material),
            }),
            semel_core::Secret::new(id, material).expect("a fitting secret"),
        ),
    }
}
