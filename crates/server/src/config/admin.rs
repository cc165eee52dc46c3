//! The settings of the admin listener and of the protocol API.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::listener::Tls;

/// The admin listener.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// The address and port to listen on. Without it there is no admin listener.
    #[schemars(extend("format" = "address"))]
    pub address: Option<String>,
    /// A file with the token of the admin API (`Authorization: Bearer …`). Without a token or
    /// `operators_file` the admin API is closed, unless `admin.tls.client_ca_file` requires
    /// certificates or `open` is set.
    #[schemars(extend("format" = "file"))]
    pub token_file: Option<String>,
    /// A file with the operators of the admin API: names, roles, and digests of their tokens.
    /// `semel operator` makes an entry. Use it instead of `token_file`. A change takes effect at
    /// once.
    #[schemars(extend("format" = "file"))]
    pub operators_file: Option<String>,
    /// The names of the client certificates that may call, if `admin.tls.client_ca_file` is set. An
    /// empty list accepts every certificate of the CA.
    pub allowed_names: Vec<String>,
    /// Whether the admin API needs no token on a loopback address. Every program on this machine
    /// can then read all stored responses and change records.
    pub open: bool,
    /// Whether to accept the token from other machines without TLS. Enable this only if something
    /// else encrypts the connection.
    pub insecure_tokens: bool,
    /// Whether to serve the dashboard at `/`. Its files load without the token, but it shows data
    /// only with it.
    pub dashboard: bool,
    /// TLS of the admin listener. With `client_ca_file`, clients need a certificate.
    pub tls: Tls,
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            address: None,
            token_file: None,
            operators_file: None,
            allowed_names: Vec::new(),
            open: false,
            insecure_tokens: false,
            dashboard: true,
            tls: Tls::default(),
        }
    }
}

/// The protocol API.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Api {
    /// Who may call it.
    pub access: ApiAccess,
    /// A file with the tokens of the protocol API and of the jobs API: names, tenants, expiry
    /// dates, and digests of the tokens. `semel token` makes an entry. A change takes effect at
    /// once.
    #[schemars(extend("format" = "file"))]
    pub tokens_file: Option<String>,
}

/// Who may call the protocol API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ApiAccess {
    /// Nobody. The API is disabled.
    #[default]
    Off,
    /// Every program on this machine, for any tenant. Do not use this behind a proxy on the same
    /// machine, which would let others in.
    Loopback,
    /// Callers with a token of `tokens_file`.
    Tokens,
}
