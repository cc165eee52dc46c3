//! `semel dev`: a playground with fault injection. A toy service, two sidecars on one store and a
//! page that draws what happens as a sequence diagram.
//!
//! | file | is |
//! |---|---|
//! | `stage` | everything that takes part, and the client's requests |
//! | `scenarios` | the five stories, and what came of each |
//! | `sidecar` | the child processes: settings, start, kill, restart |
//! | `follow` | the sidecars' event streams |
//! | `folder` | where the store is, until the end |
//! | `run`, `board` | one run and its events; all runs, bounded |
//! | `page` | the web page and its API |
//! | `http` | an HTTP client for the loopback |
//! | `show` | the text in the terminal, the browser |

mod board;
mod folder;
mod follow;
mod http;
mod page;
mod run;
mod scenarios;
mod show;
mod sidecar;
mod stage;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use semel::core::Env;
use tokio::net::TcpListener;

use crate::exit::{self, Exit};
use crate::out::Style;
use crate::payments::{Pace, Payments, Report, Step};
use crate::runtime;
use board::Board;
use folder::Folder;
use http::Http;
use run::{Crash, Event, Kind, Lane, Run, Tone};
use sidecar::Sidecar;
use stage::Stage;

/// How long a charge takes: long enough to watch, and to kill its owner in the middle.
const EFFECT: Duration = Duration::from_millis(1100);
/// How often other ports are tried where somebody else takes one first.
const STARTS: u32 = 3;

/// Opens a page on which you lose replies, retry and kill sidecars, and watch what happens.
///
/// Starts a toy payments service, two sidecars on one SQLite store and a page with five scenarios,
/// all on free ports of 127.0.0.1. It works offline. Ctrl-C ends everything and removes the store.
#[derive(Args)]
#[command(after_help = "\
Examples:
  semel dev
  semel dev --no-open --port 8000")]
pub(crate) struct Dev {
    /// Leaves the browser closed.
    #[arg(long)]
    no_open: bool,
    /// The port of the page; a free one where it is not named.
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    port: u16,
}

impl Dev {
    pub(crate) fn run(self) -> Exit {
        runtime::block_on(async move { Box::pin(self.play()).await }).into()
    }

