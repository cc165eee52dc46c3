//! The protocol behind Semel: *claim → run → settle → replay*. No I/O, no runtime.
//!
//! Most users want the `semel` crate, which brings a runtime and the stores. This crate is for
//! authors of a store, a door, or a simulation.
//!
//! | module | step of a request's way |
//! |---|---|
//! | [`key`], [`namespace`], [`identity`] | the key of a request, and its digest |
//! | [`canonical`], [`fingerprint`] | the digest of its payload |
//! | [`claim`], [`protocol`], [`record`] | who may run, and what is kept: the rules, as pure functions |
//! | [`store`], [`memory`], [`wake`] | where records are kept |
//! | [`engine`] | the only control flow: claim → run → settle → answer |
//! | [`event`] | typed events, for logs, metrics and audit |
//! | [`clock`], [`mod@env`] | time, tasks and randomness, passed in |
//!
//! Comments like `P9` cite the numbered rules of `spec/protocol.md`.

pub mod canary;
pub mod canonical;
pub mod claim;
pub mod clock;
pub mod code;
mod data_subject;
mod decimal;
pub mod diagnosis;
pub mod engine;
pub mod env;
pub mod error;
pub mod event;
pub mod fingerprint;
mod forward;
#[doc(hidden)]
pub mod hex;
pub mod identity;
pub mod key;
mod key_form;
pub mod memory;
pub mod namespace;
mod plain_json;
pub mod policy;
pub mod protocol;
pub mod record;
pub mod secret;
pub mod store;
mod sync;
#[doc(hidden)]
pub mod time;
pub mod wake;

pub use canonical::{CanonicalError, CanonicalErrorKind, canonicalize};
pub use claim::{
    Busy, Claim, ClaimTerms, ClaimTermsError, Claimed, Grant, InDoubt, Mismatch, Renewed, Replay,
    Resolution, Resolved, Restored, Settled, Settlement,
};
pub use clock::{Clock, Tick, Timestamp};
pub use code::Code;
pub use data_subject::{DataSubject, DataSubjectError};
pub use env::{BoxFuture, Entropy, Env, Spawn};
pub use error::{Certainty, StoreError, StoreErrorKind};
pub use fingerprint::{Fingerprint, FingerprintBuilder};
pub use identity::Identity;
pub use key::{Key, KeyError, KeyHint, KeyRules};
pub use key_form::KeyForm;
pub use memory::{MemoryConfig, MemoryStore};
pub use namespace::{Namespace, NamespaceError};
pub use record::{
    Answer, AnswerBody, CrashPolicy, Digest, Fence, Record, RecordError, State, Token,
};
pub use secret::{Secret, SecretError};
pub use store::{Capabilities, Store, StoreAdmin, StoreResult};
