//! Two sides that take turns in the order ABBA: operations a second, processor time per operation
//! of the client's process and of the server's, and the interval of their ratio.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use semel::core::clock::SystemTime;

use semel_bench_core::report::{Cpu, Row, median};

use crate::cpu;
use crate::interval::interval;

/// Concurrent callers, unless a row says otherwise.
pub(crate) const CALLERS: usize = 64;
/// The shortest turn. Short, so that whatever else the machine does falls on both sides of a pair.
const TURN: Duration = Duration::from_millis(100);
/// A turn has at least so many mean latencies, so that what is left open at its end doesn't count.
const LATENCIES: u32 = 50;
const LONGEST_TURN: Duration = Duration::from_secs(2);
/// Pairs of turns, and turns of each side that don't count: connections are made, statements
/// prepared and plans chosen before anything counts.
const PAIRS: usize = 40;
const WARM_UP: usize = 10;

/// Who calls, and which server answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) callers: usize,
    /// The server's process, where there is one on this machine. Its children count as well.
    pub(crate) server: Option<u32>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            callers: CALLERS,
            server: None,
        }
    }
}

/// What a turn has shown.
#[derive(Clone, Copy)]
struct Turn {
    rate: f64,
    client: f64,
    server: f64,
}

impl Setup {
    pub(crate) const fn of_server(server: u32) -> Self {
        Self {
            callers: CALLERS,
            server: Some(server),
        }
    }

    pub(crate) const fn with_callers(self, callers: usize) -> Self {
        Self { callers, ..self }
    }

    /// The medians of both sides, the median of the pairs' ratios and its 95 % interval. The
    /// target is met if the whole interval is on its side.
    pub(crate) async fn compare<A, B, FutA, FutB>(
        self,
        name: String,
        target: Option<f64>,
        ours: A,
        bare: B,
    ) -> anyhow::Result<Row>
    where
        A: Fn(u64) -> FutA + Send + Sync + 'static,
        B: Fn(u64) -> FutB + Send + Sync + 'static,
        FutA: Future<Output = anyhow::Result<()>> + Send,
        FutB: Future<Output = anyhow::Result<()>> + Send,
    {
        eprintln!("measuring: {name}");
        let (ours, bare, next) = (Arc::new(ours), Arc::new(bare), Arc::new(AtomicU64::new(0)));
        let mut length = TURN;
        for _ in 0..WARM_UP {
            let ours = self.turn(&ours, &next, TURN).await?;
            let bare = self.turn(&bare, &next, TURN).await?;
            let latency = self.callers as f64 / ours.rate.min(bare.rate);
            let wanted = Duration::from_secs_f64(latency).saturating_mul(LATENCIES);
            length = wanted.clamp(TURN, LONGEST_TURN);
        }
        let (mut ours_turns, mut bare_turns) = (Vec::new(), Vec::new());
        for pair in 0..PAIRS {
            if pair % 2 == 0 {
                ours_turns.push(self.turn(&ours, &next, length).await?);
                bare_turns.push(self.turn(&bare, &next, length).await?);
            } else {
                bare_turns.push(self.turn(&bare, &next, length).await?);
                ours_turns.push(self.turn(&ours, &next, length).await?);
            }
        }
        let pairs = ours_turns.iter().zip(&bare_turns);
        let ratios: Vec<f64> = pairs.map(|(ours, bare)| ours.rate / bare.rate).collect();
        let of = |turns: &[Turn], part: fn(&Turn) -> f64| median(turns.iter().map(part).collect());
        let cpu = |turns: &[Turn]| Cpu {
            client: of(turns, |turn| turn.client),
            server: self.server.map(|_| of(turns, |turn| turn.server)),
        };
        let (our_rate, bare_rate) = (
            of(&ours_turns, |turn| turn.rate),
            of(&bare_turns, |turn| turn.rate),
        );
        let row = Row::at_least(name, "/s", our_rate, bare_rate, target);
        let row = row.with_interval(median(ratios.clone()), interval(&ratios));
        Ok(row.with_cpu(cpu(&ours_turns), cpu(&bare_turns)))
    }

    async fn turn<F, Fut>(
        self,
        operation: &Arc<F>,
        next: &Arc<AtomicU64>,
        length: Duration,
    ) -> anyhow::Result<Turn>
    where
        F: Fn(u64) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = anyhow::Result<()>> + Send,
    {
        let spent = || -> anyhow::Result<(u64, u64)> {
            let server = self.server.map_or(Ok(0), cpu::nanoseconds_with_children)?;
            Ok((cpu::nanoseconds(std::process::id())?, server))
        };
        let before = spent()?;
        let clock = SystemTime::default();
        let began = clock.now();
        let callers: Vec<_> = (0..self.callers)
            .map(|_| {
                let (operation, next) = (Arc::clone(operation), Arc::clone(next));
                tokio::spawn(async move {
                    let mut done = 0_u64;
                    while clock.now().since(began) < length {
                        operation(next.fetch_add(1, Ordering::Relaxed)).await?;
                        done += 1;
                    }
                    anyhow::Ok(done)
                })
            })
            .collect();
        let mut done = 0;
        for caller in callers {
            done += caller.await??;
        }
        let took = clock.now().since(began).as_secs_f64();
        let after = spent()?;
        let done = done as f64;
        let each = |before: u64, after: u64| after.saturating_sub(before) as f64 / 1_000.0 / done;
        Ok(Turn {
            rate: done / took,
            client: each(before.0, after.0),
            server: each(before.1, after.1),
        })
    }
}
