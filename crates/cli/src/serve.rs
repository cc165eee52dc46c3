//! `semel serve`: runs the sidecar.

use std::path::PathBuf;

use clap::Args;
use semel_server::config::{
    Config, Findings, Flag, Loaded, Origin, SettingsFinding, Sources, load,
};
use semel_server::{DrainOutcome, OpenOptions, StartError, run};

use crate::exit::{self, Exit};
use crate::log;

/// The settings that flags can set.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Settings {
    /// The settings file (TOML).
    #[arg(long, short, env = "SEMEL_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The URL of your service. Repeat it for several replicas.
    #[arg(long, value_name = "URL")]
    upstream: Vec<String>,
    /// The store: redis://…, postgres://…, mysql://…, sqlite://…, s3://…, or memory:// for a trial.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The address of the admin listener.
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,
    /// The environment, such as production.
    #[arg(long, value_name = "NAME")]
    environment: Option<String>,
    /// The log format: auto, text or json.
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Any other setting. `semel config explain` lists them.
    #[arg(long = "set", value_name = "SETTING=VALUE")]
    set: Vec<String>,
}

impl Settings {
    /// The settings, or everything that is wrong with them.
    pub(crate) fn load(&self) -> Result<Loaded, Exit> {
        let sources = self.sources()?;
        load(&sources).map_err(|findings| StartError::from(findings).into())
    }

    /// Like `load`, but returns the findings.
    pub(crate) fn read(&self) -> Result<Loaded, Findings> {
        match self.sources() {
            Ok(sources) => load(&sources),
            Err(_) => Err(Findings(vec![SettingsFinding {
                path: String::new(),
                origin: Origin::Default,
                message: "--set has no value".to_owned(),
                fix: "write --set SETTING=VALUE".to_owned(),
            }])),
        }
    }

    /// Whether the settings come from a file.
    pub(crate) const fn has_file(&self) -> bool {
        self.config.is_some()
    }

    /// Only the store that a flag or a variable names.
    pub(crate) fn store_only(&self) -> Config {
        let mut config = Config::default();
        let named = self.store.clone();
        config.store.url = named.or_else(|| std::env::var("SEMEL_STORE_URL").ok());
        config.environment = self.environment.clone().unwrap_or_default();
        config
    }

    fn sources(&self) -> Result<Sources, Exit> {
        let mut flags = Vec::new();
        let mut flag = |name: &str, path: &str, value: &str| {
            flags.push(Flag {
                name: name.to_owned(),
                path: path.to_owned(),
                value: value.to_owned(),
            });
        };
        for text in &self.set {
            let Some((path, value)) = text.split_once('=') else {
                let message = format!("--set {text}: write --set SETTING=VALUE");
                return Err(Exit::failed(exit::CONFIG, message));
            };
            flag("--set", path, value);
        }
        for url in &self.upstream {
            flag("--upstream", "upstream.urls", url);
        }
        for (name, path, value) in [
            ("--store", "store.url", &self.store),
            ("--listen", "listener.address", &self.listen),
            ("--admin", "admin.address", &self.admin),
            ("--environment", "environment", &self.environment),
            ("--log-format", "log.format", &self.log_format),
        ] {
            if let Some(value) = value {
                flag(name, path, value);
            }
        }
        Ok(Sources {
            file: self.config.clone(),
            env: std::env::vars_os()
                .filter_map(|(name, value)| {
                    Some((name.into_string().ok()?, value.into_string().ok()?))
                })
                .collect(),
            flags,
        })
    }
}

/// Runs the sidecar, which adds idempotency keys to a service in any language.
#[derive(Args)]
#[command(after_help = "\
Example:
  semel serve --upstream http://127.0.0.1:3000 --store redis://127.0.0.1

Signals: SIGHUP reloads the settings, SIGTERM and SIGINT drain, a second one exits at once.
Exit codes: 0 drained, 2 usage, 3 settings, 4 store, 5 address, 6 self-check, 7 unfinished work.")]
pub(crate) struct Serve {
    #[command(flatten)]
    settings: Settings,
    /// Ends at once when standard input ends, so that no sidecar outlives the process that started
    /// it.
    #[arg(long, hide = true)]
    end_with_stdin: bool,
}

impl Serve {
    pub(crate) fn run(&self) -> Exit {
        let loaded = match self.settings.load() {
            Ok(loaded) => loaded,
            Err(exit) => return exit,
        };
        log::start(&loaded.config.log);
        if self.end_with_stdin {
            std::thread::spawn(end_with_stdin);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return Exit::failed(exit::UNEXPECTED, error.to_string()),
        };
        let ended = runtime.block_on(serve(loaded));
        // Remaining tasks have had their drain time.
        runtime.shutdown_background();
        match ended {
            Ok(DrainOutcome::Complete) => Exit::Ok,
            Ok(DrainOutcome::CutOff) => Exit::failed(exit::CUT_OFF, ""),
            Err(error) => error.into(),
        }
    }
}

/// Reads standard input to its end, then ends the process without draining.
fn end_with_stdin() {
    // A broken pipe is an end too.
    let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
    std::process::exit(i32::from(exit::CUT_OFF));
}

async fn serve(loaded: Loaded) -> Result<DrainOutcome, StartError> {
    for warning in &loaded.warnings {
        tracing::warn!("{}: {}; {}", warning.path, warning.message, warning.fix);
    }
    let opened = OpenOptions::for_node(&loaded.config).open().await?;
    let mounts = opened.mounts(&loaded.config)?;
    let drained = run(loaded, opened.semel, mounts).await;
    opened.trail.flush().await;
    opened.telemetry.flush().await;
    drained
}
