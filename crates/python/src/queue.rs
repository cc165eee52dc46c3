//! The class `Queue`: the ends of calls, for one event loop.

use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use semel_embedded::CallOutcome;

use crate::reply::{PyReply, reply_to_python};

/// The ends of calls. Its file descriptor is readable when there are any, so an event loop watches
/// it, and no thread of the runtime needs the GIL.
#[pyclass(frozen, name = "Queue", module = "semel._native")]
pub(crate) struct CompletionQueue {
    ends: Arc<Ends>,
    readable: UnixStream,
}

struct Ends {
    done: Mutex<Vec<(u64, CallOutcome)>>,
    wake: UnixStream,
}

impl Ends {
    fn push(&self, ticket: u64, outcome: CallOutcome) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let was_empty = done.is_empty();
        done.push((ticket, outcome));
        drop(done);
        if was_empty {
            // If it is full, it is readable. If the other end is gone, nobody waits.
            let _ = (&self.wake).write(&[1]);
        }
    }
}

/// A ticket, its kind of end and its reply, as Python gets them.
type PyEnd<'py> = (u64, &'static str, Option<PyReply<'py>>);

#[pymethods]
impl CompletionQueue {
    #[new]
    fn new() -> PyResult<Self> {
        let (readable, wake) = UnixStream::pair()?;
        readable.set_nonblocking(true)?;
        wake.set_nonblocking(true)?;
        let ends = Ends {
            done: Mutex::default(),
            wake,
        };
        Ok(Self {
            ends: Arc::new(ends),
            readable,
        })
    }

    /// The file descriptor to watch.
    fn fileno(&self) -> i32 {
        self.readable.as_raw_fd()
    }

    /// Takes all ends: ticket, `replied`, `timed_out` or `closed`, and the reply.
    fn drain<'py>(&self, py: Python<'py>) -> PyResult<Vec<PyEnd<'py>>> {
        let mut bytes = [0; 64];
        while let Ok(1..) = (&self.readable).read(&mut bytes) {}
        let mut done = self
            .ends
            .done
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let ends = std::mem::take(&mut *done);
        drop(done);
        ends.into_iter()
            .map(|(ticket, outcome)| {
                Ok(match outcome {
                    CallOutcome::Replied(reply) => {
                        (ticket, "replied", Some(reply_to_python(&reply, py)?))
                    }
                    CallOutcome::TimedOut => (ticket, "timed_out", None),
                    CallOutcome::Closed => (ticket, "closed", None),
                })
            })
            .collect()
    }
}

impl CompletionQueue {
    /// The end of the call under `ticket`, which is told even if its task is dropped.
    pub(crate) fn begin(&self, ticket: u64) -> Completion {
        Completion {
            ends: Arc::clone(&self.ends),
            ticket,
            told: false,
        }
    }
}

/// The end of a call that is under way.
pub(crate) struct Completion {
    ends: Arc<Ends>,
    ticket: u64,
    told: bool,
}

impl Completion {
    pub(crate) fn finish(mut self, outcome: CallOutcome) {
        self.told = true;
        self.ends.push(self.ticket, outcome);
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if !self.told {
            self.ends.push(self.ticket, CallOutcome::Closed);
        }
    }
}
