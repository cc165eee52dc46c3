//! Records from another store (P43). They are written as they are: that the server notes another time says nothing
//! about them, and what is packed says so.

use semel_core::store::StoreResult;
use semel_core::{Certainty, Identity, Record, Restored, protocol};

use super::change::{TRIES, settle_on};
use super::error::overtaken;
use super::{Inner, memo};

impl Inner {
    pub(super) async fn restore(
        &self,
        identity: &Identity,
        record: &Record,
    ) -> StoreResult<Restored> {
        let (path, mut open) = (self.path_of(identity), None);
        for tried in 0..TRIES {
            let seen = self.look(identity).await;
            let seen = seen.map_err(|error| settle_on(open.as_ref(), error))?;
            let now = seen
                .as_ref()
                .map_or_else(|| self.link.time.now(), |seen| seen.now);
            let found = seen.as_ref().map(|seen| &seen.record);
            let decision = protocol::restore(found, record, now);
            let Some(write) = decision.write else {
                return Ok(decision.answer);
            };
            let version = seen.as_ref().map(|seen| &seen.version);
            let packed = memo::pack_as_it_was(&write);
            match self.link.put(&path, packed, version).await {
                Ok(Some(_)) => return Ok(decision.answer),
                Ok(None) => {}
                // It may have landed: what is there now says whether.
                Err(error) if error.certainty == Certainty::Unknown => open = Some(error),
                Err(error) => return Err(settle_on(open.as_ref(), error)),
            }
            self.link.pause(tried).await;
        }
        Err(open.unwrap_or_else(overtaken))
    }
}
