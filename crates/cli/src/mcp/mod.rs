//! `semel mcp`: agents retry, tools act once.

mod exposure;
mod lint;
mod name;
mod settings;
mod tools;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use clap::{Args, Subcommand};
use http::{HeaderMap, HeaderName, HeaderValue};
use semel::Semel;
use semel_mcp::{
    CallerToken, Gateway, HttpFrontend, HttpListener, HttpUpstream, RunError, ServerCommand,
    Settings,
};
use semel_server::config::{Config, Log, without_password};
use semel_server::{OpenOptions, Services, log_keys, reload_keys, serve_operators, serve_router};

use crate::exit::{self, Exit};
use crate::log;
use settings::{GatewayArgs, Store};

/// How long the last responses get to be written before the process ends.
const FLUSH_TIME: Duration = Duration::from_millis(200);

/// A gateway in front of any MCP server: a repeated tool call does not act again.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  semel mcp -- npx -y some-mcp-server                       a server on standard input and output
  semel mcp --store redis://127.0.0.1 -- python server.py   records that several gateways share
  semel mcp --upstream https://host/mcp                     a server behind HTTP
  semel mcp --upstream http://127.0.0.1:8000/mcp --listen 127.0.0.1:9000
  semel mcp --listen 127.0.0.1:9000 -- python server.py     a process for each session
  semel mcp --admin 127.0.0.1:9090 --admin-token-file FILE -- python server.py
                                                            with a dashboard and metrics
  semel mcp lint -- python server.py                        finds tools that are unsafe to retry

In a client's configuration, put `semel`, `mcp`, `--` in front of the server's own command. The guide
is docs/mcp.md. Exit codes: 0 the client has left, 1 the server exited early or can't be started,
2 usage, 3 settings, 4 store, 5 address."
)]
pub(crate) struct Mcp {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    args: GatewayArgs,
    /// Listen for clients on HTTP at this address, instead of standard input and output.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// An origin of web pages that may call, besides loopback origins. May be repeated.
    #[arg(long, value_name = "ORIGIN", requires = "listen")]
    allow_origin: Vec<String>,
    /// A host name by which clients reach this gateway, besides loopback names. May be repeated.
    #[arg(long, value_name = "HOST", requires = "listen")]
    allow_host: Vec<String>,
    /// The header with the authenticated caller, set by a proxy in front. Without it, callers are
    /// identified by their credentials.
    #[arg(long, value_name = "HEADER", requires = "listen")]
    principal_header: Option<HeaderName>,
    /// A file with the bearer token that clients must send. The server does not see it.
    #[arg(long, value_name = "FILE", requires = "listen")]
    listen_token_file: Option<std::path::PathBuf>,
    /// The certificate (PEM) for TLS.
    #[arg(long, value_name = "FILE", requires_all = ["listen", "listen_key_file"])]
    listen_cert_file: Option<String>,
    /// The private key (PEM) of the certificate.
    #[arg(long, value_name = "FILE", requires_all = ["listen", "listen_cert_file"])]
    listen_key_file: Option<String>,
    /// Send the credential of --header to every path of the server's address, not only to its own
    /// path.
    #[arg(long, requires = "listen")]
    any_path: bool,
    /// Accept tokens from other machines without TLS, because something else encrypts the
    /// connection.
    #[arg(long)]
    insecure_tokens: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Reports tools that are unsafe to retry, and descriptions that invite duplicate calls.
    Lint(lint::Lint),
}

/// The server behind the gateway.
#[derive(Args, Clone, Debug)]
#[command(group(clap::ArgGroup::new("which").args(["server", "upstream"]).required(true)))]
pub(crate) struct Target {
    /// The URL of a server behind streamable HTTP.
    #[arg(long, value_name = "URL")]
    pub(crate) upstream: Option<String>,
    /// A header for every request to the server, such as `Authorization: Bearer …`. Prefer
    /// SEMEL_MCP_HEADER, as flags are visible to other users.
    #[arg(
        long,
        value_name = "NAME: VALUE",
        env = "SEMEL_MCP_HEADER",
        hide_env_values = true
    )]
    header: Vec<String>,
    /// The command of a server and its arguments, after `--`.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) server: Vec<OsString>,
}

impl Target {
    pub(crate) fn command(&self) -> Option<ServerCommand> {
        let (program, arguments) = self.server.split_first()?;
        Some(ServerCommand {
            program: program.clone(),
            arguments: arguments.to_vec(),
        })
    }

    pub(crate) fn upstream(&self) -> Result<Option<HttpUpstream>, Exit> {
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
        let upstream = HttpUpstream::new(url, headers);
        upstream
            .map(Some)
            .map_err(|message| Exit::failed(exit::CONFIG, message))
    }

