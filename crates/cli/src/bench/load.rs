//! Load generator: callers that claim and settle, or replay.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use semel::core::{Identity, Key, Namespace};
use semel::{KeyRules, Semel};

use super::subject::Subject;
use crate::exit::{self, Exit};

const SCOPE: &str = "bench";
/// The largest number of records that a bench writes: enough for a stable figure, few enough to
/// remove.
const MOST: u64 = 200_000;

pub(super) struct Load<'a> {
    subject: &'a Subject,
    pub(super) concurrency: u32,
    /// Keeps two benches on one store apart.
    run: u64,
    /// The number of records written so far.
    made: Arc<AtomicU64>,
    /// The number of the first record with a full body.
    whole: u64,
}

/// What the callers achieved.
#[derive(Debug, Default)]
pub(super) struct Measurement {
    pub(super) count: u64,
    elapsed: Duration,
    times: Vec<Duration>,
}

impl Measurement {
    pub(super) fn per_second(&self) -> f64 {
        self.count as f64 / self.elapsed.as_secs_f64().max(0.001)
    }

    pub(super) fn mean_ms(&self) -> f64 {
        let sum: Duration = self.times.iter().sum();
        sum.as_secs_f64() * 1000.0 / self.count.max(1) as f64
    }

    pub(super) fn p99_ms(&self) -> f64 {
        let at = self.times.len() * 99 / 100;
        let time = self.times.get(at).or(self.times.last());
        time.map_or(0.0, |time| time.as_secs_f64() * 1000.0)
    }
}

impl<'a> Load<'a> {
    pub(super) fn new(subject: &'a Subject, concurrency: u32) -> Self {
        let run = u64::try_from(subject.env.entropy.next_u128() >> 64).unwrap_or_default();
        Self {
            subject,
            concurrency,
            run,
            made: Arc::new(AtomicU64::new(0)),
            whole: 0,
        }
    }

    fn name(run: u64, number: u64) -> String {
        format!("{run:016x}-{number}")
    }

    /// Claims and settles unused keys.
    pub(super) async fn fresh(
        &mut self,
        concurrency: u32,
        body: u64,
        time: Duration,
    ) -> Result<Measurement, Exit> {
        self.whole = self.made.load(Ordering::Relaxed);
        let (run, made) = (self.run, Arc::clone(&self.made));
        let text = self.text(body);
        self.drive(concurrency, time, move |semel| {
            let (made, text) = (Arc::clone(&made), text.clone());
            async move {
                let number = made.fetch_add(1, Ordering::Relaxed);
                if number >= MOST {
                    return Ok(false);
                }
                let key = Self::name(run, number);
                let effect = |_| async move { Ok::<_, std::io::Error>(text) };
                let run_semel = semel
                    .operation(SCOPE)
                    .key(&key)
                    .payload(&number)
                    .run(effect)
                    .await;
                run_semel.map(|_| true).map_err(|error| error.to_string())
            }
        })
        .await
    }

    /// Replays used keys from their records.
    pub(super) async fn replays(&self, time: Duration) -> Result<Measurement, Exit> {
        let (run, first) = (self.run, self.whole);
        let count = self
            .made
            .load(Ordering::Relaxed)
            .min(MOST)
            .saturating_sub(first)
            .max(1);
        let next = Arc::new(AtomicU64::new(0));
        self.drive(self.concurrency, time, move |semel| {
            let next = Arc::clone(&next);
            async move {
                let number = first + next.fetch_add(1, Ordering::Relaxed) % count;
                let key = Self::name(run, number);
                let effect = |_| async move { Ok::<_, std::io::Error>(String::new()) };
                let run_semel = semel
                    .operation(SCOPE)
                    .key(&key)
                    .payload(&number)
                    .run(effect)
                    .await;
                match run_semel {
                    Ok(answer) if answer.replayed => Ok(true),
                    Ok(_) => Err("a record expired before it was replayed".to_owned()),
                    Err(error) => Err(error.to_string()),
                }
            }
        })
        .await
    }

    /// Runs `work` with `concurrency` callers until the time is up, or until there is no more work.
    async fn drive<F, W>(
        &self,
        concurrency: u32,
        time: Duration,
        work: W,
    ) -> Result<Measurement, Exit>
    where
        F: Future<Output = Result<bool, String>> + Send + 'static,
        W: Fn(Semel) -> F + Clone + Send + Sync + 'static,
    {
        let clock = Arc::clone(&self.subject.env.clock);
        let began = clock.now();
        let callers = (0..concurrency).map(|_| {
            let (clock, work) = (Arc::clone(&clock), work.clone());
            let semel = self.subject.semel.clone();
            tokio::spawn(async move {
                let mut times = Vec::new();
                loop {
                    let start = clock.now();
                    if start.since(began) >= time {
                        return Ok(times);
                    }
                    match work(semel.clone()).await {
                        Ok(true) => times.push(clock.now().since(start)),
                        Ok(false) => return Ok(times),
                        Err(why) => return Err(why),
                    }
                }
            })
        });
        let mut measured = Measurement::default();
        for caller in callers.collect::<Vec<_>>() {
            let times = caller
                .await
                .map_err(|error| Exit::failed(exit::UNEXPECTED, error.to_string()))?;
            measured
                .times
                .extend(times.map_err(|why| Exit::failed(exit::STORE, why))?);
        }
        measured.elapsed = clock.now().since(began);
        measured.times.sort_unstable();
        measured.count = measured.times.len() as u64;
        Ok(measured)
    }

    /// A body that no store can compress.
    fn text(&self, bytes: u64) -> String {
        let mut text = String::new();
        while (text.len() as u64) < bytes {
            text.push_str(&format!("{:032x}", self.subject.env.entropy.next_u128()));
        }
        text.truncate(usize::try_from(bytes).unwrap_or_default());
        text
    }

    /// Removes the written records. What remains expires by itself.
    pub(super) async fn remove(&self) {
        let semel = &self.subject.semel;
        let Ok(namespace) = Namespace::new(semel.environment(), "", SCOPE) else {
            return;
        };
        let made = self.made.load(Ordering::Relaxed).min(MOST);
        let all = stream::iter(0..made).for_each_concurrent(64, |number| {
            let key = KeyRules::default().check(&Self::name(self.run, number));
            let identity = key
                .ok()
                .map(|key: Key| Identity::new(semel.engine().secret(), &namespace, &key));
            async move {
                if let Some(identity) = identity {
                    let _ = semel.store().delete(&identity).await;
                }
            }
        });
        all.await;
    }
}
