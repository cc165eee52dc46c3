//! [`Peer`]: a client or a server as a pair of bounded channels, which apply back-pressure.

use bytes::Bytes;
use tokio::sync::mpsc;

/// The capacity of each channel, in messages.
pub(crate) const QUEUE: usize = 64;

/// One end of a session.
pub(crate) struct Peer {
    /// Messages from this end.
    pub(crate) incoming: mpsc::Receiver<Bytes>,
    /// Messages to this end.
    pub(crate) outgoing: mpsc::Sender<Bytes>,
}