    /// A name that is stable for the same server and differs from other servers.
    fn name(&self) -> String {
        match &self.upstream {
            Some(url) => name::for_url(url, &self.header),
            None => {
                let folder = std::env::current_dir().unwrap_or_default();
                name::for_command(&self.server, &folder)
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
        // A blocking read of standard input can't be cancelled.
        runtime.shutdown_background();
        ended.into()
    }

    async fn serve(self) -> Result<(), Exit> {
        let settings = self.args.settings(&self.target.name())?;
        let Store { url, promise } = self.args.store()?;
        let mut config = self.args.config(&url)?;
        let upstream = self.target.upstream()?;
        let lends_credential = upstream
            .as_ref()
            .is_some_and(HttpUpstream::has_own_credential);
        exposure::check(&self, lends_credential)?;
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
        let opened = OpenOptions::for_node(&config).open().await?;
        reload_keys_at_hang_up(self.args.clone(), &url, &opened.semel);
        serve_operators(&config, &opened, wait_for_signal()).await?;
        let shown = without_password(&url);
        tracing::info!("records are in {shown}: {promise}; scope {}", settings.name);
        let listener = ProcessListener {
            config,
            opened: opened.clone(),
        };
        let served = Box::pin(self.serve_on(opened.semel, settings, upstream, listener)).await;
        opened.trail.flush().await;
        opened.telemetry.flush().await;
        served
    }

    async fn serve_on(
        self,
        semel: Semel,
        settings: Settings,
        upstream: Option<HttpUpstream>,
        listener: ProcessListener,
    ) -> Result<(), Exit> {
        let wrong = |message| Exit::failed(exit::CONFIG, message);
        let gateway = Gateway::new(semel.clone(), settings).map_err(wrong)?;
        let caller = self.args.caller();
        let serve = HttpFrontend {
            origins: self.allow_origin,
            hosts: self.allow_host,
            principal: self.principal_header,
            token: self
                .listen_token_file
                .as_deref()
                .map(read_token)
                .transpose()?,
            any_path: self.any_path,
        };
        let listened = |served: Result<(), semel_mcp::ListenError>| {
            served.map_err(|error| Exit::failed(exit::LISTEN, error.to_string()))
        };
        match (upstream, self.target.command(), self.listen) {
            (Some(upstream), _, Some(address)) => listened(
                serve
                    .serve_upstream(gateway, upstream, address, listener, wait_for_signal())
                    .await,
            ),
            (None, Some(child), Some(address)) => listened(
                serve
                    .serve_command(gateway, child, address, listener, wait_for_signal())
                    .await,
            ),
            (Some(upstream), _, None) => {
                let served = semel_mcp::serve_upstream(gateway, caller, upstream);
                serve_and_drain(&semel, served).await;
                Ok(())
            }
            (None, Some(child), None) => {
                let served =
                    serve_and_drain(&semel, semel_mcp::serve_command(gateway, caller, child)).await;
                served.unwrap_or(Ok(())).map_err(|error| exit_error(&error))
            }
            (None, None, _) => Err(wrong(
                "no server is given\n    fix: `semel mcp -- COMMAND`, or --upstream URL".to_owned(),
            )),
        }
    }
}

/// The listener of the sidecar, with its limits.
struct ProcessListener {
    config: Config,
    opened: Services,
}

impl HttpListener for ProcessListener {
    async fn listen(self, address: SocketAddr, router: Router) -> Result<(), String> {
        let mut config = self.config;
        config.listener.address = address.to_string();
        let served = serve_router(&config, &self.opened, router).await;
        served.map_err(|error| error.to_string())
    }
}

/// Reads a token from a file that contains nothing else.
fn read_token(file: &std::path::Path) -> Result<CallerToken, Exit> {
    let wrong = |why: &dyn std::fmt::Display| {
        let message = format!("--listen-token-file: {}: {why}", file.display());
        Exit::failed(exit::CONFIG, message)
    };
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
    let short = format!("a token has at least {} characters", CallerToken::MIN_BYTES);
    CallerToken::new(&text).ok_or_else(|| wrong(&short))
}

/// Serves until the client leaves or a signal arrives. After a signal, running calls still finish.
async fn serve_and_drain<T>(semel: &Semel, served: impl Future<Output = T>) -> Option<T> {
    // The future stays alive after the signal, because dropping it would kill the server in the
    // middle of a call.
    let mut served = std::pin::pin!(served);
    tokio::select! {
        served = &mut served => return Some(served),
        () = wait_for_signal() => {}
    }
    let done = async {
        semel.idle().await;
        // What was answered last still has to be written.
        semel.engine().env().clock.sleep(FLUSH_TIME).await;
    };
    tokio::select! {
        served = &mut served => Some(served),
        () = done => None,
    }
}

fn exit_error(error: &RunError) -> Exit {
    Exit::failed(exit::UNEXPECTED, error.to_string())
}

/// Reads the settings of encryption and its keys again at SIGHUP, which must not end the gateway:
/// its client would lose its tools.
fn reload_keys_at_hang_up(args: GatewayArgs, url: &str, semel: &Semel) {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut hang_up) = signal(SignalKind::hangup()) else {
        return;
    };
    let (url, semel) = (url.to_owned(), semel.clone());
    tokio::spawn(async move {
        while hang_up.recv().await.is_some() {
            match args.config(&url) {
                Ok(config) => log_keys(reload_keys(&config, &semel).await),
                Err(Exit::Failed { message, .. }) => {
                    tracing::error!(
                        "the settings were not read again, and the old ones stay: {message}"
                    );
                }
                Err(Exit::Ok) => {}
            }
        }
    });
}

/// Completes when this process is told to end.
async fn wait_for_signal() {
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
