//! `semel encryption-key`: creates a key for encrypted records.

use clap::Args;
use semel::encrypted::EncryptionKey;
use semel_server::new_encryption_key;

use crate::exit::{self, Exit};
use crate::out;

/// Creates an encryption key, and prints the line for `store.encryption.key_files`.
#[derive(Args)]
#[command(after_help = "\
The newest key, the one with the highest id, encrypts; all keys decrypt. The guide is
docs/encryption.md.

Examples:
  (umask 077 && semel encryption-key > keys)           the first key
  semel encryption-key --id 2 >> keys                  the next one")]
pub(crate) struct EncryptionKeyArgs {
    /// The id of the key, higher than those of older keys.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    id: u32,
}

impl EncryptionKeyArgs {
    pub(crate) fn run(&self) -> Exit {
        match new_encryption_key() {
            Ok(material) => {
                let line = EncryptionKey::line(self.id, &material);
                out::say(format_args!("{}", *line));
                Exit::Ok
            }
            Err(error) => Exit::failed(exit::UNEXPECTED, error.to_string()),
        }
    }
}
