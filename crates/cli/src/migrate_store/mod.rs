//! `semel migrate-store`: copies records between stores.

mod copy;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use semel::core::StoreAdmin;
use semel::core::store::Cursor;
use semel_server::config::without_password;
use semel_server::load_keys;
use semel_stores::compose::copy::CopyMode;
use semel_stores::encrypted::Keyring;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::client::Target;
use crate::exit::{self, Exit};
use crate::out;
use crate::progress::Progress;
use crate::runtime;
use copy::{Counts, StoreCopy};

/// Copies all records from one store to another and compares them, while requests continue.
///
/// Run it while every node writes to both stores, and again before you retire the old one. It may
/// run any number of times.
#[derive(Args)]
#[command(after_help = "\
Example, from Redis to PostgreSQL without a pause:
  1. all nodes: --store 'redis://r postgres://p'     (both; Redis decides)
  2. semel migrate-store --from redis://r --to postgres://p
  3. all nodes: --store 'postgres://p redis://r'     (both; PostgreSQL decides)
  4. semel migrate-store --from redis://r --to postgres://p
  5. all nodes: --store postgres://p")]
pub(crate) struct MigrateStore {
    /// The store to copy from.
    #[arg(long, value_name = "URL")]
    from: String,
    /// The store to copy to.
    #[arg(long, value_name = "URL")]
    to: String,
    /// A file for the progress: after an interruption, the same command continues there.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// The settings file of the nodes (TOML), for the keys of encrypted records: its
    /// store.encryption.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The progress of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    from: String,
    to: String,
    /// Whether the copy is done and the comparison runs.
    comparing: bool,
    after: Option<String>,
    copied: Counts,
    compared: Counts,
}

/// The number of differences that are shown.
const SHOWN: usize = 20;

impl MigrateStore {
    pub(crate) fn run(self) -> Exit {
        runtime::block_on(async move { self.migrate().await }).into()
    }

    async fn migrate(&self) -> Result<(), Exit> {
        let mut state = self.load_progress()?;
        let copy = StoreCopy {
            from: open(&self.from).await?,
            to: open(&self.to).await?,
            keys: self.keys().await?,
        };
        let mut disagree = Vec::new();
        for comparing in [false, true] {
            if state.comparing && !comparing {
                continue;
            }
            state.comparing = comparing;
            self.walk(&copy, &mut state, &mut disagree).await?;
            state.after = None;
        }
        if let Some(file) = &self.resume {
            // The run is complete; the next one starts from the beginning.
            let _ = std::fs::remove_file(file);
        }
        self.report(&state, &disagree)
    }

    /// The keys of encrypted records.
    async fn keys(&self) -> Result<Keyring, Exit> {
        let target = Target::of_store(None, self.config.clone(), None);
        let keys = match target.settings()? {
            Some(config) => load_keys(&config).await?,
            None => None,
        };
        Ok(keys.unwrap_or_else(Keyring::empty))
    }

    /// Walks once through all records of the old store.
    async fn walk(
        &self,
        copy: &StoreCopy,
        state: &mut State,
        disagree: &mut Vec<String>,
    ) -> Result<(), Exit> {
        let (pass, what) = if state.comparing {
            (CopyMode::Comparing, "comparing")
        } else {
            (CopyMode::Copying, "copying")
        };
        let progress = Progress::counting(what, "records");
        loop {
            let counts = if state.comparing {
                &mut state.compared
            } else {
                &mut state.copied
            };
            let after = state.after.take().map(Cursor);
            let (next, found) = copy.page(pass, after, counts).await.map_err(|error| {
                Exit::failed(
                    exit::STORE,
                    format!(
                        "{error}\n    fix: run the same command again; it continues and copies \
                         nothing twice"
                    ),
                )
            })?;
            progress.to(counts.all());
            if state.comparing {
                disagree.extend(found);
                disagree.truncate(SHOWN);
            }
            state.after = next.map(|Cursor(text)| text);
            if let Some(file) = &self.resume {
                save(file, state)?;
            }
            if state.after.is_none() {
                return Ok(());
            }
        }
    }

    /// The saved progress, or a new one.
    fn load_progress(&self) -> Result<State, Exit> {
        let new = State {
            from: without_password(&self.from),
            to: without_password(&self.to),
            ..State::default()
        };
        let Some(file) = self.resume.as_ref().filter(|file| file.exists()) else {
            return Ok(new);
        };
        let text = std::fs::read_to_string(file);
        let state: Option<State> = text.ok().and_then(|text| serde_json::from_str(&text).ok());
        match state {
            Some(state) if state.from == new.from && state.to == new.to => Ok(state),
            _ => Err(Exit::failed(
                exit::CONFIG,
                format!(
                    "{} holds the progress of another copy\n    fix: use another file, or remove \
                     it to start again",
                    file.display()
                ),
            )),
        }
    }

