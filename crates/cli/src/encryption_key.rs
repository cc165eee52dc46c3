//! `semel encryption-key`: creates a key for encrypted records, and lets a store forget a lost one.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use semel::encrypted::EncryptionKey;
use semel::encrypted::canary::{self, Forgotten};
use semel_server::config::without_password;
use semel_server::new_encryption_key;

use crate::client::Target;
use crate::exit::{self, Exit};
use crate::{out, runtime};

/// Creates an encryption key, and prints the line for `store.encryption.key_files`.
#[derive(Args)]
#[command(after_help = "\
The newest key, the one with the highest id, encrypts; all keys decrypt. The guide is
docs/encryption.md.

Examples:
  (umask 077 && semel encryption-key > keys)           the first key
  semel encryption-key --id 2 >> keys                  the next one
  semel encryption-key forget 1 --config FILE          key 1 is lost")]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct EncryptionKeyArgs {
    #[command(subcommand)]
    command: Option<Command>,
    /// The id of the key, higher than those of older keys.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    id: u32,
}

impl EncryptionKeyArgs {
    pub(crate) fn run(self) -> Exit {
        if let Some(Command::Forget(forget)) = self.command {
            return runtime::block_on(async move { forget.run().await }).into();
        }
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

#[derive(Subcommand)]
enum Command {
    Forget(Forget),
}

/// Lets the store forget a key that is lost, or that no record needs any more.
///
/// Nodes start again without that key, and another key may have its id. Records that are encrypted
/// with it stay: they can't be read, and can be resolved, unlocked and reset.
#[derive(Args)]
struct Forget {
    /// The id of the key.
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    id: u32,
    /// The store.
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    store: Option<String>,
    /// The settings file of the nodes (TOML), for their store and environment.
    #[arg(long, short, env = "SEMEL_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// With --store: the environment of the keys.
    #[arg(long, value_name = "NAME")]
    environment: Option<String>,
}

impl Forget {
    async fn run(&self) -> Result<(), Exit> {
        let (store, config) = (self.store.clone(), self.config.clone());
        let target = Target::of_store(store, config, self.environment.clone());
        let config = match self.store {
            Some(_) => Some(target.bare_config()),
            None => target.settings()?,
        };
        let url = match config.as_ref().map(|config| config.store.read_url()) {
            Some(Ok(url)) => url,
            Some(Err(error)) => return Err(Exit::failed(exit::CONFIG, error.to_string())),
            None => None,
        };
        let (Some(config), Some(url)) = (config, url) else {
            let message = "no store is given\n    fix: --store URL, or --config FILE";
            return Err(Exit::failed(exit::CONFIG, message));
        };
        let unusable = |error: &dyn std::fmt::Display| {
            let message = format!("the store {}: {error}", without_password(&url));
            Exit::failed(exit::STORE, message)
        };
        let store = semel::open_store(&url).await;
        let store = store.map_err(|error| unusable(&error))?;
        let (env, environment) = (semel::tokio_env(), &config.environment);
        let forgotten = canary::forget(&*store, &env, environment, self.id).await;
        let id = self.id;
        out::say(match forgotten.map_err(|error| unusable(&error))? {
            Forgotten::Key => format!("key {id} is forgotten; nodes need one of the other keys"),
            Forgotten::LastKey => {
                format!("key {id} is forgotten; it was the last, so any node may use the store")
            }
            Forgotten::Nothing => format!("the store was not used with a key {id}"),
        });
        Ok(())
    }
}
