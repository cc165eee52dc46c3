//! The settings of a store, as Python gives them.

use pyo3::prelude::*;
use semel_embedded::EmbeddedOptions;

/// The items of the dictionary `StoreOptions` of the Python package.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct NativeOptions {
    environment: String,
    secret: Option<Vec<u8>>,
    secret_id: u16,
    encryption_keys: Option<String>,
}

impl From<NativeOptions> for EmbeddedOptions {
    fn from(options: NativeOptions) -> Self {
        Self {
            environment: options.environment,
            secret: options.secret,
            secret_id: options.secret_id,
            encryption_keys: options.encryption_keys,
        }
    }
}
