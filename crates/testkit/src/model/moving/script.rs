//! A scripted store for shipped code that makes several calls: the code runs again with all replies
//! so far, and its first call without a reply is its next step.

use std::collections::VecDeque;
use std::future::{Future, pending, ready};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use semel_core::clock::Sleep;
use semel_core::diagnosis::Finding;
use semel_core::store::{Connections, Page, Query, Stats, Wake};
use semel_core::wake::{Hub, Wakeup};
use semel_core::{
    BoxFuture, Busy, Capabilities, Certainty, Claim, Claimed, Clock, Digest, Fence, Grant,
    Identity, InDoubt, Mismatch, Record, Renewed, Replay, Resolution, Resolved, Restored, Settled,
    Settlement, State, Store, StoreAdmin, StoreError, StoreErrorKind, StoreResult, Tick, Timestamp,
    Token,
};
use semel_stores::compose::BodyStore;

use super::super::codec::{self, Codec, answer, answer_no, fence_no, small};
use super::world::{Call, CopyReply, How, Place, Sent};
use semel_conformance::clock::FakeClock;

/// What was said so far, and what is asked next.
pub(super) struct Script {
    codec: Arc<Codec>,
    lines: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    said: VecDeque<CopyReply>,
    asked: Option<Sent>,
}

/// One of the places, as the script has it.
pub(super) struct Scripted {
    script: Arc<Script>,
    place: Place,
}

impl Script {
    pub(super) fn new(codec: &Arc<Codec>, said: &[CopyReply]) -> Arc<Self> {
        let said = said.iter().copied().collect();
        let lines = Mutex::new(Lines { said, asked: None });
        let codec = Arc::clone(codec);
        Arc::new(Self { codec, lines })
    }

    pub(super) fn store(self: &Arc<Self>, place: Place) -> Arc<Scripted> {
        let script = Arc::clone(self);
        Arc::new(Scripted { script, place })
    }

    /// Runs `work` as far as it gets: to its end, or to the call it makes next.
    pub(super) fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Sent> {
        let mut work = std::pin::pin!(work);
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(end) => Ok(end),
            Poll::Pending => Err(self.lines.lock().asked.expect("it waits for a call")),
        }
    }
}

impl Scripted {
    /// What was said to this call; never, where nothing has been yet.
    fn ask<'a, T: Send + 'a>(
        &self,
        call: Call,
        hear: impl FnOnce(&Codec, CopyReply) -> T,
    ) -> BoxFuture<'a, StoreResult<T>> {
        let mut lines = self.script.lines.lock();
        match lines.said.pop_front() {
            Some(CopyReply::Failed { definite }) => Box::pin(ready(Err(failure(definite)))),
            Some(said) => Box::pin(ready(Ok(hear(&self.script.codec, said)))),
            None => {
                let to = self.place;
                lines.asked = Some(Sent { to, call });
                Box::pin(pending())
            }
        }
    }
}

fn failure(definite: bool) -> StoreError {
    let certainty = if definite {
        Certainty::Definite
    } else {
        Certainty::Unknown
    };
    StoreError::new(StoreErrorKind::Unavailable, certainty, "no answer")
}

impl Store for Scripted {
    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, StoreResult<Claimed>> {
        let token = small(claim.token.0);
        self.ask(Call::Claim { token }, |codec, said| {
            claimed(codec, token, said)
        })
    }

    fn renew<'a>(
        &'a self,
        lease: &'a Grant,
        checkpoint: Option<&'a Bytes>,
    ) -> BoxFuture<'a, StoreResult<Renewed>> {
        let call = Call::Renew {
            token: small(lease.token.0),
            fence: fence_no(lease.fence),
            checkpoint: checkpoint.is_some(),
        };
        self.ask(call, |_, said| match said {
            CopyReply::Yes => Renewed::Held,
            _ => Renewed::Lost,
        })
    }

    fn settle<'a>(
        &'a self,
        lease: &'a Grant,
        settlement: &'a Settlement,
    ) -> BoxFuture<'a, StoreResult<Settled>> {
        let call = Call::Settle {
            token: small(lease.token.0),
            fence: fence_no(lease.fence),
            how: how(settlement),
        };
        self.ask(call, |_, said| match said {
            CopyReply::Yes => Settled::Done,
            _ => Settled::Lost,
        })
    }

    fn resolve<'a>(
        &'a self,
        _identity: &'a Identity,
        fence: Fence,
        resolution: &'a Resolution,
    ) -> BoxFuture<'a, StoreResult<Resolved>> {
        let call = Call::Resolve {
            fence: fence_no(fence),
            how: how(&resolution.clone().into()),
        };
        self.ask(call, |_, said| match said {
            CopyReply::Yes => Resolved::Done,
            _ => Resolved::NotInDoubt,
        })
    }

    fn read<'a>(&'a self, _identity: &'a Identity) -> BoxFuture<'a, StoreResult<Option<Record>>> {
        self.ask(Call::Read, |codec, said| match said {
            CopyReply::Found(row) => row.map(|row| codec.record(&row)),
            other => panic!("{other:?} to a read"),
        })
    }

    fn watch(&self, identity: &Identity) -> Wakeup {
        Hub::new().watch(identity)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new("scripted")
            .with_durable(true)
            .with_shared(true)
            .with_wake(Wake::Never)
            .with_lists_once(true)
            .with_max_answer_bytes(1024)
    }
}

