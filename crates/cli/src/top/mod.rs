//! `semel top`: a running sidecar, live.
//!
//! | file | is |
//! |---|---|
//! | `model` | what is known, and how it changes |
//! | `view`, `lists` | how it looks |

mod lists;
mod model;
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

use crate::client::{Client, Path, Target, typed};
use crate::events::{Events, Wanted};
use crate::exit::{self, Exit};
use crate::keys::Filter;
use crate::out::Look;
use crate::runtime;
use model::{Doubts, Model};

/// Shows a running sidecar, live: rates, who runs and waits, doubts, the store, what just happened.
#[derive(Args)]
#[command(after_help = "\
Example:
  semel top --admin http://127.0.0.1:9090

Keys: q ends, p pauses, + and - change how often it looks.")]
pub(crate) struct Top {
    #[command(flatten)]
    target: Target,
    /// How often to look, in milliseconds.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    every: u64,
}

/// What the background tells the screen.
enum News {
    Stats(Result<Value, Exit>),
    Doubts(Doubts),
    Entry(Value),
}

/// Counting doubts looks at many records; it is done less often than the rest.
const DOUBTS_EVERY: Duration = Duration::from_secs(10);
/// How many pages a count looks at.
const DOUBT_PAGES: usize = 5;
/// How many entries may wait for the screen.
const WAITING: usize = 1024;

impl Top {
    pub(crate) fn run(self) -> Exit {
        runtime::block_on(async move { Box::pin(self.watch()).await }).into()
    }

    async fn watch(&self) -> Result<(), Exit> {
        if !Look::of_stdout().is_terminal() {
            let message = "top needs a terminal\n    fix: `semel tail --json` is for programs";
            return Err(Exit::failed(exit::REFUSED, message));
        }
        let client = Arc::new(self.target.client().await?);
        // Asked once before the screen is taken: a mistake is told in plain lines.
        let first = client.get(&Path::new("/admin/v1/stats")).await?;
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
    mut news: mpsc::Receiver<News>,
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
        // Whatever came meanwhile is drawn at once.
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

fn take(model: &mut Model, news: News, clock: &dyn Clock) {
    if model.paused {
        return;
    }
    match news {
        News::Stats(Ok(stats)) => match typed(stats) {
            Ok(stats) => model.stats(stats, clock.now()),
            Err(_) => model.silent("it answers something that this build doesn't know"),
        },
        News::Stats(Err(Exit::Failed { message, .. })) => {
            model.silent(message.lines().next().unwrap_or_default());
        }
        News::Stats(Err(Exit::Ok)) => {}
        News::Doubts(doubts) => model.doubts = Some(doubts),
        News::Entry(entry) => {
            if let Ok(entry) = typed(entry) {
                model.entry(entry, clock.now());
            }
        }
    }
}

async fn ask_stats(
    client: Arc<Client>,
    tell: mpsc::Sender<News>,
    mut pace: tokio::sync::watch::Receiver<u64>,
    clock: Arc<dyn Clock>,
) {
    loop {
        let every = Duration::from_millis(*pace.borrow_and_update());
        tokio::select! {
            () = clock.sleep(every) => {}
            changed = pace.changed() => if changed.is_err() { return },
        }
        let stats = client.get(&Path::new("/admin/v1/stats")).await;
        if tell.send(News::Stats(stats)).await.is_err() {
            return;
        }
    }
}

async fn count_doubts(client: Arc<Client>, tell: mpsc::Sender<News>, clock: Arc<dyn Clock>) {
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
        if tell.send(News::Doubts(doubts)).await.is_err() {
            return;
        }
        clock.sleep(DOUBTS_EVERY).await;
    }
}

/// Follows the events; where the stream ends, tries again.
async fn follow(client: Arc<Client>, tell: mpsc::Sender<News>, clock: Arc<dyn Clock>) {
    let mut wanted = Wanted {
        recent: Some(100),
        ..Wanted::default()
    };
    loop {
        if let Ok(mut events) = Events::open(&client, &wanted).await {
            // Those were seen by the time that the stream ends.
            wanted.recent = None;
            while let Some(Ok(entry)) = events.next().await {
                if tell.send(News::Entry(entry)).await.is_err() {
                    return;
                }
            }
        }
        clock.sleep(Duration::from_secs(1)).await;
    }
}
