//! Keeps the canary (P41) alive in a bucket whose lifecycle rule removes old objects.
//!
//! The canary has to outlive every record. So every start rewrites it, and a running process does
//! so twice a day. Then it is never removed before a record that was written at the same time.

use std::time::Duration;

use parking_lot::Mutex;
use semel_core::store::StoreResult;
use semel_core::{Claim, Claimed, Identity, Tick, canary};

use super::change::ObjectSnapshot;
use super::{Inner, memo};

/// The rule counts whole days, and a record is kept for one more than its retention.
const WRITE_EVERY: Duration = Duration::from_secs(12 * 60 * 60);

/// The canaries of this process's environments, and when they were written last; `None` if that
/// failed.
pub(super) type Canaries = Mutex<Vec<(Identity, Option<Tick>)>>;

impl Inner {
    /// Remembers a canary that this process has just claimed, and rewrites one that existed before.
    pub(super) async fn keep_canary(&self, ask: &Claim, answer: &Claimed, found: &ObjectSnapshot) {
        if ask.namespace.scope() != canary::SCOPE || matches!(answer, Claimed::Mismatch(_)) {
            return;
        }
        let now = self.link.time.clock().now();
        let written = match answer {
            // An error doesn't prevent the start: the next sweep tries again.
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

    /// Rewrites the canaries that are due.
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
            // The next start writes a missing canary: the secret isn't known here.
            let seen = self.look(&identity).await?;
            self.write_again(&identity, &seen).await?;
            self.note(identity, Some(now));
        }
        Ok(())
    }

    /// Writes the same record as a new object. If another write was quicker, that one has refreshed
    /// it.
    async fn write_again(&self, identity: &Identity, seen: &ObjectSnapshot) -> StoreResult<()> {
        if let Some((record, version)) = &seen.found {
            let packed = memo::pack_as_it_was(record);
            let path = self.path_of(identity);
            self.link.put(&path, packed, Some(&version.update)).await?;
        }
        Ok(())
    }
}
