//! The settings of `semel mcp`: flags, and a file with rules for single tools.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use semel::{Mode, OnBusy};
use semel_mcp::{Caller, ConversationSource, KeyRule, Settings, ToolRule};
use semel_server::config::{Config, Encryption, Span};
use serde::Deserialize;

use super::tools::ToolTable;
use crate::exit::{self, Exit};

/// How calls are treated.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct GatewayArgs {
    /// A file (TOML) with rules for single tools, as `[tools.NAME]`, and with some of the settings
    /// below.
    #[arg(long, short, value_name = "FILE", env = "SEMEL_MCP_CONFIG")]
    config: Option<PathBuf>,
    /// The store: redis://…, postgres://…, mysql://…, sqlite://…, s3://…. The default is a SQLite
    /// file of this user.
    #[arg(
        long,
        value_name = "URL",
        env = "SEMEL_STORE_URL",
        hide_env_values = true
    )]
    store: Option<String>,
    /// The environment of the keys, such as production.
    #[arg(long, value_name = "NAME")]
    environment: Option<String>,
    /// The tenant of the calls.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// The name of the server, which is part of every scope. Set it to keep the keys when the
    /// command, folder, URL or headers change, and to separate servers that differ only in
    /// environment variables.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The caller on standard input and output. Each caller has its own keys.
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,
    /// The session on standard input and output. Equal calls without a key in two sessions are
    /// different calls.
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// What tells conversations apart, for calls without a key: session, header:NAME, meta:NAME (a
    /// member of `_meta`), trace, or shared (all calls of a caller are one conversation). The
    /// default is session.
    #[arg(long, value_name = "SOURCE")]
    conversation: Option<ConversationSource>,
    /// Derive the key from the arguments for this tool, if a call has no key; `*` matches any
    /// characters.
    #[arg(long, value_name = "TOOL")]
    derive: Vec<String>,
    /// How long a derived key lives (default 120s).
    #[arg(long, value_name = "SPAN")]
    window: Option<Span>,
    /// How long results are stored (default 24h).
    #[arg(long, value_name = "SPAN")]
    retention: Option<Span>,
    /// How long a gateway may miss its heartbeat before its leases lapse (default 30s).
    #[arg(long, value_name = "SPAN")]
    lease: Option<Span>,
    /// How long a call waits for an equal call that is running (default 30s).
    #[arg(long, value_name = "SPAN")]
    wait: Option<Span>,
    /// How long the server may take to answer before a call is in doubt (default 10m).
    #[arg(long, value_name = "SPAN")]
    call_limit: Option<Span>,
    /// Mark replayed results in their text, as models don't see metadata.
    #[arg(long)]
    say_replayed: bool,
    /// Let tools with idempotentHint pass unprotected.
    #[arg(long)]
    bypass_idempotent: bool,
    /// Send no key for the systems behind the server.
    #[arg(long)]
    no_downstream_key: bool,
    /// Observe mode: let every call pass, and only record duplicates.
    #[arg(long)]
    observe: bool,
    /// A file with the secret for identities: the same for every gateway and sidecar on the store.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<String>,
    /// A file with encryption keys, for encrypted records. May be repeated. SIGHUP reads it again.
    #[arg(long, value_name = "FILE")]
    encryption_key_file: Vec<String>,
    /// A file for the audit trail (JSON lines), which no other process writes.
    #[arg(long, value_name = "FILE")]
    audit: Option<String>,
    /// The address of the admin listener: dashboard, metrics, admin API.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) admin: Option<SocketAddr>,
    /// A file with the token of the admin listener.
    #[arg(long, value_name = "FILE", requires = "admin")]
    admin_token_file: Option<String>,
}

/// The settings that a file may hold.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SettingsFile {
    name: Option<String>,
    tenant: Option<String>,
    conversation: Option<ConversationSource>,
    window: Option<Span>,
    retention: Option<Span>,
    answer_retention: Option<Span>,
    lease: Option<Span>,
    wait: Option<Span>,
    call_limit: Option<Span>,
    say_replayed: bool,
    bypass_idempotent: bool,
    downstream_key: Option<bool>,
    observe: bool,
    compress: bool,
    encryption: Encryption,
    tools: std::collections::BTreeMap<String, ToolTable>,
}

/// A store, and the durability of its records.
pub(super) struct Store {
    pub(super) url: String,
    pub(super) promise: &'static str,
}

