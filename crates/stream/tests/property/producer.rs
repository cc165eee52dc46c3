//! A producer: a list of operations, sent under numbers or under keys, and again until it hears
//! that they arrived.

use semel_stream::{Mark, SeqNo, SessionId, StreamKey, StreamOperation};

/// How a producer names its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Numbered,
    Both,
    Keyed,
}

/// Something in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) producer: usize,
    /// Which of its producer's operations it is, from 0: what the model knows it by.
    pub(crate) index: usize,
    pub(crate) epoch: u64,
    pub(crate) operation: StreamOperation,
    /// When it was sent.
    pub(crate) born: u64,
}

pub(crate) struct Producer {
    id: usize,
    pub(crate) kind: Kind,
    pub(crate) session: SessionId,
    pub(crate) epoch: u64,
    /// How many operations came before each epoch.
    bases: Vec<usize>,
    /// How many of its operations it has sent.
    pub(crate) sent: usize,
    /// How many it knows to have arrived.
    pub(crate) known: usize,
    /// The model: how often each operation was applied.
    pub(crate) applied: Vec<u8>,
    /// The model: the first that was not, for those with numbers.
    pub(crate) next: usize,
}

impl Producer {
    pub(crate) fn new(id: usize) -> Self {
        Self {
            id,
            kind: [Kind::Numbered, Kind::Both, Kind::Keyed][id % 3],
            session: SessionId::named(&format!("producer {id}")),
            epoch: 0,
            bases: vec![0],
            sent: 0,
            known: 0,
            applied: Vec::new(),
            next: 0,
        }
    }

    /// The next operation, never sent before.
    pub(crate) fn send(&mut self, now: u64) -> Message {
        self.sent += 1;
        self.applied.push(0);
        self.message(self.sent - 1, now)
    }

    /// The operation of this index, under its number in the present epoch.
    pub(crate) fn message(&self, index: usize, now: u64) -> Message {
        let base = self.bases[usize::try_from(self.epoch).expect("few epochs")];
        let seqno = (index - base + 1) as u64;
        let numbered = StreamOperation::sequenced(self.session, Mark::new(self.epoch, seqno));
        let operation = match self.kind {
            Kind::Numbered => numbered,
            // Every operation says the same, so that in the next epoch the same number has the same
            // key.
            Kind::Both => {
                numbered.with_key(StreamKey::derive(self.session, SeqNo(seqno), b"add 5"))
            }
            Kind::Keyed => {
                let number = SeqNo(index as u64);
                StreamOperation::keyed(StreamKey::derive(self.session, number, b"add 5"))
            }
        };
        Message {
            producer: self.id,
            index,
            epoch: self.epoch,
            operation,
            born: now,
        }
    }

    /// Restarts in the next epoch, after the consumer has said what it applied last. What comes
    /// after that is sent anew.
    pub(crate) fn restart(&mut self, last: Mark) {
        let base = self.bases[usize::try_from(last.epoch.0).expect("few epochs")];
        let done = base + usize::try_from(last.seqno.0).expect("few operations");
        self.epoch += 1;
        self.bases.push(done);
        self.known = done;
    }
}