    fn report(&self, state: &State, disagree: &[String]) -> Result<(), Exit> {
        let (copied, compared) = (state.copied, state.compared);
        if self.json {
            out::json(&json!({"copied": copied, "compared": compared, "disagree": disagree}));
        } else {
            let figure = |count: u64| out::number(count as f64);
            out::say(format_args!(
                "{} records read: {} copied, {} present, {} settled in the target, {} running, \
                 {} expired",
                figure(copied.all()),
                figure(copied.copied),
                figure(copied.there),
                figure(copied.mended),
                figure(copied.running),
                figure(copied.expired),
            ));
            out::say(format_args!(
                "{} compared: {} equal, {} new, {} running, {} different, {} unreadable",
                figure(compared.all()),
                figure(compared.there),
                figure(compared.copied + compared.mended),
                figure(compared.running),
                figure(compared.conflicts),
                figure(compared.unreadable),
            ));
        }
        let mut problems = Vec::new();
        if compared.unreadable > 0 {
            problems.push((exit::UNREADABLE, unreadable_advice(compared.unreadable)));
        }
        if compared.encrypted > 0 {
            problems.push((exit::UNREADABLE, encrypted_advice(compared.encrypted)));
        }
        if compared.conflicts > 0 {
            let list = disagree.join("\n    ");
            let message = format!(
                "the stores disagree about {} keys (tenant, scope, prefix of the key):\n    \
                 {list}\n    fix: a node may use only the new store; inspect each record with \
                 `semel keys inspect --store URL`",
                compared.conflicts
            );
            problems.push((exit::DISAGREE, message));
        }
        if let Some((code, _)) = problems.first() {
            let messages: Vec<&str> = problems.iter().map(|(_, message)| &**message).collect();
            return Err(Exit::failed(*code, messages.join("\n")));
        }
        if !self.json && compared.copied > 0 {
            out::say(
                "records were written to the old store only: let every node use both stores, \
                 then run it again",
            );
        } else if !self.json && compared.running > 0 {
            out::say(
                "some requests run under a lease of one store only: run it again when they are \
                 done",
            );
        }
        Ok(())
    }
}

/// The advice for unreadable records, which exist only in the old store.
fn unreadable_advice(count: u64) -> String {
    format!(
        "{count} records of the old store can't be read and were not copied: the old store \
         refuses their keys, the new one would run them again\n    fix: run this command with \
         the version of semel that wrote them, which may be newer; if they are damaged, keep \
         the old store until their retention is over"
    )
}

/// The advice for records that both stores have encrypted.
fn encrypted_advice(count: u64) -> String {
    format!(
        "{count} records are encrypted in both stores, and could not be compared\n    fix: give the \
         keys of the nodes with --config FILE"
    )
}

fn save(file: &Path, state: &State) -> Result<(), Exit> {
    let write = || {
        let text = serde_json::to_string(state)?;
        let partial = file.with_extension("partial");
        std::fs::write(&partial, text)?;
        std::fs::rename(&partial, file)
    };
    write().map_err(|error: std::io::Error| {
        let message = format!(
            "the progress can't be written to {}: {error}",
            file.display()
        );
        Exit::failed(exit::UNEXPECTED, message)
    })
}

async fn open(url: &str) -> Result<Arc<dyn StoreAdmin>, Exit> {
    let opened = semel::open_store(url).await;
    opened.map_err(|error| {
        let message = format!(
            "the store {} can't be used: {error}\n    fix: start it, and check the URL",
            without_password(url)
        );
        Exit::failed(exit::STORE, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(compared: Counts) -> (u8, String) {
        let command = MigrateStore {
            from: "redis://old".to_owned(),
            to: "postgres://new".to_owned(),
            resume: None,
            config: None,
            json: false,
        };
        let state = State {
            compared,
            ..State::default()
        };
        match command.report(&state, &["shop charge ord-1".to_owned()]) {
            Ok(()) | Err(Exit::Ok) => (0, String::new()),
            Err(Exit::Failed { code, message }) => (code, message),
        }
    }

    #[test]
    fn unreadable_record_fails_the_migration() {
        let sound = Counts {
            there: 7,
            ..Counts::default()
        };
        assert_eq!(ended(sound).0, 0);
        let damaged = Counts {
            unreadable: 3,
            ..sound
        };
        let (code, message) = ended(damaged);
        assert_eq!(code, exit::UNREADABLE, "{message}");
        assert!(message.contains("3 records"), "{message}");
        assert!(message.contains("fix:"), "{message}");
        let undecrypted = Counts {
            encrypted: 2,
            ..sound
        };
        let (code, message) = ended(undecrypted);
        assert_eq!(code, exit::UNREADABLE, "{message}");
        assert!(message.contains("--config"), "{message}");
        // The message reports both failures.
        let both = Counts {
            conflicts: 1,
            ..damaged
        };
        let (code, message) = ended(both);
        assert_eq!(code, exit::UNREADABLE, "{message}");
        assert!(message.contains("shop charge ord-1"), "{message}");
    }
}
