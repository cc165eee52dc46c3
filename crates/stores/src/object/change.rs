//! The one way in which a record changes: look, let the protocol decide, and write in the place of exactly what was
//! looked at, until one such write decides.

use bytes::Bytes;
use object_store::UpdateVersion;
use semel_core::protocol::Decision;
use semel_core::store::StoreResult;
use semel_core::{Certainty, Identity, Record, StoreError, Timestamp};

use super::error::{overtaken, unknown};
use super::{Inner, memo, time};

/// How often a step that was overtaken, or whose outcome isn't known, is tried before giving up: for less time than the
/// engine gives a call.
pub(super) const TRIES: u32 = 8;

/// A record as it was found or remembered.
pub(super) struct Seen {
    pub(super) record: Record,
    pub(super) version: UpdateVersion,
    pub(super) packed: Bytes,
    /// When the server says that it was written; what is remembered doesn't know.
    pub(super) noted: Option<Timestamp>,
    /// What time to decide by.
    pub(super) now: Timestamp,
}

/// What is known before the first look.
pub(super) enum Known {
    /// Nothing.
    Nothing,
    /// Probably there is none.
    Absent,
    /// What this was when the lease was won.
    Remembered(Box<Seen>),
}

/// What was decided, and the record that it was decided on or that was written.
pub(super) struct Changed<A> {
    pub(super) answer: A,
    pub(super) found: Option<Box<Seen>>,
    pub(super) memo: Bytes,
}

impl Inner {
    /// The record, expired or not, and what time to decide by.
    pub(super) async fn look(&self, identity: &Identity) -> StoreResult<Option<Box<Seen>>> {
        let Some(found) = self.link.get(&self.path_of(identity), None).await? else {
            return Ok(None);
        };
        let record = Record::decode_for(identity, &found.bytes)?;
        let noted = memo::is_dated_by_the_server(&found.bytes).then_some(found.noted);
        Ok(Some(Box::new(Seen {
            now: time::decide_at(&record, noted, self.link.time.now(), self.margin),
            record,
            noted,
            version: found.version,
            packed: found.bytes,
        })))
    }

    pub(super) async fn change<A>(
        &self,
        identity: &Identity,
        known: Known,
        decide: impl Fn(Option<&Record>, Timestamp) -> Decision<A>,
    ) -> StoreResult<Changed<A>> {
        let changed = self.try_change(identity, known, decide).await?;
        changed.ok_or_else(overtaken)
    }

    /// The same; `None` where another was quicker every time.
    pub(super) async fn try_change<A>(
        &self,
        identity: &Identity,
        known: Known,
        decide: impl Fn(Option<&Record>, Timestamp) -> Decision<A>,
    ) -> StoreResult<Option<Changed<A>>> {
        let (mut seen, mut is_fresh) = match known {
            Known::Nothing => (self.look(identity).await?, true),
            Known::Absent => (None, false),
            Known::Remembered(seen) => (Some(seen), false),
        };
        let mut open: Option<StoreError> = None;
        for tried in 0..TRIES {
            let now = seen
                .as_ref()
                .map_or_else(|| self.link.time.now(), |seen| seen.now);
            let decision = decide(seen.as_ref().map(|seen| &seen.record), now);
            match decision.write {
                None if is_fresh => {
                    let memo = seen
                        .as_ref()
                        .map_or_else(Bytes::new, |seen| memo::write(&seen.version, &seen.packed));
                    return Ok(Some(Changed {
                        answer: decision.answer,
                        found: seen,
                        memo,
                    }));
                }
                // What was remembered decides nothing by itself.
                None => {}
                // The last step is a look: only that finds a write whose reply got lost.
                Some(_) if tried + 1 == TRIES => break,
                Some(record) => {
                    // Decided by a time that may have been held back; written now.
                    let last = seen.as_ref().map(|seen| seen.record.written_at);
                    let written_at = self.link.time.now().max(last.unwrap_or_default());
                    let packed = memo::pack(&time::dated(record, written_at));
                    let version = seen.as_ref().map(|seen| &seen.version);
                    let path = self.path_of(identity);
                    match self.link.put(&path, packed.clone(), version).await {
                        Ok(Some(version)) => {
                            let memo = memo::write(&version, &packed);
                            return Ok(Some(Changed {
                                answer: decision.answer,
                                found: seen,
                                memo,
                            }));
                        }
                        Ok(None) => {}
                        // It may have landed: what is there now says whether.
                        Err(error) if error.certainty == Certainty::Unknown => open = Some(error),
                        Err(error) => return Err(settle_on(open.as_ref(), error)),
                    }
                    if tried > 0 || open.is_some() {
                        self.link.pause(tried).await;
                    }
                }
            }
            seen = match self.look(identity).await {
                Ok(seen) => seen,
                Err(error) => return Err(settle_on(open.as_ref(), error)),
            };
            is_fresh = true;
        }
        open.map_or(Ok(None), Err)
    }
}

/// `error`, which ends a call whose earlier write may have landed.
pub(super) fn settle_on(open: Option<&StoreError>, error: StoreError) -> StoreError {
    if open.is_some() {
        return unknown(error);
    }
    error
}
