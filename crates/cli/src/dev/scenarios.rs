//! The five scenarios, as the client of the story plays them, and what came of each.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;

use super::run::{Crash, Event, Kind, Lane, Run, Scenario, Tone, Verdict};
use super::sidecar::Sidecar;
use super::stage::{Asked, Call, Stage};

/// What an order costs.
const CENTS: u32 = 1900;
/// Another sum under the same key.
const OTHER_CENTS: u32 = 9900;
const TEN: usize = 10;
/// How long after the beginning of an effect its owner is killed, in milliseconds.
const INTO_THE_EFFECT: u64 = 350;
/// How long the client waits before it retries, in milliseconds.
const BEFORE_RETRY: u64 = 450;

impl Stage {
    /// Begins a scenario. `None` while another one runs.
    pub(super) fn begin(self: &Arc<Self>, asked: Asked) -> Option<u32> {
        if self.is_busy.swap(true, Ordering::AcqRel) {
            return None;
        }
        let run = self.new_run(asked);
        let number = run.number;
        self.board.begin(run.clone());
        let stage = Arc::clone(self);
        tokio::spawn(async move {
            let is_ready = stage.get_ready(number).await;
            if is_ready {
                stage.play(run).await;
                stage.finish(number).await;
            }
            stage.is_busy.store(false, Ordering::Release);
            stage.board.change(number, |run| run.is_done = true);
        });
        Some(number)
    }

    /// Sends the request of an earlier run once more. `None` while another one runs.
    pub(super) fn retry(self: &Arc<Self>, number: u32) -> Option<u32> {
        let run = self.board.run(number)?;
        if self.is_busy.swap(true, Ordering::AcqRel) {
            return None;
        }
        self.board.change(number, |run| run.is_done = false);
        let stage = Arc::clone(self);
        tokio::spawn(async move {
            let call = stage.call(&run, Lane::B, CENTS);
            stage.note_request(&call, "the same request");
            stage.send(&call, false).await;
            stage.finish(number).await;
            stage.is_busy.store(false, Ordering::Release);
            stage.board.change(number, |run| run.is_done = true);
        });
        Some(number)
    }

    /// Waits until both sidecars run and their events are followed.
    async fn get_ready(&self, number: u32) -> bool {
        let clock = &self.board.clock;
        for sidecar in [&self.a, &self.b] {
            if sidecar.revive(clock).await.is_err() {
                let verdict = Verdict {
                    tone: Tone::Bad,
                    text: "A sidecar could not be started again. End semel dev with Ctrl-C, and start it anew.".to_owned(),
                    record: None,
                };
                self.board.change(number, |run| run.verdict = Some(verdict));
                return false;
            }
            for _ in 0..100 {
                if sidecar.is_followed.load(Ordering::Relaxed) {
                    break;
                }
                self.pause(20).await;
            }
        }
        let now = self.board.wall_ms();
        self.board.change(number, |run| run.began = now);
        true
    }

    async fn play(&self, run: Run) {
        match run.scenario {
            Scenario::Send => {
                self.ask(&self.call(&run, Lane::A, CENTS), "charge $19", false)
                    .await;
            }
            Scenario::LostReply => {
                let call = self.call(&run, Lane::A, CENTS);
                self.ask(&call, "charge $19", true).await;
                self.pause(BEFORE_RETRY / 2).await;
                self.note_client(run.number, "no reply");
                self.pause(BEFORE_RETRY / 2).await;
                self.ask(&call, "charge $19, again", false).await;
            }
            Scenario::OtherPayload => {
                self.ask(&self.call(&run, Lane::A, CENTS), "charge $19", false)
                    .await;
                self.pause(BEFORE_RETRY).await;
                let other = self.call(&run, Lane::A, OTHER_CENTS);
                self.ask(&other, "same key, charge $99", false).await;
            }
            Scenario::Ten => self.ten_at_once(&run).await,
            Scenario::Kill if run.with_semel => self.kill_the_owner(&run).await,
            Scenario::Kill => self.cut_the_connection(&run).await,
        }
    }

    async fn ask(&self, call: &Call, label: &str, is_lost: bool) {
        self.note_request(call, label);
        self.send(call, is_lost).await;
    }

    async fn ten_at_once(&self, run: &Run) {
        let call = self.call(run, Lane::A, CENTS);
        for _ in 0..TEN {
            self.note_request(&call, "charge $19");
        }
        let all = join_all((0..TEN).map(|_| self.send(&call, false)));
        if run.with_semel {
            self.while_watched(run.number, &self.a, all).await;
        } else {
            all.await;
        }
    }

    /// Awaits replies, and meanwhile notes how many requests wait in a sidecar.
    async fn while_watched<T>(
        &self,
        run: u32,
        sidecar: &Sidecar,
        replies: impl Future<Output = T>,
    ) {
        tokio::select! {
            _ = replies => {}
            () = async {
                self.watch_waiting(run, sidecar).await;
                std::future::pending::<()>().await;
            } => {}
        }
    }

