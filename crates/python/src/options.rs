//! The settings of a store, as Python gives them.

use pyo3::prelude::*;
use semel::encrypted::{EncryptionKey, Keyring, WriteKey};
use semel::{Encryption, Secret, Semel};

/// The items of the dictionary `StoreOptions` of the Python package.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct NativeOptions {
    environment: String,
    secret: Option<Vec<u8>>,
    secret_id: u16,
    encryption_keys: Option<String>,
}

impl NativeOptions {
    /// The builder of a [`Semel`] with these settings.
    pub(crate) fn builder(&self) -> Result<semel::Builder, String> {
        let mut builder = Semel::builder().environment(&self.environment);
        if let Some(material) = &self.secret {
            let secret = Secret::new(self.secret_id, material);
            builder = builder.secret(secret.map_err(|error| error.to_string())?);
        }
        if let Some(text) = &self.encryption_keys {
            let keys = EncryptionKey::parse_all(text, "encryption_keys");
            let keys = keys.and_then(|keys| Keyring::new(keys, WriteKey::Newest));
            let keys = keys.map_err(|error| error.to_string())?;
            builder = builder.encryption(Encryption::new(keys));
        }
        Ok(builder)
    }
}
