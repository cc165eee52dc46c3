//! `semel mcp`: agents retry, tools act once.

mod lint;
mod name;
mod settings;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use clap::{Args, Subcommand};
use http::{HeaderMap, HeaderName, HeaderValue};
use semel::Semel;
use semel_mcp::{CallerToken, Child, Gateway, Listen, RunError, Serve, Settings, Upstream};
use semel_server::config::{Config, Log, without_password};
use semel_server::{Opened, open_audited, serve_operators, serve_router};

use crate::exit::{self, Exit};
use crate::log;
use settings::{Given, Store};

/// How long an answer may take from the engine to whoever reads it.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// A gateway in front of any MCP server: a tool call that is made again does not act again.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  semel mcp -- npx -y some-mcp-server                       a server on standard input and output
  semel mcp --store redis://127.0.0.1 -- python server.py   records that several gateways share
  semel mcp --upstream https://host/mcp                     a server behind HTTP, for a client on standard input and output
  semel mcp --upstream http://127.0.0.1:8000/mcp --listen 127.0.0.1:9000
  semel mcp --listen 127.0.0.1:9000 -- python server.py     the same, with a process for each session
  semel mcp --admin 127.0.0.1:9090 --admin-token-file FILE -- python server.py
                                                            with a dashboard, metrics and the admin API
  semel mcp lint -- python server.py                        which tools can't be called again safely

In a client's configuration, put `semel`, `mcp`, `--` in front of the server's own command. docs/mcp.md is the guide.
Exit codes: 0 the client has left, 1 the server has ended by itself or can't be started, 2 usage, 3 settings, 4 store, 5 address."
)]
pub(crate) struct Mcp {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    given: Given,
    /// Where to listen for clients on HTTP, instead of standard input and output.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Origins of pages that may call, besides those of this machine.
    #[arg(long, value_name = "ORIGIN", requires = "listen")]
    allow_origin: Vec<String>,
    /// Host names under which clients reach this gateway, besides those of this machine.
    #[arg(long, value_name = "HOST", requires = "listen")]
    allow_host: Vec<String>,
    /// The header that says who calls, where something in front sets it; else callers are told apart by their credentials.
    #[arg(long, value_name = "HEADER", requires = "listen")]
    principal_header: Option<HeaderName>,
    /// A file with the token that clients have to show: `Authorization: Bearer …`. The server doesn't see it.
    #[arg(long, value_name = "FILE", requires = "listen")]
    listen_token_file: Option<std::path::PathBuf>,
    /// The certificate (PEM) to show to clients, for TLS.
    #[arg(long, value_name = "FILE", requires_all = ["listen", "listen_key_file"])]
    listen_cert_file: Option<String>,
    /// Its key (PEM).
    #[arg(long, value_name = "FILE", requires_all = ["listen", "listen_cert_file"])]
    listen_key_file: Option<String>,
    /// Lends the credential of --header to every path of the server's address, and not to its own alone.
    #[arg(long, requires = "listen")]
    any_path: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Says which of a server's tools can't be called again safely, and which descriptions invite it.
    Lint(lint::Lint),
}

/// Which server.
#[derive(Args, Clone, Debug)]
#[command(group(clap::ArgGroup::new("which").args(["server", "upstream"]).required(true)))]
pub(crate) struct Target {
    /// A server behind streamable HTTP.
    #[arg(long, value_name = "URL")]
    pub(crate) upstream: Option<String>,
    /// A header for every request to it, such as `Authorization: Bearer …`; better by SEMEL_MCP_HEADER than by a flag.
    #[arg(
        long,
        value_name = "NAME: VALUE",
        env = "SEMEL_MCP_HEADER",
        hide_env_values = true
    )]
    header: Vec<String>,
    /// A server's command and its arguments, after `--`.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) server: Vec<OsString>,
}

impl Target {
    pub(crate) fn child(&self) -> Option<Child> {
        let (program, arguments) = self.server.split_first()?;
        Some(Child {
            program: program.clone(),
            arguments: arguments.to_vec(),
        })
    }

    pub(crate) fn upstream(&self) -> Result<Option<Upstream>, Exit> {
        let Some(url) = &self.upstream else {
            return Ok(None);
        };
        let wrong = || Exit::failed(exit::CONFIG, "--header: write --header 'NAME: VALUE'");
        let mut headers = HeaderMap::new();
        for line in &self.header {
            let (name, value) = line.split_once(':').ok_or_else(wrong)?;
            let name: HeaderName = name.trim().parse().map_err(|_| wrong())?;
            let mut value: HeaderValue = value.trim().parse().map_err(|_| wrong())?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        let upstream = Upstream::new(url, headers);
        upstream
            .map(Some)
            .map_err(|message| Exit::failed(exit::CONFIG, message))
    }

    /// A name that stays the same for the same server, and that no other has.
    fn name(&self) -> String {
        match &self.upstream {
            Some(url) => name::of_url(url, &self.header),
            None => {
                let folder = std::env::current_dir().unwrap_or_default();
                name::of_command(&self.server, &folder)
            }
        }
    }
}

impl Mcp {
    pub(crate) fn run(self) -> Exit {
        if let Some(Command::Lint(lint)) = self.command {
            return lint.run();
        }
        log::start(&Log::default());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return Exit::failed(exit::UNEXPECTED, error.to_string()),
        };
        let ended = runtime.block_on(Box::pin(self.serve()));
        // A read of standard input can't be called off.
        runtime.shutdown_background();
        ended.into()
    }

