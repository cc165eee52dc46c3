#![doc = include_str!("../README.md")]

mod answer;
#[cfg(feature = "http")]
mod door;
mod encryption;
mod error;
mod open;
mod operation;
mod runtime;
mod stores;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod transactional;
mod url;

pub use answer::{Error, Failure, Rejection, TypedAnswer};
pub use encryption::Encryption;
pub use error::OpenError;
pub use open::{Builder, Semel};
pub use operation::{Call, Keyed, Operation};
pub use runtime::tokio_env;
pub use stores::open_store;
#[doc(hidden)]
pub use url::{StoreScheme, check_store_url, is_scheme};

pub use semel_core::engine::{
    BreakerConfig, CacheConfig, Doubt, EngineConfig, Lease, LeaseLost, Problem,
};
pub use semel_core::event::{Event, Observer, Step};
pub use semel_core::policy::{Mode, OnBusy, Policy, StoreDown};
pub use semel_core::{
    CrashPolicy, DataSubject, Fence, Key, KeyError, KeyForm, KeyRules, Resolution, Secret,
};

#[cfg(any(feature = "mysql", feature = "postgres"))]
pub use semel_stores::TxError;
#[cfg(feature = "mysql")]
pub use semel_stores::mysql::MySqlTx;
#[cfg(feature = "postgres")]
pub use semel_stores::postgres::PostgresTx;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub use transactional::Transact;

/// The tower layer: `semel.http()`.
#[cfg(feature = "http")]
pub use semel_http as http;

/// The protocol crate, for authors of a store or a door.
pub use semel_core as core;
/// Keys for encrypted records, and where they come from.
pub use semel_stores::encrypted;
