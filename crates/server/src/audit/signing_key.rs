//! [`SigningKey`]: the Ed25519 key that signs checkpoints of the trail.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

use crate::web::{hex, unhex};

/// An Ed25519 key pair.
pub(super) struct SigningKey {
    pair: Ed25519KeyPair,
    random: SystemRandom,
}

impl SigningKey {
    /// Reads the key file, or creates one that only its owner can read.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => create_key_file(path)?,
            Err(error) => return Err(error),
        };
        let invalid = || {
            let message = format!("{} does not contain a signing key", path.display());
            io::Error::new(io::ErrorKind::InvalidData, message)
        };
        let document = unhex(text.trim()).ok_or_else(invalid)?;
        let pair = Ed25519KeyPair::from_pkcs8(&document).map_err(|_| invalid())?;
        let random = SystemRandom::new();
        Ok(Self { pair, random })
    }

    /// The public key.
    pub(super) fn public(&self) -> String {
        hex(self.pair.public_key().as_ref())
    }

    /// A cryptographically random number.
    pub(super) fn random(&self) -> io::Result<u128> {
        let mut bytes = [0; 16];
        self.random.fill(&mut bytes).map_err(|_| no_random())?;
        Ok(u128::from_be_bytes(bytes))
    }

    pub(super) fn sign(&self, message: &[u8]) -> String {
        hex(self.pair.sign(message).as_ref())
    }
}

/// Whether `signature` is the signature of `message` by the key `public`.
pub(super) fn is_signed(public: &str, message: &[u8], signature: &str) -> bool {
    let (Some(public), Some(signature)) = (unhex(public), unhex(signature)) else {
        return false;
    };
    let public = UnparsedPublicKey::new(&ED25519, public);
    public.verify(message, &signature).is_ok()
}

fn create_key_file(path: &Path) -> io::Result<String> {
    let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| no_random())?;
    let text = hex(document.as_ref());
    let mut file = owner_only(OpenOptions::new().write(true).create_new(true)).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    Ok(text)
}

fn no_random() -> io::Error {
    io::Error::other("the system provides no random numbers")
}

/// Makes new files readable by their owner only.
pub(super) fn owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}
