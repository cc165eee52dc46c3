//! `semel top`: a live dashboard of a sidecar.
//!
//! | file | content |
//! |---|---|
//! | `model` | the state of the dashboard, and its updates |
//! | `view`, `lists`, `style` | drawing |

mod lists;
mod model;
mod style;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures_util::StreamExt as _;
use semel::core::Clock;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::client::{ApiPath, Client, Target, typed};
use crate::events::{AuditStream, EventFilter};
use crate::exit::{self, Exit};
use crate::keys::Filter;
use crate::out::Style;
use crate::runtime;
use model::{Doubts, Model};

/// Shows a live dashboard of a running sidecar: rates, running and waiting requests, doubts, the
/// store, recent events.
#[derive(Args)]
#[command(after_help = "\
Example:
  semel top --admin http://127.0.0.1:9090

Keys: q quits, p pauses, + and - change the refresh interval.")]
pub(crate) struct Top {
    #[command(flatten)]
    target: Target,
    /// The refresh interval, in milliseconds.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    every: u64,
}

/// An update from the background tasks.
enum Update {
    Stats(Result<Value, Exit>),
    Doubts(Doubts),
    Entry(Value),
}

/// Counting doubts reads many records, so it runs less often.
const DOUBTS_EVERY: Duration = Duration::from_secs(10);
/// The number of pages that a count reads.
const DOUBT_PAGES: usize = 5;
/// The number of updates that may queue.
const WAITING: usize = 1024;

impl Top {
    pub(crate) fn run(self) -> Exit {
        runtime::block_on(async move { Box::pin(self.watch()).await }).into()
    }

    async fn watch(&self) -> Result<(), Exit> {
        if !Style::for_stdout().is_terminal() {
            let message = "top needs a terminal\n    fix: `semel tail --json` is for programs";
            return Err(Exit::failed(exit::REFUSED, message));
        }
        let client = Arc::new(self.target.client().await?);
        // The first request runs before the screen opens, so that an error is printed as plain
        // lines.
        let first = client.get(&ApiPath::new("/admin/v1/stats")).await?;
        let clock = semel::tokio_env().clock;
        let mut model = Model::new(client.name.clone(), client.is_remote(), self.every);
        model.stats(typed(first)?, clock.now());
        let (tell, news) = mpsc::channel(WAITING);
        let (pace, paced) = tokio::sync::watch::channel(self.every);
        tokio::spawn(ask_stats(
            Arc::clone(&client),
            tell.clone(),
            paced,
            Arc::clone(&clock),
        ));
        tokio::spawn(count_doubts(
            Arc::clone(&client),
            tell.clone(),
            Arc::clone(&clock),
        ));
        if client.is_remote() {
            tokio::spawn(follow(client, tell, Arc::clone(&clock)));
        }
        let mut terminal = ratatui::try_init()
            .map_err(|error| Exit::failed(exit::UNEXPECTED, error.to_string()))?;
        let ended = show(&mut terminal, model, news, &pace, &*clock).await;
        ratatui::restore();
        ended.map_err(|error| Exit::failed(exit::UNEXPECTED, error.to_string()))
    }
}

async fn show(
    terminal: &mut ratatui::DefaultTerminal,
    mut model: Model,
    mut news: mpsc::Receiver<Update>,
    pace: &tokio::sync::watch::Sender<u64>,
    clock: &dyn Clock,
) -> std::io::Result<()> {
    let mut keys = EventStream::new();
    loop {
        terminal.draw(|frame| view::draw(frame, &model))?;
        tokio::select! {
            told = news.recv() => match told {
                Some(told) => take(&mut model, told, clock),
                None => return Ok(()),
            },
            key = keys.next() => match key {
                Some(Ok(Event::Key(key))) if key.kind == KeyEventKind::Press => {
                    if is_end(key) {
                        return Ok(());
                    }
                    press(&mut model, key.code);
                    pace.send_if_modified(|every| std::mem::replace(every, model.every) != model.every);
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(()),
            },
        }
        // Everything that has arrived is drawn at once.
        while let Ok(told) = news.try_recv() {
            take(&mut model, told, clock);
        }
    }
}

fn is_end(key: KeyEvent) -> bool {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
        || control && key.code == KeyCode::Char('c')
}

fn press(model: &mut Model, key: KeyCode) {
    match key {
        KeyCode::Char('p' | ' ') => model.paused = !model.paused,
        KeyCode::Char('+') => model.every = (model.every / 2).max(250),
        KeyCode::Char('-') => model.every = (model.every * 2).min(8000),
        _ => {}
    }
}

fn take(model: &mut Model, news: Update, clock: &dyn Clock) {
    if model.paused {
        return;
    }
    match news {
        Update::Stats(Ok(stats)) => match typed(stats) {
            Ok(stats) => model.stats(stats, clock.now()),
            Err(_) => model.silent("its response can't be read"),
        },
        Update::Stats(Err(Exit::Failed { message, .. })) => {
            model.silent(message.lines().next().unwrap_or_default());
        }
        Update::Stats(Err(Exit::Ok)) => {}
        Update::Doubts(doubts) => model.doubts = Some(doubts),
        Update::Entry(entry) => {
            if let Ok(entry) = typed(entry) {
                model.entry(entry, clock.now());
            }
        }
    }
}

async fn ask_stats(
    client: Arc<Client>,
    tell: mpsc::Sender<Update>,
    mut pace: tokio::sync::watch::Receiver<u64>,
    clock: Arc<dyn Clock>,
) {
    loop {
        let every = Duration::from_millis(*pace.borrow_and_update());
        tokio::select! {
            () = clock.sleep(every) => {}
            changed = pace.changed() => if changed.is_err() { return },
        }
        let stats = client.get(&ApiPath::new("/admin/v1/stats")).await;
        if tell.send(Update::Stats(stats)).await.is_err() {
            return;
        }
    }
}

async fn count_doubts(client: Arc<Client>, tell: mpsc::Sender<Update>, clock: Arc<dyn Clock>) {
    let filter = Filter {
        state: Some("in_doubt"),
        ..Filter::default()
    };
    loop {
        let mut doubts = Doubts::default();
        let mut cursor: Option<String> = None;
        for _ in 0..DOUBT_PAGES {
            let Ok(page) = filter.page(&client, cursor.as_deref(), 1000).await else {
                break;
            };
            doubts.count += page.records.len() as u64;
            cursor = page.next;
            doubts.is_all = cursor.is_none();
            if doubts.is_all {
                break;
            }
        }
        if tell.send(Update::Doubts(doubts)).await.is_err() {
            return;
        }
        clock.sleep(DOUBTS_EVERY).await;
    }
}

/// Follows the events, and reconnects when the stream ends.
async fn follow(client: Arc<Client>, tell: mpsc::Sender<Update>, clock: Arc<dyn Clock>) {
    let mut wanted = EventFilter {
        recent: Some(100),
        ..EventFilter::default()
    };
    loop {
        if let Ok(mut events) = AuditStream::open(&client, &wanted).await {
            // After a reconnect the recent events have been seen.
            wanted.recent = None;
            while let Some(Ok(entry)) = events.next().await {
                if tell.send(Update::Entry(entry)).await.is_err() {
                    return;
                }
            }
        }
        clock.sleep(Duration::from_secs(1)).await;
    }
}