/// No model asks for the rest.
fn unasked<T>() -> T {
    unreachable!("nothing that is modelled asks this")
}

impl StoreAdmin for Scripted {
    fn list<'a>(&'a self, _query: &'a Query) -> BoxFuture<'a, StoreResult<Page>> {
        unasked()
    }

    fn delete<'a>(&'a self, _identity: &'a Identity) -> BoxFuture<'a, StoreResult<bool>> {
        unasked()
    }

    fn restore<'a>(
        &'a self,
        _identity: &'a Identity,
        record: &'a Record,
    ) -> BoxFuture<'a, StoreResult<Restored>> {
        let row = self.script.codec.row(record);
        self.ask(Call::Restore { row }, |_, said| match said {
            CopyReply::Yes => Restored::Written,
            _ => Restored::Kept,
        })
    }

    fn sweep(&self, _most: usize) -> BoxFuture<'_, StoreResult<usize>> {
        unasked()
    }

    fn expired(&self, _most: usize) -> BoxFuture<'_, StoreResult<usize>> {
        unasked()
    }

    fn now(&self) -> BoxFuture<'_, StoreResult<Timestamp>> {
        unasked()
    }

    fn stats(&self) -> BoxFuture<'_, StoreResult<Stats>> {
        unasked()
    }

    fn connections(&self) -> Option<Connections> {
        None
    }

    fn diagnose(&self) -> BoxFuture<'_, StoreResult<Vec<Finding>>> {
        unasked()
    }
}

impl BodyStore for Scripted {
    fn put<'a>(
        &'a self,
        _identity: &'a Identity,
        digest: &'a Digest,
        _body: Bytes,
    ) -> BoxFuture<'a, StoreResult<()>> {
        let answer = codec::of_digest(digest);
        self.ask(Call::Put { answer }, |_, _| ())
    }

    fn get<'a>(
        &'a self,
        _identity: &'a Identity,
        digest: &'a Digest,
    ) -> BoxFuture<'a, StoreResult<Option<Bytes>>> {
        let answer = codec::of_digest(digest);
        self.ask(Call::Get { answer }, |_, said| match said {
            CopyReply::Body(body) => body.map(|(answer, as_it_was)| {
                if as_it_was {
                    codec::body(answer)
                } else {
                    Bytes::from_static(b"something else")
                }
            }),
            other => panic!("{other:?} to a body"),
        })
    }

    fn forget<'a>(&'a self, _identity: &'a Identity) -> BoxFuture<'a, StoreResult<()>> {
        unasked()
    }
}

fn claimed(codec: &Codec, token: u8, said: CopyReply) -> Claimed {
    let ask = codec.claim(token);
    match said {
        CopyReply::Won {
            fence,
            attempt,
            checkpoint,
            crash,
        } => Claimed::Won(Grant {
            identity: ask.identity,
            fence: Fence(u64::from(fence)),
            token: ask.token,
            attempt: u16::from(attempt),
            checkpoint: codec::checkpoint(checkpoint).unwrap_or_default(),
            lease: ask.terms.lease(),
            crash,
            memo: Bytes::new(),
        }),
        CopyReply::Busy => Claimed::Busy(Busy {
            since: Duration::ZERO,
            attempt: 1,
            retry_after: Duration::ZERO,
        }),
        CopyReply::Replay {
            answer: number,
            failed,
        } => Claimed::Replay(Replay {
            state: if failed {
                State::Failed
            } else {
                State::Completed
            },
            answer: answer(number),
            attempt: 1,
            fence: Fence(1),
            token: Token(0),
            requested_at: codec::time(0),
            settled_at: codec::time(0),
            expires_in: Duration::ZERO,
        }),
        CopyReply::Mismatch => Claimed::Mismatch(Mismatch::local(ask.fingerprint)),
        CopyReply::InDoubt { fence } => Claimed::InDoubt(InDoubt {
            fence: Fence(u64::from(fence)),
            attempt: 1,
            checkpoint: Bytes::new(),
        }),
        other => panic!("{other:?} to a claim"),
    }
}

fn how(settlement: &Settlement) -> How {
    match settlement {
        Settlement::Complete(answer) => How::Complete(answer_no(answer)),
        Settlement::Fail(answer) => How::Fail(answer_no(answer)),
        Settlement::Release => How::Release,
        Settlement::Doubt => How::Doubt,
    }
}

impl How {
    pub(super) fn settlement(self) -> Settlement {
        match self {
            Self::Complete(number) => Settlement::Complete(answer(number)),
            Self::Fail(number) => Settlement::Fail(answer(number)),
            Self::Release => Settlement::Release,
            Self::Doubt => Settlement::Doubt,
        }
    }

    pub(super) fn resolution(self) -> Resolution {
        match self {
            Self::Complete(number) => Resolution::Complete(answer(number)),
            Self::Fail(number) => Resolution::Fail(answer(number)),
            Self::Release => Resolution::Release,
            Self::Doubt => unreachable!("a doubt ends no doubt"),
        }
    }
}

/// Time stands still while the shipped code runs: nothing is too late by itself, the network
/// decides that.
pub(super) struct Still(pub(super) FakeClock);

impl Clock for Still {
    fn now(&self) -> Tick {
        self.0.now()
    }

    fn wall(&self) -> Timestamp {
        self.0.wall()
    }

    fn sleep(&self, _for_time: Duration) -> Sleep {
        Box::pin(pending())
    }
}
