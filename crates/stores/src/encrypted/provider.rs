//! [`KeyProvider`]: where keys come from. Files, a variable of the environment, or a command that
//! asks a key management service.

#![expect(clippy::disallowed_methods, reason = "the command is a real process")]

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use semel_core::BoxFuture;
use tokio::io::AsyncReadExt as _;
use zeroize::Zeroizing;

use super::key::{EncryptionKey, EncryptionKeyError};

/// The most bytes of a file or of a command's output.
const MAX_BYTES: u64 = 64 * 1024;

/// A source of encryption keys. Asked at start, and again when the process is told to reload.
pub trait KeyProvider: Send + Sync + 'static {
    /// All keys that it has now. Errors never contain key material.
    fn load(&self) -> BoxFuture<'_, Result<Vec<EncryptionKey>, EncryptionKeyError>>;
}

fn unreadable(place: &str, reason: &dyn std::fmt::Display) -> EncryptionKeyError {
    EncryptionKeyError::Unreadable {
        place: place.to_owned(),
        reason: reason.to_string(),
    }
}

/// Parses what a source said.
fn parse(bytes: &[u8], place: &str) -> Result<Vec<EncryptionKey>, EncryptionKeyError> {
    if bytes.len() as u64 > MAX_BYTES {
        return Err(unreadable(place, &"more than 64 KiB"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| unreadable(place, &"not a text"))?;
    EncryptionKey::parse_all(text, place)
}

/// Files with lines `ID:KEY`.
#[derive(Clone, Debug)]
pub struct KeyFiles(pub Vec<PathBuf>);

impl KeyProvider for KeyFiles {
    fn load(&self) -> BoxFuture<'_, Result<Vec<EncryptionKey>, EncryptionKeyError>> {
        Box::pin(async move {
            let mut keys = Vec::new();
            for file in &self.0 {
                let place = file.display().to_string();
                let bytes = std::fs::read(file).map_err(|error| unreadable(&place, &error))?;
                keys.extend(parse(&Zeroizing::new(bytes), &place)?);
            }
            Ok(keys)
        })
    }
}

/// A variable of the environment with lines `ID:KEY`; a space is as good as a new line.
#[derive(Clone, Debug)]
pub struct KeyVariable(pub String);

impl KeyProvider for KeyVariable {
    fn load(&self) -> BoxFuture<'_, Result<Vec<EncryptionKey>, EncryptionKeyError>> {
        Box::pin(async move {
            let place = format!("${}", self.0);
            let value = std::env::var(&self.0);
            let value = value.map_err(|_| unreadable(&place, &"not set, or not a text"))?;
            let text = Zeroizing::new(value.replace(' ', "\n"));
            drop(Zeroizing::new(value));
            EncryptionKey::parse_all(&text, &place)
        })
    }
}

/// A command that prints lines `ID:KEY`: the hook for a key management service.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KeyCommand {
    /// The program and its arguments. No shell reads them.
    pub command: Vec<String>,
    /// How long it may take; then it is killed.
    pub timeout: Duration,
}

impl KeyCommand {
    async fn output(&self, place: &str) -> Result<Zeroizing<Vec<u8>>, EncryptionKeyError> {
        let (program, arguments) = self
            .command
            .split_first()
            .ok_or_else(|| unreadable(place, &"no command is set"))?;
        // Its standard error may show what it must not, so that nobody reads it.
        let child = tokio::process::Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        let mut child = child.map_err(|error| unreadable(place, &error))?;
        let stdout = child.stdout.take();
        let mut stdout = stdout.ok_or_else(|| unreadable(place, &"no output"))?;
        let mut bytes = Zeroizing::new(Vec::with_capacity(4096));
        let mut limited = (&mut stdout).take(MAX_BYTES + 1);
        let read = limited.read_to_end(&mut bytes).await;
        read.map_err(|error| unreadable(place, &error))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(unreadable(place, &"more than 64 KiB"));
        }
        let status = child.wait().await;
        let status = status.map_err(|error| unreadable(place, &error))?;
        if !status.success() {
            return Err(unreadable(place, &format_args!("it ended with {status}")));
        }
        Ok(bytes)
    }

    /// A program that may take this long.
    #[must_use]
    pub const fn new(command: Vec<String>, timeout: Duration) -> Self {
        Self { command, timeout }
    }
}

impl KeyProvider for KeyCommand {
    fn load(&self) -> BoxFuture<'_, Result<Vec<EncryptionKey>, EncryptionKeyError>> {
        Box::pin(async move {
            let place = format!(
                "the command {}",
                self.command.first().map_or("", String::as_str)
            );
            let output = tokio::time::timeout(self.timeout, self.output(&place)).await;
            let late = || unreadable(&place, &format_args!("no answer within {:?}", self.timeout));
            parse(&output.map_err(|_| late())??, &place)
        })
    }
}
