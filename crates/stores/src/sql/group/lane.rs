//! A queue of calls that may share statements.

use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use semel_core::identity::Address;
use semel_core::store::StoreResult;
use semel_core::{Certainty, StoreError};
use tokio::sync::oneshot;

use crate::cas::unknown_if;

/// The most calls in a batch.
const MOST_AT_ONCE: usize = 64;
/// The most calls in a queue. When it is full, callers run by themselves.
const MOST_WAITING: usize = 4096;

/// A call that can share a statement with calls of other keys.
pub(crate) trait Shareable {
    /// The key. A batch has one call of a key at most.
    fn address(&self) -> Address;
}

/// What a batch did for one call.
pub(crate) enum Shared<A> {
    /// The answer.
    Done(A),
    /// Nothing that is known: the caller makes the call by itself.
    Alone {
        /// Whether the batch may have been applied.
        is_uncertain: bool,
    },
}

/// A call in the queue.
pub(crate) struct Waiting<T, A> {
    pub(crate) call: T,
    reply: oneshot::Sender<Shared<A>>,
}

impl<T, A> Waiting<T, A> {
    pub(crate) fn answer(self, shared: Shared<A>) {
        // A caller that has left needs no answer.
        let _ = self.reply.send(shared);
    }
}

/// Each caller tries by itself what failed for all.
pub(crate) fn leave_alone<T, A>(batch: Vec<Waiting<T, A>>, error: &StoreError) {
    let is_uncertain = error.certainty == Certainty::Unknown;
    for waiting in batch {
        waiting.answer(Shared::Alone { is_uncertain });
    }
}

/// Calls that may share statements.
pub(crate) struct Lane<T, A>(Mutex<State<T, A>>);

struct State<T, A> {
    /// How many calls run by themselves.
    alone: usize,
    /// Whether a task empties the queue.
    is_emptied: bool,
    waiting: VecDeque<Waiting<T, A>>,
}

/// How a call goes on.
enum Entry<T, A> {
    Alone,
    Queued {
        reply: oneshot::Receiver<Shared<A>>,
        /// This caller has to start the task that empties the queue.
        emptier: Option<Emptier<T, A>>,
    },
}

impl<T: Shareable, A> Lane<T, A> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(State {
            alone: 0,
            is_emptied: false,
            waiting: VecDeque::new(),
        }))
    }

    /// Makes a call: with `alone`, or in a batch of a task that `empty` starts. `alone` can be
    /// awaited after a batch as well, so it must give the same answer if the call was made already.
    pub(crate) async fn call<F>(
        self: &Arc<Self>,
        call: impl FnOnce() -> T,
        alone: impl FnOnce() -> F,
        empty: impl FnOnce(Emptier<T, A>),
    ) -> StoreResult<A>
    where
        F: Future<Output = StoreResult<A>>,
    {
        let (reply, emptier) = match self.enter(call) {
            Entry::Alone => {
                let _turn = Turn(self);
                return alone().await;
            }
            Entry::Queued { reply, emptier } => (reply, emptier),
        };
        if let Some(emptier) = emptier {
            empty(emptier);
        }
        let is_uncertain = match reply.await {
            Ok(Shared::Done(answer)) => return Ok(answer),
            Ok(Shared::Alone { is_uncertain }) => is_uncertain,
            // The task was ended, perhaps in the middle of a statement.
            Err(_) => true,
        };
        alone()
            .await
            .map_err(|error| unknown_if(is_uncertain, error))
    }

    fn enter(self: &Arc<Self>, call: impl FnOnce() -> T) -> Entry<T, A> {
        let mut state = self.0.lock();
        let meets_nobody = state.alone == 0 && !state.is_emptied;
        if meets_nobody || state.waiting.len() >= MOST_WAITING {
            state.alone += 1;
            return Entry::Alone;
        }
        let (sender, reply) = oneshot::channel();
        state.waiting.push_back(Waiting {
            call: call(),
            reply: sender,
        });
        let is_first = !std::mem::replace(&mut state.is_emptied, true);
        let emptier = is_first.then(|| Emptier {
            lane: Arc::clone(self),
            is_done: false,
        });
        Entry::Queued { reply, emptier }
    }

    /// The next calls, of different keys. Those of callers that have left are dropped.
    fn next_batch(&self) -> Option<Vec<Waiting<T, A>>> {
        let mut state = self.0.lock();
        let mut batch: Vec<Waiting<T, A>> = Vec::new();
        let mut keys = HashSet::new();
        while batch.len() < MOST_AT_ONCE
            && let Some(waiting) = state.waiting.pop_front()
        {
            if waiting.reply.is_closed() {
                continue;
            }
            match keys.insert(waiting.call.address()) {
                true => batch.push(waiting),
                false => waiting.answer(Shared::Alone {
                    is_uncertain: false,
                }),
            }
        }
        state.is_emptied = !batch.is_empty();
        (!batch.is_empty()).then_some(batch)
    }
}

