//! The encryption keys of a configuration: from files, a variable and a command, all together.

use std::path::PathBuf;

use ring::rand::{SecureRandom as _, SystemRandom};
use semel::Semel;
use semel::encrypted::{
    DataKeyUse, EncryptionKeyError, KeyCommand, KeyFiles, KeyProvider, KeyVariable, Keyring,
    WriteKey, Zeroizing,
};

use super::StartError;
use crate::config::{Config, DataKeyOwners, Encryption, SettingError};

/// Loads the encryption keys of a configuration; `None` if encryption is off.
///
/// # Errors
/// [`StartError`] names the setting and says what is wrong.
pub async fn load_keys(config: &Config) -> Result<Option<Keyring>, StartError> {
    load(&config.store.encryption).await
}

pub(super) async fn load(settings: &Encryption) -> Result<Option<Keyring>, StartError> {
    if !settings.is_on() {
        return Ok(None);
    }
    let mut providers: Vec<(&'static str, Box<dyn KeyProvider>)> = Vec::new();
    if !settings.key_files.is_empty() {
        let files = settings.key_files.iter().map(PathBuf::from).collect();
        providers.push(("store.encryption.key_files", Box::new(KeyFiles(files))));
    }
    if let Some(name) = &settings.key_variable {
        let variable = KeyVariable(name.clone());
        providers.push(("store.encryption.key_variable", Box::new(variable)));
    }
    if !settings.key_command.is_empty() {
        let command = KeyCommand::new(settings.key_command.clone(), settings.key_command_timeout.0);
        providers.push(("store.encryption.key_command", Box::new(command)));
    }
    let mut keys = Vec::new();
    for (setting, provider) in providers {
        let loaded = provider.load().await;
        keys.extend(loaded.map_err(|error| unusable(setting, &error))?);
    }
    let write = match settings.write_key {
        None => WriteKey::Newest,
        Some(0) => WriteKey::Nothing,
        Some(id) => WriteKey::Id(id),
    };
    let ring = Keyring::new(keys, write);
    let ring = ring.map_err(|error| unusable("store.encryption", &error))?;
    Ok(Some(ring))
}

fn unusable(setting: &'static str, error: &EncryptionKeyError) -> SettingError {
    SettingError {
        setting,
        message: error.to_string(),
        fix: "see docs/encryption.md; `semel encryption-key` creates a key",
    }
}

/// Who gets a key of their own.
pub(super) const fn data_key_use(settings: &Encryption) -> DataKeyUse {
    match settings.data_keys {
        DataKeyOwners::Off => DataKeyUse::Off,
        DataKeyOwners::Tenant => DataKeyUse::Tenant,
        DataKeyOwners::Subject => DataKeyUse::Subject,
    }
}

/// Loads the keys again, and uses them from now on. Returns whether there are any to load.
///
/// # Errors
/// [`StartError`] if they are unusable, or don't fit the store. The old keys stay.
pub async fn reload_keys(config: &Config, semel: &Semel) -> Result<bool, StartError> {
    let settings = &config.store.encryption;
    if !semel.is_encrypted() && !settings.is_on() {
        return Ok(false);
    }
    let unfit = |message: String, fix| SettingError {
        setting: "store.encryption",
        message,
        fix,
    };
    if !semel.is_encrypted() || !settings.is_on() {
        let message = "switching encryption on or off needs a restart".to_owned();
        return Err(unfit(message, "restart the process").into());
    }
    let Some(keys) = load(settings).await? else {
        return Ok(false);
    };
    let replaced = semel.replace_keys(keys).await;
    let fix = "give every node the same keys";
    replaced.map_err(|error| unfit(error.to_string(), fix))?;
    Ok(true)
}

/// The material of a new encryption key.
///
/// # Errors
/// If the system gives no random numbers.
pub fn new_encryption_key() -> std::io::Result<Zeroizing<[u8; 32]>> {
    let mut material = Zeroizing::new([0; 32]);
    SystemRandom::new()
        .fill(&mut *material)
        .map_err(|_| std::io::Error::other("the system gives no random numbers"))?;
    Ok(material)
}
