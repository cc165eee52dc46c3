//! The settings of encrypted records.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::units::{Span, seconds};

/// Encryption of stored responses and checkpoints. Off unless a source of keys is set.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Encryption {
    /// Files with encryption keys, one key on a line, as `semel encryption-key` prints them. SIGHUP
    /// reads them again.
    pub key_files: Vec<String>,
    /// A variable of the environment with encryption keys, separated by spaces or new lines.
    pub key_variable: Option<String>,
    /// A command that prints encryption keys: the program and its arguments. For a key management
    /// service. SIGHUP runs it again.
    pub key_command: Vec<String>,
    /// How long the command may take.
    pub key_command_timeout: Span,
    /// The id of the key to write with, while a new key is rolled out; 0 writes plain text, while
    /// encryption is rolled out. The highest id unless set.
    pub write_key: Option<u32>,
    /// Who gets a key of their own, which can be destroyed to erase their stored responses. Set it
    /// once every node has a version that knows it.
    pub data_keys: DataKeyOwners,
    /// How long such a key is used without a look at its record: after this time, and that of local
    /// replays, every node has noticed an erasure.
    pub data_key_cache: Span,
    /// The header that names whose data a response has, such as the id of a customer, for
    /// `data_keys = "subject"`.
    #[schemars(extend("format" = "header"))]
    pub subject_header: Option<String>,
    /// Refuse records in plain text. Set it once every record is encrypted.
    pub refuse_plain: bool,
}

impl Encryption {
    /// Whether a source of keys is set.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.key_files.is_empty() || self.key_variable.is_some() || !self.key_command.is_empty()
    }
}

/// Who gets a key of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DataKeyOwners {
    /// Nobody. What was encrypted with such keys is still read.
    #[default]
    Off,
    /// Each tenant.
    Tenant,
    /// Each subject that a request names, and each tenant.
    Subject,
}

impl Default for Encryption {
    fn default() -> Self {
        Self {
            key_files: Vec::new(),
            key_variable: None,
            key_command: Vec::new(),
            key_command_timeout: seconds(10),
            write_key: None,
            data_keys: DataKeyOwners::Off,
            data_key_cache: seconds(30),
            subject_header: None,
            refuse_plain: false,
        }
    }
}
