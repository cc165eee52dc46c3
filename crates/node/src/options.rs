//! The settings of a store, as JavaScript gives them.

use napi::bindgen_prelude::Uint8Array;
use napi_derive::napi;
use semel_embedded::EmbeddedOptions;

/// `NativeOptions` of the TypeScript package.
#[napi(object, object_to_js = false)]
pub(crate) struct NativeOptions {
    /// Equal keys of different environments are different keys.
    pub environment: String,
    /// What keys identities and fingerprints.
    pub secret: Option<Uint8Array>,
    /// The secret's number.
    pub secret_id: u32,
    /// The lines of a key file.
    pub encryption_keys: Option<String>,
}

impl NativeOptions {
    /// The options of the engine, or what is wrong with them.
    pub(crate) fn embedded(self) -> Result<EmbeddedOptions, String> {
        let secret_id = u16::try_from(self.secret_id);
        Ok(EmbeddedOptions {
            environment: self.environment,
            secret: self.secret.map(|secret| secret.to_vec()),
            secret_id: secret_id.map_err(|_| "secretId is at most 65535".to_owned())?,
            encryption_keys: self.encryption_keys,
        })
    }
}