    async fn serve(self) -> Result<(), Exit> {
        let settings = self.given.settings(&self.target.name())?;
        let Store { url, promise } = self.given.store()?;
        let mut config = self.given.config(&url)?;
        config
            .listener
            .tls
            .cert_file
            .clone_from(&self.listen_cert_file);
        config
            .listener
            .tls
            .key_file
            .clone_from(&self.listen_key_file);
        let opened = open_audited(&config).await?;
        serve_operators(&config, &opened, told_to_end()).await?;
        let shown = without_password(&url);
        tracing::info!("records are in {shown}: {promise}; scope {}", settings.name);
        let listener = Listener {
            config,
            opened: opened.clone(),
        };
        let served = Box::pin(self.serve_on(opened.semel, settings, listener)).await;
        opened.trail.flush().await;
        opened.telemetry.flush().await;
        served
    }

    async fn serve_on(
        self,
        semel: Semel,
        settings: Settings,
        listener: Listener,
    ) -> Result<(), Exit> {
        let wrong = |message| Exit::failed(exit::CONFIG, message);
        let gateway = Gateway::new(semel.clone(), settings).map_err(wrong)?;
        let caller = self.given.caller();
        let serve = Serve {
            origins: self.allow_origin,
            hosts: self.allow_host,
            principal: self.principal_header,
            token: self.listen_token_file.as_deref().map(token).transpose()?,
            any_path: self.any_path,
        };
        let is_guarded = serve.token.is_some();
        let is_plain = self.listen_cert_file.is_none();
        let is_far = |address: SocketAddr| !address.ip().is_loopback();
        if is_guarded && is_plain && self.listen.is_some_and(is_far) {
            tracing::warn!(
                "clients' tokens come in the clear from other machines; --listen-cert-file and --listen-key-file encrypt them"
            );
        }
        let upstream = self.target.upstream()?;
        let listened = |served: Result<(), semel_mcp::ServeError>| {
            served.map_err(|error| Exit::failed(exit::LISTEN, error.to_string()))
        };
        match (upstream, self.target.child(), self.listen) {
            (Some(upstream), _, Some(address))
                if upstream.lends() && !is_guarded && !address.ip().is_loopback() =>
            {
                let message = "whoever reaches this address would use the credential of --header\n    fix: \
                               --listen-token-file FILE, or --listen 127.0.0.1:PORT";
                Err(wrong(message.to_owned()))
            }
            (Some(upstream), _, Some(address)) => listened(
                serve
                    .proxy(gateway, upstream, address, listener, told_to_end())
                    .await,
            ),
            (None, Some(_), Some(address)) if !is_guarded && !address.ip().is_loopback() => {
                let message = "a server that is a process asks nobody who they are\n    fix: \
                               --listen-token-file FILE, or --listen 127.0.0.1:PORT";
                Err(wrong(message.to_owned()))
            }
            (None, Some(child), Some(address)) => listened(
                serve
                    .child(gateway, child, address, listener, told_to_end())
                    .await,
            ),
            (Some(upstream), _, None) => {
                let served = semel_mcp::bridge(gateway, caller, upstream);
                drained(&semel, served).await;
                Ok(())
            }
            (None, Some(child), None) => {
                let served = drained(&semel, semel_mcp::stdio(gateway, caller, child)).await;
                served
                    .unwrap_or(Ok(()))
                    .map_err(|error| ended_early(&error))
            }
            (None, None, _) => Err(wrong(
                "no server: write `semel mcp -- COMMAND`, or --upstream URL".to_owned(),
            )),
        }
    }
}

/// The process's own listener, with its bounds.
struct Listener {
    config: Config,
    opened: Opened,
}

impl Listen for Listener {
    async fn listen(self, address: SocketAddr, router: Router) -> Result<(), String> {
        let mut config = self.config;
        config.listener.address = address.to_string();
        let served = serve_router(&config, &self.opened, router).await;
        served.map_err(|error| error.to_string())
    }
}

/// The token of a file that has nothing else in it.
fn token(file: &std::path::Path) -> Result<CallerToken, Exit> {
    let wrong = |why: &dyn std::fmt::Display| {
        let message = format!("--listen-token-file: {}: {why}", file.display());
        Exit::failed(exit::CONFIG, message)
    };
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
    let short = format!("a token has at least {} characters", CallerToken::MIN_BYTES);
    CallerToken::new(&text).ok_or_else(|| wrong(&short))
}

/// Serves until the client leaves, or until this process is told to end: then for as long as calls run.
async fn drained<T>(semel: &Semel, served: impl Future<Output = T>) -> Option<T> {
    // Not dropped when told to end: the server's process would go with it, in the midst of a call.
    let mut served = std::pin::pin!(served);
    tokio::select! {
        served = &mut served => return Some(served),
        () = told_to_end() => {}
    }
    let done = async {
        semel.idle().await;
        // What was answered last still has to be written.
        semel.engine().env().clock.sleep(LAST_WORDS).await;
    };
    tokio::select! {
        served = &mut served => Some(served),
        () = done => None,
    }
}

fn ended_early(error: &RunError) -> Exit {
    Exit::failed(exit::UNEXPECTED, error.to_string())
}

/// Completes when this process is told to end.
async fn told_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}
