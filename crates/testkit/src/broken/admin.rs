//! The operator's side of a broken store.

use std::ops::Bound;

use bytes::Bytes;
use semel_core::diagnosis::Finding;
use semel_core::identity::Address;
use semel_core::store::{Connections, Cursor, Page, Query, Stats};
use semel_core::{
    BoxFuture, Certainty, Identity, Record, Restored, State, StoreAdmin, StoreError,
    StoreErrorKind, StoreResult, Timestamp,
};

use super::claims::round_trip;
use super::store::StoreContents;
use super::{BrokenStore, Bug};

impl StoreAdmin for BrokenStore {
    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, StoreResult<Page>> {
        Box::pin(async move {
            let kept = self.shared.kept.lock();
            if self.has(Bug::PagesAreCounted) {
                return self.counted(&kept, query);
            }
            self.page(&kept, query)
        })
    }

    fn delete<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<bool>> {
        Box::pin(async move {
            let mut kept = self.shared.kept.lock();
            let (now, found) = (self.now(), self.load(&kept, identity)?);
            kept.bury(&identity.address());
            if let Some(found) = found
                .as_ref()
                .filter(|_| self.has(Bug::DeleteTakesNeighbours))
            {
                let query = Query::default();
                let all = self.after(&kept, &query, None).into_iter();
                for (address, _) in all.filter(|(_, other)| other.namespace == found.namespace) {
                    kept.bury(&address);
                }
            }
            drop(kept);
            self.wake(identity);
            Ok(found.is_some_and(|record| !record.is_expired(now)))
        })
    }

    fn restore<'a>(
        &'a self,
        identity: &'a Identity,
        record: &'a Record,
    ) -> BoxFuture<'a, StoreResult<Restored>> {
        Box::pin(self.restored(identity, record))
    }

    fn sweep(&self, most: usize) -> BoxFuture<'_, StoreResult<usize>> {
        Box::pin(async move {
            let goes = |packed: &Bytes| {
                let takes = |record: Record| {
                    let running =
                        self.has(Bug::SweepTakesRunning) && record.state == State::Running;
                    record.is_expired(self.now()) || running
                };
                !self.has(Bug::SweepRemovesNothing) && Record::decode(packed).is_ok_and(takes)
            };
            let find = |kept: &StoreContents| -> Vec<Address> {
                let gone = kept.records.iter().filter(|(_, packed)| goes(packed));
                gone.map(|(address, _)| *address).take(most).collect()
            };
            let mut gone = find(&self.shared.kept.lock());
            if self.has(Bug::SweepTakesFreshClaims) {
                for _ in 0..100 {
                    round_trip().await;
                }
            }
            let mut kept = self.shared.kept.lock();
            if !self.has(Bug::SweepTakesFreshClaims) {
                gone = find(&kept);
            }
            for address in &gone {
                kept.bury(address);
            }
            Ok(gone.len())
        })
    }

    fn expired(&self, most: usize) -> BoxFuture<'_, StoreResult<usize>> {
        Box::pin(async move {
            let kept = self.shared.kept.lock();
            let records = kept
                .records
                .values()
                .filter_map(|packed| Record::decode(packed).ok());
            Ok(records
                .filter(|record| record.is_expired(self.now()))
                .take(most)
                .count())
        })
    }

    fn now(&self) -> BoxFuture<'_, StoreResult<Timestamp>> {
        Box::pin(async move { Ok(BrokenStore::now(self)) })
    }

    fn stats(&self) -> BoxFuture<'_, StoreResult<Stats>> {
        Box::pin(async move {
            let records = self.shared.kept.lock().records.len() as u64;
            Ok(Stats::new(records).with_capacity(self.shared.capacity.map(|most| most as u64)))
        })
    }

    fn connections(&self) -> Option<Connections> {
        None
    }

    fn diagnose(&self) -> BoxFuture<'_, StoreResult<Vec<Finding>>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

