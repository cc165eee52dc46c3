//! The settings of a store.

use semel::encrypted::{EncryptionKey, Keyring, WriteKey};
use semel::{Encryption, Secret, Semel};

/// What a store is opened with: the same in all processes that share it.
#[derive(Default)]
pub struct EmbeddedOptions {
    /// Equal keys of different environments are different keys.
    pub environment: String,
    /// What keys identities and fingerprints.
    pub secret: Option<Vec<u8>>,
    /// The secret's number.
    pub secret_id: u16,
    /// The lines of a key file.
    pub encryption_keys: Option<String>,
}

impl EmbeddedOptions {
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