    /// The sidecar that runs the request is killed; the client retries through the other one.
    async fn kill_the_owner(&self, run: &Run) {
        let label = match run.crash {
            Crash::Hold => "charge $19",
            Crash::Takeover => "write the receipt",
        };
        let call = self.call(run, Lane::A, CENTS);
        self.note_request(&call, label);
        let killed = async {
            self.board
                .until(run.number, |run| run.effects().0 > 0)
                .await;
            self.pause(INTO_THE_EFFECT).await;
            self.note_kill(run.number);
            self.a.kill().await;
        };
        tokio::join!(killed, self.send(&call, false));
        self.pause(BEFORE_RETRY).await;
        let again = self.call(run, Lane::B, CENTS);
        self.note_request(&again, &format!("{label}, again"));
        let replied = self.send(&again, false);
        self.while_watched(run.number, &self.b, replied).await;
        if self.a.revive(&self.board.clock).await.is_ok() {
            let event = Event::note(Kind::Note, Lane::A, Tone::Calm, "started again");
            self.board.note(run.number, event);
        }
    }

    fn note_kill(&self, run: u32) {
        let event = Event::note(Kind::Kill, Lane::A, Tone::Bad, "killed");
        self.board.note(run, event);
    }

    /// The same without Semel: the connection breaks while the effect runs, and the client retries.
    async fn cut_the_connection(&self, run: &Run) {
        let call = self.call(run, Lane::A, CENTS);
        self.note_request(&call, "charge $19");
        tokio::select! {
            _ = self.send(&call, false) => {}
            () = async {
                self.board.until(run.number, |run| run.effects().0 > 0).await;
                self.pause(INTO_THE_EFFECT).await;
                self.note_broken(&call);
            } => {}
        }
        self.pause(BEFORE_RETRY).await;
        self.ask(&call, "charge $19, again", false).await;
    }

    /// Waits until every effect has ended and its events have arrived, then says what came of it.
    async fn finish(&self, number: u32) {
        let is_over = |run: &Run| run.effects().0 == run.effects().1;
        self.board.until(number, is_over).await;
        self.pause(150).await;
        let Some(run) = self.board.run(number) else {
            return;
        };
        let payments = match run.with_semel {
            true => &self.behind,
            false => &self.bare,
        };
        let charges = payments.charges().get(&run.order).copied().unwrap_or(0);
        let dashboard = format!("http://{}/#/keys/{}", self.b.admin, run.id);
        let verdict = verdict(&run, charges, dashboard);
        self.board.change(number, |run| run.verdict = Some(verdict));
    }
}

/// What came of a run, in words.
fn verdict(run: &Run, charges: u32, dashboard: String) -> Verdict {
    let requests = run
        .events
        .iter()
        .filter(|event| event.kind == Kind::Request)
        .count();
    let is_in_doubt = run.replies.last().is_some_and(|reply| reply.status == 409);
    let (tone, more) = match (run.with_semel, run.scenario) {
        (true, Scenario::Kill) if is_in_doubt => (
            Tone::Warn,
            "Semel will not charge again until you resolve it.",
        ),
        (true, Scenario::Kill) if run.crash == Crash::Takeover => (
            Tone::Good,
            "The lease lapsed, and Semel B ran the request again, as takeover allows.",
        ),
        (true, Scenario::Kill) if charges > 1 => (
            Tone::Warn,
            "The key was released although the first charge was made.",
        ),
        (true, Scenario::Kill) => (Tone::Good, "The record is resolved."),
        (true, _) if charges > 1 => (Tone::Bad, "This should not happen; please report it."),
        (true, Scenario::Send) => (Tone::Good, "The response is stored under its key."),
        (true, Scenario::LostReply) => (Tone::Good, "The retry got the stored response."),
        (true, Scenario::OtherPayload) => (
            Tone::Good,
            "A key belongs to one payload; the other one was refused.",
        ),
        (true, Scenario::Ten) => (
            Tone::Good,
            "One ran; the others waited and got the same response.",
        ),
        (false, _) if charges > 1 => (Tone::Bad, "The customer paid more than once."),
        (false, _) => (Tone::Good, "Nothing went wrong this time."),
    };
    let count = |number: usize, thing: &str| match number {
        1 => format!("1 {thing}"),
        many => format!("{many} {thing}s"),
    };
    let done = match run.crash {
        Crash::Hold => count(charges as usize, "charge"),
        Crash::Takeover => count(run.effects().1, "run"),
    };
    Verdict {
        tone,
        text: format!("{}, {done}. {more}", count(requests, "request")),
        record: is_in_doubt.then_some(dashboard),
    }
}