    async fn play(&self) -> Result<(), Exit> {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await;
        let listener = listener.map_err(|error| {
            let message = format!(
                "can't listen on 127.0.0.1:{}: {error}\n    fix: --port with another number, or none \
                 for a free port",
                self.port
            );
            Exit::failed(exit::LISTEN, message)
        })?;
        let page = listener.local_addr().map_err(unexpected)?;
        let end = End::new().map_err(unexpected)?;
        let env = semel::tokio_env();
        let folder = Folder::new(&std::env::temp_dir(), &*env.entropy).map_err(unexpected)?;
        tokio::select! {
            stage = start(&env, &folder) => {
                let stage = stage?;
                let look = Style::for_stdout();
                show::welcome(look, page, &stage);
                if !self.no_open {
                    show::open_browser(look, page);
                }
                let served = Arc::clone(&stage);
                tokio::select! {
                    served = page::serve(served, listener) => served.map_err(unexpected)?,
                    () = end.told() => {}
                }
                stage.a.kill().await;
                stage.b.kill().await;
            }
            // Children that have been started end with their handles.
            () = end.told() => {}
        }
        Ok(())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` hands it over")]
fn unexpected(error: io::Error) -> Exit {
    Exit::failed(exit::UNEXPECTED, error.to_string())
}

/// Starts the services and the sidecars.
async fn start(env: &Env, folder: &Folder) -> Result<Arc<Stage>, Exit> {
    let board = Arc::new(Board::new(Arc::clone(&env.clock)));
    let behind = service(&board, true).await.map_err(unexpected)?;
    let bare = service(&board, false).await.map_err(unexpected)?;
    let a = start_sidecar(Lane::A, env, folder, &behind).await?;
    let b = start_sidecar(Lane::B, env, folder, &behind).await?;
    for sidecar in [&a, &b] {
        tokio::spawn(follow::follow(Arc::clone(sidecar), Arc::clone(&board)));
    }
    Ok(Arc::new(Stage {
        board,
        http: Http::new(),
        a,
        b,
        behind,
        bare,
        entropy: Arc::clone(&env.entropy),
        next: 0.into(),
        is_busy: false.into(),
    }))
}

/// Starts a sidecar; with other ports where somebody has taken one meanwhile.
async fn start_sidecar(
    lane: Lane,
    env: &Env,
    folder: &Folder,
    service: &Payments,
) -> Result<Arc<Sidecar>, Exit> {
    let mut failed = Exit::failed(exit::UNEXPECTED, "a sidecar does not start");
    for _ in 0..STARTS {
        let sidecar = Sidecar::prepare(lane, folder.path(), service.address).map_err(unexpected)?;
        match sidecar.start(&env.clock).await {
            Ok(()) => return Ok(Arc::new(sidecar)),
            Err(exit) => failed = exit,
        }
    }
    Err(failed)
}

/// A slow service whose effects are noted on the board.
async fn service(board: &Arc<Board>, is_behind: bool) -> io::Result<Payments> {
    let noted = Arc::clone(board);
    let reporter = move |report: Report| note_effect(&noted, is_behind, &report);
    Payments::start_slow(Pace {
        clock: Arc::clone(&board.clock),
        time: EFFECT,
        reporter: Arc::new(reporter),
    })
    .await
}

fn note_effect(board: &Board, is_behind: bool, report: &Report) {
    let fits = |run: &Run| run.order == report.order && run.with_semel == is_behind;
    let Some(run) = board.runs().into_iter().find(fits) else {
        // Somebody's own request: it changes the counts alone.
        return board.touch();
    };
    // The sidecar that claimed last is the one that asks.
    let claims = run
        .events
        .iter()
        .filter(|event| event.kind == Kind::Request);
    let asks = claims.map(|event| event.to).next_back();
    let begun = run
        .events
        .iter()
        .find(|event| event.kind == Kind::Begin && event.effect == Some(report.effect));
    let caller = begun.map(|event| event.from).or(asks).unwrap_or(Lane::A);
    let is_repeated = run.effects().1 > 0;
    let (begins, ends) = match (run.crash, is_repeated) {
        (Crash::Hold, false) => ("charging", "charged"),
        (Crash::Hold, true) => ("charging", "charged again"),
        (Crash::Takeover, false) => ("writing", "written"),
        (Crash::Takeover, true) => ("writing", "written again"),
    };
    let event = match report.step {
        Step::Begun => Event::arrow(Kind::Begin, caller, Lane::Service, begins),
        Step::Ended { is_heard } => {
            let event = Event::arrow(Kind::End, Lane::Service, caller, ends);
            // Without Semel the client itself sees that a reply is lost.
            match (is_heard || !is_behind, run.crash, is_repeated) {
                (false, ..) => event.lost(),
                (true, Crash::Hold, true) => event.toned(Tone::Bad),
                (true, ..) => event.toned(Tone::Good),
            }
        }
    };
    board.note_at(fits, board.wall_ms(), event.of_effect(report.effect));
}

/// Ctrl-C, SIGTERM, or a terminal that is closed.
struct End(tokio::sync::watch::Receiver<bool>);

impl End {
    #[cfg(unix)]
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        Ok(Self::when(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hang_up.recv() => {}
            }
        }))
    }

    #[cfg(not(unix))]
    fn new() -> io::Result<Self> {
        Ok(Self::when(async {
            let _ = tokio::signal::ctrl_c().await;
        }))
    }

    fn when(told: impl Future<Output = ()> + Send + 'static) -> Self {
        let (tell, is_told) = tokio::sync::watch::channel(false);
        tokio::spawn(async move {
            told.await;
            let _ = tell.send(true);
        });
        Self(is_told)
    }

    async fn told(&self) {
        let mut is_told = self.0.clone();
        let _ = is_told.wait_for(|is_told| *is_told).await;
    }
}
