//! A replica: session events arrive in segments of a log, and each is applied once.
//!
//! Two layers stand in front of [`Sessions::apply`]: the session's mark, which knows every event
//! that has a number for all time, and the window of keys, which knows the last of those that have
//! only a key. Both are one
//! [`Gate`].

use std::collections::BTreeMap;

use semel_stream::{
    Gate, GateLimits, GateVerdict, JournalError, Mark, SeqNo, SessionId, StreamKey, StreamOperation,
};

/// One event of the log.
#[derive(Clone, Debug)]
pub struct SessionEvent {
    /// Whose it is.
    pub session: SessionId,
    /// Its number in the session; old writers gave none.
    pub seqno: Option<SeqNo>,
    /// What it does: adds to a counter.
    pub counter: String,
    /// How much.
    pub amount: i64,
}

impl SessionEvent {
    /// What it does, as bytes: the same for the same event, whoever writes it down.
    fn operation_bytes(&self) -> Vec<u8> {
        format!("{}\0{}", self.counter, self.amount).into_bytes()
    }

    /// Its key: of session, number and what it does.
    #[must_use]
    pub fn key(&self) -> StreamKey {
        let seqno = self.seqno.unwrap_or_default();
        StreamKey::derive(self.session, seqno, &self.operation_bytes())
    }

    fn operation(&self) -> StreamOperation {
        match self.seqno {
            Some(SeqNo(seqno)) => {
                StreamOperation::sequenced(self.session, Mark::new(0, seqno)).with_key(self.key())
            }
            None => StreamOperation::keyed(self.key()),
        }
    }
}

/// What is replicated.
#[derive(Debug, Default)]
pub struct Sessions {
    /// The counters.
    pub counters: BTreeMap<String, i64>,
}

impl Sessions {
    /// Applies an event. Twice, if it is called twice: nothing here knows of duplicates.
    ///
    /// # Errors
    /// Where the counter would overflow.
    pub fn apply(&mut self, event: &SessionEvent) -> Result<(), Overflow> {
        let counter = self.counters.entry(event.counter.clone()).or_default();
        *counter = counter.checked_add(event.amount).ok_or(Overflow)?;
        Ok(())
    }
}

/// A counter is full.
#[derive(Debug, PartialEq, Eq)]
pub struct Overflow;

/// What became of a segment.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Applied now.
    pub applied: usize,
    /// Known, and skipped.
    pub duplicates: usize,
    /// Waiting for others: send them again, from these numbers on.
    pub missing: BTreeMap<SessionId, SeqNo>,
    /// Failed; sent again, they are tried again.
    pub failed: usize,
}

/// Receives segments and applies what is new in them.
///
/// The gate lives exactly as long as the state that it guards: both are in memory, and a replica
/// that restarts begins with neither and is sent all of it again. Where the state is in a database,
/// so should be the marks.
#[derive(Debug)]
pub struct SegmentReceiver {
    gate: Gate,
    sessions: Sessions,
}

impl SegmentReceiver {
    /// A replica of nothing yet.
    #[must_use]
    pub fn new(limits: GateLimits) -> Self {
        Self {
            gate: Gate::new(limits),
            sessions: Sessions::default(),
        }
    }

    /// Applies what is new in a segment, and says what to acknowledge or to send again.
    ///
    /// # Errors
    /// Where the gate can't write down what was applied; in memory it always can.
    pub fn receive(&mut self, segment: &[SessionEvent]) -> Result<Received, JournalError> {
        let mut received = Received::default();
        let mut batch = self.gate.batch();
        for event in segment {
            match batch.offer(&event.operation()) {
                // Recorded only after it was applied: one that fails is not taken for done.
                GateVerdict::Apply(ticket) => match self.sessions.apply(event) {
                    Ok(()) => {
                        batch.applied(ticket);
                        received.applied += 1;
                    }
                    Err(Overflow) => received.failed += 1,
                },
                GateVerdict::Duplicate => received.duplicates += 1,
                GateVerdict::Gap { expected } => {
                    received.missing.insert(event.session, expected);
                }
                GateVerdict::Busy | GateVerdict::Stale { .. } | GateVerdict::Full => {
                    received.failed += 1
                }
            }
        }
        batch.commit()?;
        Ok(received)
    }

    /// What was replicated so far.
    #[must_use]
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }
}
