//! Brings records from one store to another, one at a time, and says what became of each.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use semel::core::store::{Cursor, Query};
use semel::core::{
    Grant, Identity, Record, Restored, Settled, Settlement, State, StoreAdmin, StoreResult,
    Timestamp,
};
use serde::{Deserialize, Serialize};

/// How many records are under way at once.
const AT_ONCE: usize = 64;

/// How many records a page has.
const PAGE: usize = 500;

/// What became of the records so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    /// Brought over.
    pub(super) copied: u64,
    /// Were there already, or the other store knows more.
    pub(super) there: u64,
    /// Were open there, though their owner had settled them here: settled there too.
    pub(super) mended: u64,
    /// Somebody runs them now; only this store has the lease.
    pub(super) running: u64,
    /// Expired on the way.
    pub(super) expired: u64,
    /// The two stores say different things.
    pub(super) conflicts: u64,
}

impl Counts {
    pub(super) const fn all(&self) -> u64 {
        self.copied + self.there + self.mended + self.running + self.expired + self.conflicts
    }

    fn add(&mut self, became: Became) {
        let count = match became {
            Became::Copied => &mut self.copied,
            Became::There => &mut self.there,
            Became::Mended => &mut self.mended,
            Became::Running => &mut self.running,
            Became::Expired => &mut self.expired,
            Became::Conflict => &mut self.conflicts,
        };
        *count += 1;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Became {
    Copied,
    There,
    Mended,
    Running,
    Expired,
    Conflict,
}

/// From where to where.
pub(super) struct Copy {
    pub(super) from: Arc<dyn StoreAdmin>,
    pub(super) to: Arc<dyn StoreAdmin>,
}

/// What is done first with a record: most are missing there, or most are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    Copying,
    Comparing,
}

impl Copy {
    /// Brings one page over; gives where to go on, and the hints of records that the stores disagree about.
    pub(super) async fn page(
        &self,
        pass: Pass,
        after: Option<Cursor>,
        counts: &mut Counts,
    ) -> StoreResult<(Option<Cursor>, Vec<String>)> {
        let query = Query {
            after,
            limit: PAGE,
            ..Query::default()
        };
        let page = self.from.list(&query).await?;
        let clocks = (self.from.now().await?, self.to.now().await?);
        let each = page.records.iter().map(|(identity, record)| async move {
            let became = self.one(pass, identity, record, clocks).await?;
            Ok::<_, semel::core::StoreError>((became, record))
        });
        let all: Vec<_> = stream::iter(each)
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        let mut disagree = Vec::new();
        for (became, record) in all {
            counts.add(became);
            if became == Became::Conflict {
                let place = &record.namespace;
                disagree.push(format!(
                    "{} {} {}",
                    place.tenant(),
                    place.scope(),
                    record.hint.as_str()
                ));
            }
        }
        Ok((page.next, disagree))
    }

    async fn one(
        &self,
        pass: Pass,
        identity: &Identity,
        record: &Record,
        (here, there): (Timestamp, Timestamp),
    ) -> StoreResult<Became> {
        // A record that was brought over is written again without a change: that would look like a new one here.
        if pass == Pass::Comparing
            && let Some(found) = self.to.read(identity).await?
        {
            return self.beside(identity, record, &found).await;
        }
        let live = record.state == State::Running && !record.is_lapsed(here);
        let moved = Record {
            created_at: shifted(record.created_at, here, there),
            written_at: shifted(record.written_at, here, there),
            ..record.clone()
        };
        if !live && self.to.restore(identity, &moved).await? == Restored::Written {
            return Ok(Became::Copied);
        }
        match self.to.read(identity).await? {
            None if live => Ok(Became::Running),
            None => Ok(Became::Expired),
            Some(found) => self.beside(identity, record, &found).await,
        }
    }

    /// The other store has a record too.
    async fn beside(
        &self,
        identity: &Identity,
        record: &Record,
        found: &Record,
    ) -> StoreResult<Became> {
        let is_over = |record: &Record| matches!(record.state, State::Completed | State::Failed);
        let same = match (is_over(record), is_over(found)) {
            (true, true) => {
                record.state == found.state
                    && record.fingerprint == found.fingerprint
                    && record.answer == found.answer
            }
            // Its owner has told this store, and died before it told the other.
            (true, false) if record.token == found.token => {
                return self.mend(identity, record, found).await;
            }
            (true, false) => false,
            // The other knows as much, or more.
            (false, _) => true,
        };
        Ok(if same {
            Became::There
        } else {
            Became::Conflict
        })
    }

    async fn mend(
        &self,
        identity: &Identity,
        record: &Record,
        found: &Record,
    ) -> StoreResult<Became> {
        let Some(answer) = record.answer.clone() else {
            return Ok(Became::Conflict);
        };
        let settlement = match record.state {
            State::Failed => Settlement::Fail(answer),
            _ => Settlement::Complete(answer),
        };
        let lease = Grant {
            identity: *identity,
            fence: found.fence,
            token: found.token,
            attempt: found.attempt,
            checkpoint: Bytes::new(),
            lease: found.lease,
            crash: found.crash,
            memo: Bytes::new(),
        };
        Ok(match self.to.settle(&lease, &settlement).await? {
            Settled::Done => Became::Mended,
            Settled::Lost => Became::Conflict,
        })
    }
}

/// `at` on the clock that says `there` when the other says `here`.
fn shifted(at: Timestamp, here: Timestamp, there: Timestamp) -> Timestamp {
    if there >= here {
        at.plus(there.since(here))
    } else {
        let back = here.since(there);
        Timestamp::from_micros(at.as_micros().saturating_sub(micros(back)))
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use semel::Semel;
    use semel::core::{MemoryConfig, MemoryStore};

    use super::*;

    /// Whatever the clocks say: of two clocks that are one, a record is written again without a change.
    #[tokio::test]
    async fn what_was_brought_over_is_there_and_not_new() {
        let clock = Arc::new(semel_testkit::clock::FakeClock::new());
        let store = || Arc::new(MemoryStore::new(MemoryConfig::default(), clock.clone()));
        let (from, to) = (store(), store());
        let semel = Semel::builder().open_on(from.clone()).await;
        let semel = semel.expect("a store in memory");
        for key in ["a-key", "another"] {
            let call = semel.operation("charge").key(key).payload(&key);
            let answer = call.run(async |_| Ok::<_, std::io::Error>(1)).await;
            answer.expect("an answer");
        }
        let copy = Copy { from, to };
        let (mut copied, mut compared) = (Counts::default(), Counts::default());
        copy.page(Pass::Copying, None, &mut copied)
            .await
            .expect("a page");
        copy.page(Pass::Comparing, None, &mut compared)
            .await
            .expect("a page");
        assert!(
            copied.copied >= 2 && copied.copied == copied.all(),
            "{copied:?}"
        );
        assert_eq!(
            (compared.there, compared.all()),
            (copied.all(), copied.all())
        );
    }

    #[test]
    fn times_move_with_the_clock() {
        let [at, early, late] = [1_000, 5_000, 5_700].map(Timestamp::from_micros);
        assert_eq!(shifted(at, early, late).as_micros(), 1_700);
        assert_eq!(shifted(at, late, early).as_micros(), 300);
        assert_eq!(shifted(at, early, early), at);
    }
}
