//! [`Bounded`]: a store that takes smaller answers.

use semel_core::{Answer, Capabilities, Store, StoreAdmin};

/// A store that takes answers of up to a mebibyte. A cipher is slow where it is compiled for tests.
#[derive(Debug)]
pub struct Bounded<S>(pub S);

impl<S: StoreAdmin> Store for Bounded<S> {
    fn capabilities(&self) -> Capabilities {
        self.0
            .capabilities()
            .with_max_answer_bytes((1 << 20) + Answer::MAX_HEAD_BYTES)
    }

    semel_core::forward_store!(|self| self.0 => claim, renew, settle, resolve, read, watch);
}

impl<S: StoreAdmin> StoreAdmin for Bounded<S> {
    semel_core::forward_store!(|self| self.0 => list, delete, restore, sweep, expired, now, stats, connections, diagnose);
}
