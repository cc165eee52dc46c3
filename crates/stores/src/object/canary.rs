//! The canary (P41) and the bucket's own rule, which removes what was not written for long.
//!
//! The canary has to be there for as long as any record is. So every start writes it anew, and a process that runs on does so
//! twice a day: it is then never removed before a record that was written at the same time.

use std::time::Duration;

use parking_lot::Mutex;
use semel_core::store::StoreResult;
use semel_core::{Claim, Claimed, Identity, Tick, canary};

use super::change::Seen;
use super::{Inner, memo};

/// The rule counts whole days, and a record is kept for one more than its retention.
const WRITE_EVERY: Duration = Duration::from_secs(12 * 60 * 60);

/// The canaries of this process's environments, and when they were written last; `None` where that failed.
pub(super) type Canaries = Mutex<Vec<(Identity, Option<Tick>)>>;

impl Inner {
    /// Notes a canary that this process has just claimed, and writes one that was there.
    pub(super) async fn keep_canary(&self, ask: &Claim, answer: &Claimed, found: &Seen) {
        if ask.namespace.scope() != canary::SCOPE || matches!(answer, Claimed::Mismatch) {
            return;
        }
        let now = self.link.time.clock().now();
        let written = match answer {
            // An error is no reason not to start: the next sweep tries again.
            Claimed::Replay(_) => self.write_again(&ask.identity, found).await.is_ok(),
            _ => true,
        };
        self.note(ask.identity, written.then_some(now));
    }

    fn note(&self, identity: Identity, written: Option<Tick>) {
        let mut canaries = self.canaries.lock();
        canaries.retain(|(of, _)| *of != identity);
        canaries.push((identity, written));
    }

    /// Writes the canaries that were not written for long.
    pub(super) async fn keep_canaries(&self) -> StoreResult<()> {
        let now = self.link.time.clock().now();
        let is_due =
            |written: Option<Tick>| written.is_none_or(|written| now.since(written) >= WRITE_EVERY);
        let due: Vec<Identity> = {
            let canaries = self.canaries.lock();
            let due = canaries.iter().filter(|(_, written)| is_due(*written));
            due.map(|(identity, _)| *identity).collect()
        };
        for identity in due {
            // One that is gone is made by the next start: it can't be told here whose it should be.
            let seen = self.look(&identity).await?;
            self.write_again(&identity, &seen).await?;
            self.note(identity, Some(now));
        }
        Ok(())
    }

    /// The same record as a new object. Where another was quicker, that one has written it.
    async fn write_again(&self, identity: &Identity, seen: &Seen) -> StoreResult<()> {
        if let Some((record, version)) = &seen.found {
            let packed = memo::pack_as_it_was(record);
            let path = self.path_of(identity);
            self.link.put(&path, packed, Some(&version.update)).await?;
        }
        Ok(())
    }
}
