//! One timed and reported store call: every call of the engine to its store goes through here.

use std::future::Future;

use super::Shared;
use super::request::Subject;
use crate::claim::{Claim, Claimed};
use crate::clock::Tick;
use crate::env::BoxFuture;
use crate::error::StoreError;
use crate::event::{ClaimAnswer, Step, StoreCall};
use crate::identity::Identity;
use crate::record::Record;
use crate::store::{StoreResult, within};

impl Shared {
    /// Awaits `call` for at most the call limit, and reports how long it took and whether it
    /// failed.
    pub(super) fn call<T>(
        &self,
        subject: &Subject,
        kind: StoreCall,
        call: BoxFuture<'_, StoreResult<T>>,
    ) -> impl Future<Output = StoreResult<T>> {
        self.call_sent_at(self.tick(), subject, kind, call)
    }

    /// As [`Shared::call`], for a caller that already knows the time at which the call was sent.
    pub(super) async fn call_sent_at<T>(
        &self,
        sent: Tick,
        subject: &Subject,
        kind: StoreCall,
        call: BoxFuture<'_, StoreResult<T>>,
    ) -> StoreResult<T> {
        let result = within(&*self.env.clock, self.config.call_limit, call).await;
        self.report_call(sent, subject, kind, result.as_ref().map(|_| None));
        result
    }

    /// Sends a claim, as [`Shared::call_sent_at`], and reports what the store answered.
    pub(super) async fn claim_sent_at(
        &self,
        sent: Tick,
        subject: &Subject,
        claim: &Claim,
    ) -> StoreResult<Claimed> {
        let call = self.store.claim(claim);
        let result = within(&*self.env.clock, self.config.call_limit, call).await;
        let answer = result.as_ref().map(|claimed| Some(claimed.into()));
        self.report_call(sent, subject, StoreCall::Claim, answer);
        result
    }

    /// Reads a record without knowing its namespace. The report names the namespace of the record,
    /// or the unknown one if the store returned no record.
    pub(super) async fn read(&self, identity: &Identity) -> StoreResult<Option<Record>> {
        self.read_as(identity, decrypted).await
    }

    /// As [`Shared::read`], for an operator: a record whose content can't be read comes without it
    /// ([`Record::locked`]).
    pub(super) async fn inspect(&self, identity: &Identity) -> StoreResult<Option<Record>> {
        let shown = |found: Option<Record>| {
            Ok(found.map(|record| match record.locked() {
                Some(reason) => record.lock(&reason),
                None => record,
            }))
        };
        self.read_as(identity, shown).await
    }

    async fn read_as(
        &self,
        identity: &Identity,
        shown: impl FnOnce(Option<Record>) -> StoreResult<Option<Record>>,
    ) -> StoreResult<Option<Record>> {
        let sent = self.tick();
        let call = self.store.read(identity);
        let result = within(&*self.env.clock, self.config.call_limit, call).await;
        let result = result.and_then(shown);
        if self.timed || result.is_err() {
            let subject = match &result {
                Ok(Some(record)) => Subject::from_record(record, *identity),
                Ok(None) | Err(_) => Subject::unknown(*identity),
            };
            self.report_call(
                sent,
                &subject,
                StoreCall::Read,
                result.as_ref().map(|_| None),
            );
        }
        result
    }

    fn report_call(
        &self,
        sent: Tick,
        subject: &Subject,
        call: StoreCall,
        result: Result<Option<ClaimAnswer>, &StoreError>,
    ) {
        if self.timed {
            let took = self.env.clock.now().since(sent);
            self.emit(
                subject,
                Step::StoreCalled {
                    call,
                    took,
                    answered: result.is_ok(),
                    claim: result.unwrap_or_default(),
                },
            );
        }
        if let Err(error) = result {
            self.emit(
                subject,
                Step::StoreFailed {
                    call,
                    kind: error.kind,
                    certainty: error.certainty,
                },
            );
        }
    }
}

/// Refuses a record that comes from the store encrypted: this process has no keys (P46). A store
/// that decrypts records returns none that are not.
pub(super) fn decrypted(found: Option<Record>) -> StoreResult<Option<Record>> {
    Ok(found.map(Record::into_readable).transpose()?)
}