/// A call that runs by itself; ends with its caller.
struct Turn<'a, T, A>(&'a Lane<T, A>);

impl<T, A> Drop for Turn<'_, T, A> {
    fn drop(&mut self) {
        self.0.0.lock().alone -= 1;
    }
}

/// The right to empty the queue. If it is dropped early, as when its task is ended, those who wait
/// are let go.
pub(crate) struct Emptier<T, A> {
    lane: Arc<Lane<T, A>>,
    /// `next_batch` has found the queue empty, and has let the next caller start another task.
    is_done: bool,
}

impl<T: Shareable, A> Emptier<T, A> {
    /// Runs all calls that wait, a batch at a time.
    pub(crate) async fn run<F>(mut self, mut run: impl FnMut(Vec<Waiting<T, A>>) -> F)
    where
        F: Future<Output = ()>,
    {
        while let Some(batch) = self.lane.next_batch() {
            run(batch).await;
        }
        self.is_done = true;
    }
}

impl<T, A> Drop for Emptier<T, A> {
    fn drop(&mut self) {
        if !self.is_done {
            let mut state = self.lane.0.lock();
            state.is_emptied = false;
            state.waiting.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use semel_core::StoreErrorKind;
    use tokio::sync::Notify;

    use super::*;

    struct Call(u8);

    impl Shareable for Call {
        fn address(&self) -> Address {
            [self.0; 16]
        }
    }

    type TestLane = Lane<Call, u8>;

    fn no_answer() -> StoreError {
        StoreError::new(StoreErrorKind::Unavailable, Certainty::Definite, "gone")
    }

    /// Runs a call, with a task that answers each batch as `answer` says.
    async fn call(
        lane: &Arc<TestLane>,
        number: u8,
        alone: impl Future<Output = StoreResult<u8>>,
        answer: fn(u8) -> Shared<u8>,
    ) -> StoreResult<u8> {
        let start = move |emptier: Emptier<Call, u8>| {
            tokio::spawn(emptier.run(move |batch| async move {
                for waiting in batch {
                    let number = waiting.call.0;
                    waiting.answer(answer(number));
                }
            }));
        };
        lane.call(|| Call(number), || alone, start).await
    }

    #[tokio::test]
    async fn lone_call_runs_by_itself() {
        let lane = Arc::new(TestLane::new());
        for _ in 0..2 {
            let answer = call(&lane, 1, async { Ok(7) }, Shared::Done).await;
            assert_eq!(answer.ok(), Some(7));
        }
    }

    #[tokio::test]
    async fn calls_that_meet_another_share_a_batch_and_wait_for_no_lone_call() {
        let lane = Arc::new(TestLane::new());
        let (gate, batches) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
        let first = {
            let (lane, gate) = (Arc::clone(&lane), Arc::clone(&gate));
            tokio::spawn(async move {
                let blocked = async {
                    gate.notified().await;
                    Ok(0)
                };
                call(&lane, 0, blocked, Shared::Done).await
            })
        };
        tokio::task::yield_now().await;
        let others = (1..=40).map(|number| {
            let (lane, batches) = (Arc::clone(&lane), Arc::clone(&batches));
            async move {
                let start = move |emptier: Emptier<Call, u8>| {
                    tokio::spawn(emptier.run(move |batch| {
                        batches.fetch_add(1, Ordering::Relaxed);
                        async move {
                            for waiting in batch {
                                let number = waiting.call.0;
                                waiting.answer(Shared::Done(number));
                            }
                        }
                    }));
                };
                let alone = async { Err(no_answer()) };
                lane.call(|| Call(number), || alone, start).await
            }
        });
        let answers: Vec<_> = join_all(others).await.into_iter().map(Result::ok).collect();
        assert_eq!(answers, (1..=40).map(Some).collect::<Vec<_>>());
        assert_eq!(batches.load(Ordering::Relaxed), 1);
        gate.notify_one();
        assert_eq!(first.await.ok().and_then(Result::ok), Some(0));
    }

    #[tokio::test]
    async fn two_calls_of_one_key_are_never_in_one_batch() {
        let lane = Arc::new(TestLane::new());
        let gate = Arc::new(Notify::new());
        let held = {
            let (lane, gate) = (Arc::clone(&lane), Arc::clone(&gate));
            tokio::spawn(async move {
                let blocked = async {
                    gate.notified().await;
                    Ok(0)
                };
                call(&lane, 9, blocked, Shared::Done).await
            })
        };
        tokio::task::yield_now().await;
        // The first is answered by the batch with 1, the second by itself with 2.
        let one = call(&lane, 1, async { Ok(2) }, Shared::Done);
        let two = call(&lane, 1, async { Ok(2) }, Shared::Done);
        let (one, two) = tokio::join!(one, two);
        assert_eq!((one.ok(), two.ok()), (Some(1), Some(2)));
        gate.notify_one();
        assert!(held.await.is_ok());
    }

    #[tokio::test]
    async fn failed_batch_leaves_each_caller_to_itself() {
        let lane = Arc::new(TestLane::new());
        let gate = Arc::new(Notify::new());
        let held = {
            let (lane, gate) = (Arc::clone(&lane), Arc::clone(&gate));
            tokio::spawn(async move {
                let blocked = async {
                    gate.notified().await;
                    Ok(0)
                };
                call(&lane, 9, blocked, Shared::Done).await
            })
        };
        tokio::task::yield_now().await;
        let fails = |_| Shared::Alone { is_uncertain: true };
        let well = call(&lane, 1, async { Ok(5) }, fails);
        let badly = call(&lane, 2, async { Err(no_answer()) }, fails);
        let (well, badly) = tokio::join!(well, badly);
        assert_eq!(well.ok(), Some(5));
        // The batch may have been applied, so the failure of the call alone proves nothing.
        let certainty = badly.err().map(|error| error.certainty);
        assert_eq!(certainty, Some(Certainty::Unknown));
        gate.notify_one();
        assert!(held.await.is_ok());
    }

    /// A task that takes a batch and is then ended.
    fn start_and_end(emptier: Emptier<Call, u8>) {
        let task = tokio::spawn(emptier.run(|batch| async move {
            let _held = batch;
            std::future::pending::<()>().await;
        }));
        tokio::spawn(async move {
            tokio::task::yield_now().await;
            task.abort();
        });
    }

    #[tokio::test]
    async fn ended_task_lets_those_who_wait_go() {
        let ways = [start_and_end, drop::<Emptier<Call, u8>>];
        for start in ways {
            let lane = Arc::new(TestLane::new());
            let turn = lane.enter(|| Call(9));
            assert!(matches!(turn, Entry::Alone));
            let answer = lane.call(|| Call(1), || async { Ok(6) }, start).await;
            assert_eq!(answer.ok(), Some(6));
            assert!(!lane.0.lock().is_emptied);
        }
    }
}
