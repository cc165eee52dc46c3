//! `semel encryption-key`: creates a key for encrypted records, and lets a store forget a lost one.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use semel::encrypted::canary::{self, Forgotten};
use semel::encrypted::{EncryptionKey, RewrapProgress};
use semel_server::config::without_password;
use semel_server::{OpenOptions, new_encryption_key};
use serde_json::json;

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
  semel encryption-key rewrap --config FILE            key 1 is not needed for data keys
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
        match self.command {
            Some(Command::Forget(forget)) => {
                return runtime::block_on(async move { forget.run().await }).into();
            }
            Some(Command::Rewrap(rewrap)) => {
                return runtime::block_on(async move { Box::pin(rewrap.run()).await }).into();
            }
            None => {}
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
    Rewrap(Rewrap),
}

/// Wraps the keys of tenants and subjects again with the newest key, so that older ones can be
/// removed.
///
/// First every node must write with the newest key. Run it again after an interruption: it goes on.
#[derive(Args)]
struct Rewrap {
    /// The settings file of the nodes (TOML), for their store, environment and keys.
    #[arg(long, short, env = "SEMEL_CONFIG", value_name = "FILE")]
    config: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Rewrap {
    async fn run(&self) -> Result<(), Exit> {
        let target = Target::of_store(None, Some(self.config.clone()), None);
        let Some(config) = target.settings()? else {
            return Err(Exit::failed(
                exit::CONFIG,
                "no settings are given\n    fix: --config FILE",
            ));
        };
        let unusable = |error: &dyn std::fmt::Display| {
            Exit::failed(exit::STORE, format!("the store: {error}"))
        };
        let semel = OpenOptions::for_tool(&config).open_store().await;
        let semel = semel.map_err(|error| Exit::failed(exit::STORE, error.to_string()))?;
        let Some(keys) = semel.data_keys() else {
            let message = "there are no encryption keys, or records are kept in two stores\n    fix: set \
                           store.encryption in the settings, and one store";
            return Err(Exit::failed(exit::CONFIG, message));
        };
        let report = |progress: &RewrapProgress| {
            if !self.json {
                out::note(format_args!("{} keys looked at …", progress.seen));
            }
        };
        let done = keys.rewrap(semel.environment(), report).await;
        let done = done.map_err(|error| unusable(&error))?;
        if self.json {
            out::json(&json!({
                "seen": done.seen,
                "rewrapped": done.rewrapped,
                "current": done.current,
                "unreadable": done.unreadable,
            }));
        } else {
            out::say(format_args!(
                "{} keys wrapped again, {} were current, {} can't be unwrapped",
                done.rewrapped, done.current, done.unreadable
            ));
        }
        if done.unreadable > 0 {
            let message = "some keys can't be unwrapped: they need a key that is not in the settings, or \
                           were changed\n    fix: give all keys of the nodes, and keep the older ones";
            return Err(Exit::failed(exit::UNREADABLE, message));
        }
        Ok(())
    }
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