impl BrokenStore {
    fn fits(&self, query: &Query, record: &Record) -> bool {
        let state = |record: &Record| query.state.is_none_or(|wanted| wanted == record.state);
        let any = || query.clone().with_state(None);
        match self.shared.bug {
            Some(Bug::LapseListedAsRunning) => any().fits(record, self.now()) && state(record),
            Some(Bug::FiltersArePrefixes) => {
                let begins = |wanted: &Option<String>, found: &str| {
                    wanted
                        .as_deref()
                        .is_none_or(|wanted| found.starts_with(wanted))
                };
                let all = Query::default().with_environment(query.environment.clone());
                all.fits(record, self.now())
                    && state(record)
                    && begins(&query.tenant, record.namespace.tenant())
                    && begins(&query.scope, record.namespace.scope())
            }
            _ => query.fits(record, self.now()),
        }
    }

    /// The fitting records after `after`, by address.
    fn after(
        &self,
        kept: &StoreContents,
        query: &Query,
        after: Option<Address>,
    ) -> Vec<(Address, Record)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let later = kept.records.range((from, Bound::Unbounded));
        let read =
            later.filter_map(|(address, packed)| Some((*address, Record::decode(packed).ok()?)));
        read.filter(|(_, record)| self.fits(query, record))
            .collect()
    }

    fn page(&self, kept: &StoreContents, query: &Query) -> StoreResult<Page> {
        let after = match &query.after {
            None => None,
            Some(cursor) => match parse(cursor) {
                Some(address) => Some(address),
                None if self.has(Bug::BadCursorStartsAnew) => None,
                None => return Err(refused()),
            },
        };
        let mut fit = self.after(kept, query, after);
        if self.has(Bug::PagesSkip) && after.is_some() && !fit.is_empty() {
            fit.remove(0);
        }
        let more = fit.len() > query.page_size();
        fit.truncate(query.page_size());
        let last = fit.last().map(|(address, _)| cursor(address));
        Ok(Page::default()
            .with_records(fit.into_iter().map(named).collect())
            .with_next(last.filter(|_| more))
            .with_unreadable(self.unreadable(kept, more)))
    }

    /// Pages by offset, as a store with this bug returns them.
    fn counted(&self, kept: &StoreContents, query: &Query) -> StoreResult<Page> {
        let skip = match &query.after {
            None => 0,
            Some(Cursor(text)) => match text.strip_prefix('n').map(str::parse::<usize>) {
                Some(Ok(skip)) => skip,
                _ => return Err(refused()),
            },
        };
        let mut fit = self.after(kept, query, None);
        let fit: Vec<_> = fit.drain(skip.min(fit.len())..).collect();
        let more = fit.len() > query.page_size();
        let records = fit.into_iter().take(query.page_size()).map(named).collect();
        let next = more.then(|| Cursor(format!("n{}", skip + query.page_size())));
        Ok(Page::default()
            .with_records(records)
            .with_next(next)
            .with_unreadable(self.unreadable(kept, more)))
    }

    /// The number of unreadable records, reported with the last page.
    fn unreadable(&self, kept: &StoreContents, more: bool) -> usize {
        if more || self.has(Bug::UnreadablePassedOver) {
            return 0;
        }
        let unread = |packed: &&bytes::Bytes| Record::decode(packed).is_err();
        kept.records.values().filter(unread).count()
    }
}

fn named((address, record): (Address, Record)) -> (Identity, Record) {
    (Identity::from_halves(&address, &record.seal), record)
}

fn cursor(address: &Address) -> Cursor {
    Cursor(format!("{:032x}", u128::from_be_bytes(*address)))
}

fn parse(Cursor(text): &Cursor) -> Option<Address> {
    let whole = text.len() == 32;
    u128::from_str_radix(text, 16)
        .ok()
        .filter(|_| whole)
        .map(u128::to_be_bytes)
}

fn refused() -> StoreError {
    let why = "the cursor isn't one of this store's; start the listing anew";
    StoreError::new(StoreErrorKind::Rejected, Certainty::Definite, why)
}
