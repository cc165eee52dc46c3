//! What may be said to `semel mcp`: flags, and a file for what is said of single tools.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use semel::{Mode, OnBusy};
use semel_mcp::{Caller, KeyRule, Settings, ToolRule};
use semel_server::config::{Config, Span};
use serde::Deserialize;

use crate::exit::{self, Exit};

/// How calls are treated.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct Given {
    /// A file (TOML) with what is said of single tools, as `[tools.NAME]`, and some of what follows.
    #[arg(long, short, value_name = "FILE", env = "SEMEL_MCP_CONFIG")]
    config: Option<PathBuf>,
    /// Where the records are kept: redis://…, postgres://…, mysql://…, sqlite://…, s3://…; else a file of this user's.
    #[arg(
        long,
        value_name = "URL",
        env = "SEMEL_STORE_URL",
        hide_env_values = true
    )]
    store: Option<String>,
    /// The environment that keys live in, such as production.
    #[arg(long, value_name = "NAME")]
    environment: Option<String>,
    /// The tenant whose calls these are.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// The server's name, a part of every scope: give one to keep its keys when its command, folder, URL or headers change,
    /// and one to each of two that differ in environment variables only.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Who calls, on standard input and output: keys of two callers never meet.
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,
    /// Which conversation this is, on standard input and output: in another one, the same call without a key is another.
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Tools whose calls without a key are known again by their arguments; `*` stands for any characters.
    #[arg(long, value_name = "TOOL")]
    derive: Vec<String>,
    /// How long such a call is the same call (default 120s).
    #[arg(long, value_name = "SPAN")]
    window: Option<Span>,
    /// How long answers are kept (default 24h).
    #[arg(long, value_name = "SPAN")]
    retention: Option<Span>,
    /// How long this gateway may be silent before it counts as gone (default 30s).
    #[arg(long, value_name = "SPAN")]
    lease: Option<Span>,
    /// How long a call waits for the same call that runs (default 30s).
    #[arg(long, value_name = "SPAN")]
    wait: Option<Span>,
    /// How long the server may take to answer a call before it is in doubt (default 10m).
    #[arg(long, value_name = "SPAN")]
    call_limit: Option<Span>,
    /// Says in the text of a replayed result that it is one: models don't see metadata.
    #[arg(long)]
    say_replayed: bool,
    /// Lets tools pass that call themselves idempotent.
    #[arg(long)]
    bypass_idempotent: bool,
    /// Sends no key for the systems behind the server along with calls.
    #[arg(long)]
    no_downstream_key: bool,
    /// Lets every call pass, and only records what would have been a duplicate.
    #[arg(long)]
    observe: bool,
    /// A file with the secret that identities are made with: the same for every gateway and sidecar on the store.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<String>,
    /// A file for the audit trail (JSON lines), one that no other process writes.
    #[arg(long, value_name = "FILE")]
    audit: Option<String>,
    /// Where to listen for operators: dashboard, metrics, admin API.
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// A file with the token that operators show.
    #[arg(long, value_name = "FILE", requires = "admin")]
    admin_token_file: Option<String>,
}

/// What a file may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    name: Option<String>,
    tenant: Option<String>,
    window: Option<Span>,
    retention: Option<Span>,
    lease: Option<Span>,
    wait: Option<Span>,
    call_limit: Option<Span>,
    say_replayed: bool,
    bypass_idempotent: bool,
    downstream_key: Option<bool>,
    observe: bool,
    tools: std::collections::BTreeMap<String, ToolRule>,
}

/// A store, and what its records survive.
pub(super) struct Store {
    pub(super) url: String,
    pub(super) promise: &'static str,
}

impl Given {
    pub(super) fn settings(&self, name: &str) -> Result<Settings, Exit> {
        let file = match &self.config {
            Some(path) => read(path)?,
            None => File::default(),
        };
        let named = self.name.clone().or(file.name);
        let mut settings = Settings::new(named.as_deref().unwrap_or(name));
        settings.tenant = self.tenant.clone().or(file.tenant).unwrap_or_default();
        let named = file
            .tools
            .into_iter()
            .map(|(name, rule)| ToolRule { name, ..rule });
        settings.tools = named.collect();
        // The more is said by a name, the earlier it counts.
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

    /// What the store is opened with: as a sidecar's, so that both say the same of the same records.
    pub(super) fn config(&self, url: &str) -> Result<Config, Exit> {
        let mut config = Config::default();
        config.store.url = Some(url.to_owned());
        config.store.secret_file.clone_from(&self.secret_file);
        config.environment = self.environment.clone().unwrap_or_default();
        config.audit.file.clone_from(&self.audit);
        config.admin.address = self.admin.map(|address| address.to_string());
        config.admin.token_file.clone_from(&self.admin_token_file);
        if self.admin.is_some() && self.admin_token_file.is_none() {
            let message = "whoever reaches --admin may resolve doubts, and the agent and its servers run on this machine\n    \
                           fix: --admin-token-file FILE, with a token of 16 characters or more in it";
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

    /// The store that was named, or a file of this user's on this host.
    pub(super) fn store(&self) -> Result<Store, Exit> {
        if let Some(url) = &self.store {
            let promise = match url.split("://").next() {
                Some("memory") => {
                    "they are gone when this process ends, and no other process sees them"
                }
                Some("sqlite") => {
                    "they survive the end of this process and of this machine; only gateways on this host share them"
                }
                _ => {
                    "they survive what that server survives, and every gateway and sidecar on it shares them"
                }
            };
            return Ok(Store {
                url: url.clone(),
                promise,
            });
        }
        let Some(folder) = state_folder() else {
            let message =
                "there is no home folder to keep records in\n    fix: --store sqlite:///a/file.db";
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
            promise: "they survive the end of this process and of this machine; only gateways of this user on this host \
                      share them",
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

fn read(path: &Path) -> Result<File, Exit> {
    let failed = |error: &dyn std::fmt::Display| {
        Exit::failed(exit::CONFIG, format!("{}: {error}", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    toml::from_str(&text).map_err(|error| failed(&error))
}