impl GatewayArgs {
    pub(super) fn settings(&self, name: &str) -> Result<Settings, Exit> {
        let file = self.file()?;
        let named = self.name.clone().or(file.name);
        let mut settings = Settings::new(named.as_deref().unwrap_or(name));
        settings.tenant = self.tenant.clone().or(file.tenant).unwrap_or_default();
        let conversation = self.conversation.clone().or(file.conversation);
        settings.conversation = conversation.unwrap_or_default();
        let limit = self.call_limit.or(file.call_limit);
        let limit = limit.map_or(settings.call_limit, |Span(span)| span);
        let named = file.tools.into_iter();
        settings.tools = named
            .map(|(name, table)| table.into_rule(name, limit))
            .collect();
        // The most specific name comes first.
        let key = |rule: &ToolRule| (rule.name.contains('*'), std::cmp::Reverse(rule.name.len()));
        settings.tools.sort_by_key(key);
        settings
            .tools
            .extend(self.derive.iter().map(|name| ToolRule {
                name: name.clone(),
                key: Some(KeyRule::Derive),
                ..ToolRule::default()
            }));
        let set = |to: &mut std::time::Duration, flag: Option<Span>, file: Option<Span>| {
            if let Some(Span(span)) = flag.or(file) {
                *to = span;
            }
        };
        set(&mut settings.window, self.window, file.window);
        set(&mut settings.call_limit, self.call_limit, file.call_limit);
        set(
            &mut settings.policy.retention,
            self.retention,
            file.retention,
        );
        if let Some(Span(kept)) = file.answer_retention {
            settings.policy.answer_retention = Some(kept);
        }
        set(&mut settings.policy.lease, self.lease, file.lease);
        if let Some(Span(wait)) = self.wait.or(file.wait) {
            settings.policy.on_busy = OnBusy::Wait(wait);
        }
        settings.say_replayed = self.say_replayed || file.say_replayed;
        settings.bypass_idempotent = self.bypass_idempotent || file.bypass_idempotent;
        settings.pass_key = !self.no_downstream_key && file.downstream_key.unwrap_or(true);
        if self.observe || file.observe {
            settings.policy.mode = Mode::Observe;
        }
        Ok(settings)
    }

    fn file(&self) -> Result<SettingsFile, Exit> {
        match &self.config {
            Some(path) => read(path),
            None => Ok(SettingsFile::default()),
        }
    }

    /// The store's configuration, equal to a sidecar's, so that both report the same about the same
    /// records.
    pub(super) fn config(&self, url: &str) -> Result<Config, Exit> {
        let mut config = Config::default();
        config.store.url = Some(url.to_owned());
        config.store.secret_file.clone_from(&self.secret_file);
        let file = self.file()?;
        config.store.compress = file.compress;
        config.store.encryption = file.encryption;
        let keys = &mut config.store.encryption.key_files;
        keys.extend(self.encryption_key_file.iter().cloned());
        config.environment = self.environment.clone().unwrap_or_default();
        config.audit.file.clone_from(&self.audit);
        config.admin.address = self.admin.map(|address| address.to_string());
        config.admin.token_file.clone_from(&self.admin_token_file);
        if self.admin.is_some() && self.admin_token_file.is_none() {
            let message = "--admin needs a token, because the agent and its servers on this \
                           machine could resolve doubts\n    fix: --admin-token-file FILE, with \
                           a token of at least 16 characters";
            return Err(Exit::failed(exit::CONFIG, message));
        }
        Ok(config)
    }

    pub(super) fn caller(&self) -> Caller {
        Caller {
            principal: self.principal.clone().unwrap_or_default(),
            session: self.session.clone().unwrap_or_default(),
            ..Caller::default()
        }
    }

    /// The given store, or a file of this user on this host.
    pub(super) fn store(&self) -> Result<Store, Exit> {
        if let Some(url) = &self.store {
            let promise = match url.split("://").next() {
                Some("memory") => "only this process sees them, and they are lost when it ends",
                Some("sqlite") => {
                    "they survive a restart of the process and of the machine; gateways on this \
                     host share them"
                }
                _ => {
                    "they are as durable as that server; every gateway and sidecar on it shares \
                     them"
                }
            };
            return Ok(Store {
                url: url.clone(),
                promise,
            });
        }
        let Some(folder) = state_folder() else {
            let message =
                "there is no home folder for the records\n    fix: --store sqlite:///a/file.db";
            return Err(Exit::failed(exit::CONFIG, message));
        };
        let failed = |error: std::io::Error| {
            let message = format!(
                "{}: {error}\n    fix: --store sqlite:///a/file.db",
                folder.display()
            );
            Exit::failed(exit::STORE, message)
        };
        std::fs::create_dir_all(&folder).map_err(failed)?;
        Ok(Store {
            url: format!("sqlite://{}", folder.join("mcp.db").display()),
            promise: "they survive a restart of the process and of the machine; gateways of this \
                      user on this host share them",
        })
    }
}

fn state_folder() -> Option<PathBuf> {
    let named = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let state = named("XDG_STATE_HOME").or_else(|| Some(named("HOME")?.join(".local/state")))?;
    Some(state.join("semel"))
}

fn read(path: &Path) -> Result<SettingsFile, Exit> {
    let failed = |error: &dyn std::fmt::Display| {
        Exit::failed(exit::CONFIG, format!("{}: {error}", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    toml::from_str(&text).map_err(|error| failed(&error))
}
