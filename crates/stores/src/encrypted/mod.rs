//! Encryption of records: what a caller or an effect said never reaches the store in plain text.
//!
//! | file | is |
//! |---|---|
//! | `key` | one key: parsing, and what is derived from it |
//! | `keyring` | all keys of a process, and the one it writes with |
//! | `cipher` | one field, encrypted and bound to its record (P47) |
//! | `record` | answers, checkpoints and whole records |
//! | `data_keys` | keys of tenants and subjects, and erasure (P48, P49) |
//! | `store` | [`EncryptedStore`], around any other store |
//! | `provider` | where keys come from: files, a variable, a command |
//! | `canary` | tells a node with wrong keys before it serves |

pub mod canary;
mod cipher;
mod data_keys;
mod key;
mod keyring;
mod provider;
mod record;
mod store;

pub use cipher::{BoundField, DecryptionKeys};
pub use data_keys::{
    DEFAULT_CACHE_TIME, DataKey, DataKeyError, DataKeyUse, DataKeys, DataOwner, Erased,
    RewrapProgress, SCOPE as DATA_KEY_SCOPE, wrap as wrap_data_key,
};
pub use key::{EncryptionKey, EncryptionKeyError};
pub use keyring::{Keyring, SharedKeyring, WriteKey};
pub use provider::{KeyCommand, KeyFiles, KeyProvider, KeyVariable};
pub(crate) use record::StoredAnswer;
pub use store::EncryptedStore;
/// Erases what it holds from memory when it is dropped.
pub use zeroize::Zeroizing;
