//! `semel config`.

use clap::{Args, Subcommand};
use semel_server::config::{explain, fields, reference, schema};
use serde_json::{Map, Value};

use crate::exit::{self, Exit};
use crate::serve::Settings;

/// Checks, shows and explains settings.
#[derive(Subcommand)]
pub(crate) enum Config {
    /// Says everything that is wrong, each with what to do.
    Check(Settings),
    /// Shows the settings in force, and who said so.
    Show(Show),
    /// Explains a setting, or a table of them; without one, lists all.
    Explain(Explain),
    /// Prints the JSON schema, for editors.
    Schema,
    /// Prints the page of all settings.
    #[command(hide = true)]
    Reference,
}

#[derive(Args)]
pub(crate) struct Show {
    #[command(flatten)]
    settings: Settings,
    /// As JSON, for programs.
    #[arg(long)]
    json: bool,
    /// Also those that nobody set.
    #[arg(long)]
    all: bool,
}

#[derive(Args)]
pub(crate) struct Explain {
    /// Such as `upstream.response_timeout`.
    setting: Option<String>,
}

impl Config {
    pub(crate) fn run(&self) -> Exit {
        match self {
            Self::Check(settings) => check(settings),
            Self::Show(show) => show.run(),
            Self::Explain(explain) => explain.run(),
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
                println!("worth knowing: {warning}");
            }
            println!("the configuration is fine");
            Exit::Ok
        }
        Err(exit) => exit,
    }
}

impl Show {
    fn run(&self) -> Exit {
        let loaded = match self.settings.load() {
            Ok(loaded) => loaded,
            Err(exit) => return exit,
        };
        let all = loaded.shown().into_iter();
        let shown: Vec<_> = all
            .filter(|one| self.all || self.json || one.origin.to_string() != "default")
            .collect();
        if self.json {
            let row = |one: &semel_server::config::Shown| {
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
            println!("# everything else is as by default; --all shows it");
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
