//! `semel config`: checks, shows and explains settings.

use clap::{Args, Subcommand};
use semel_server::config::{explain, fields, reference, schema};
use serde_json::{Map, Value};

use crate::exit::{self, Exit};
use crate::serve::Settings;

/// Checks, shows and explains settings.
#[derive(Subcommand)]
pub(crate) enum Config {
    /// Reports everything that is wrong with the settings, and how to fix it.
    Check(Settings),
    /// Shows the effective settings, and where each value comes from.
    Show(Show),
    /// Explains a setting or a table; without a name, lists all settings.
    Explain(Explain),
    /// Prints what the routes say about keys, as an OpenAPI document to merge into your API's own.
    Openapi(Settings),
    /// Prints the JSON schema, for editors.
    Schema,
    /// Prints the reference page of all settings.
    #[command(hide = true)]
    Reference,
}

#[derive(Args)]
pub(crate) struct Show {
    #[command(flatten)]
    settings: Settings,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Include settings that have their default value.
    #[arg(long)]
    all: bool,
}

#[derive(Args)]
pub(crate) struct Explain {
    /// The name of a setting, such as `upstream.response_timeout`.
    setting: Option<String>,
}

impl Config {
    pub(crate) fn run(&self) -> Exit {
        match self {
            Self::Check(settings) => check(settings),
            Self::Show(show) => show.run(),
            Self::Explain(explain) => explain.run(),
            Self::Openapi(settings) => openapi(settings),
            Self::Schema => {
                println!("{:#}", schema());
                Exit::Ok
            }
            Self::Reference => {
                print!("{}", reference());
                Exit::Ok
            }
        }
    }
}

fn check(settings: &Settings) -> Exit {
    match settings.load() {
        Ok(loaded) => {
            for warning in &loaded.warnings {
                println!("note: {warning}");
            }
            println!("the configuration is fine");
            Exit::Ok
        }
        Err(exit) => exit,
    }
}

fn openapi(settings: &Settings) -> Exit {
    let loaded = match settings.load() {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    match semel_server::key_openapi(&loaded.config) {
        Ok(document) => {
            println!("{document:#}");
            Exit::Ok
        }
        Err(error) => Exit::failed(exit::CONFIG, error.to_string()),
    }
}

impl Show {
    fn run(&self) -> Exit {
        let loaded = match self.settings.load() {
            Ok(loaded) => loaded,
            Err(exit) => return exit,
        };
        let all = loaded.effective_settings().into_iter();
        let shown: Vec<_> = all
            .filter(|one| self.all || self.json || one.origin.to_string() != "default")
            .collect();
        if self.json {
            let row = |one: &semel_server::config::EffectiveSetting| {
                let mut row = Map::new();
                row.insert("setting".to_owned(), one.path.clone().into());
                row.insert("value".to_owned(), one.value.clone());
                row.insert("from".to_owned(), one.origin.to_string().into());
                Value::Object(row)
            };
            println!("{:#}", Value::Array(shown.iter().map(row).collect()));
            return Exit::Ok;
        }
        let width = shown.iter().map(|one| one.path.len()).max().unwrap_or(0);
        for one in &shown {
            let value = if one.value.is_null() {
                "not set".to_owned()
            } else {
                one.value.to_string()
            };
            println!("{:width$}  {value}  # {}", one.path, one.origin);
        }
        if !self.all {
            println!("# other settings have their defaults; --all shows them");
        }
        Exit::Ok
    }
}

impl Explain {
    fn run(&self) -> Exit {
        let Some(setting) = &self.setting else {
            let width = fields()
                .iter()
                .map(|field| field.path.len())
                .max()
                .unwrap_or(0);
            for field in fields() {
                println!("{:width$}  {}", field.path, field.about);
            }
            return Exit::Ok;
        };
        match explain(setting) {
            Ok(text) => {
                println!("{text}");
                Exit::Ok
            }
            Err(near) => {
                let hint = near.map(|near| format!("; did you mean {near}?"));
                let message = format!("there is no setting {setting}{}", hint.unwrap_or_default());
                Exit::failed(exit::CONFIG, message)
            }
        }
    }
}
