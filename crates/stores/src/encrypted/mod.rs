//! Encryption of records: what a caller or an effect said never reaches the store in plain text.
//!
//! | file | is |
//! |---|---|
//! | `key` | one key: parsing, and what is derived from it |
//! | `keyring` | all keys of a process, and the one it writes with |
//! | `cipher` | one field, encrypted and bound to its record (P47) |
//! | `record` | answers, checkpoints and whole records |
//! | `store` | [`EncryptedStore`], around any other store |
//! | `provider` | where keys come from: files, a variable, a command |
//! | `canary` | tells a node with wrong keys before it serves |

pub mod canary;
mod cipher;
mod key;
mod keyring;
mod provider;
mod record;
mod store;

pub use cipher::BoundField;
pub use key::{EncryptionKey, EncryptionKeyError};
pub use keyring::{Keyring, SharedKeyring, WriteKey};
pub use provider::{KeyCommand, KeyFiles, KeyProvider, KeyVariable};
pub(crate) use record::StoredAnswer;
pub use store::EncryptedStore;
/// Erases what it holds from memory when it is dropped.
pub use zeroize::Zeroizing;
