//! [`Store`] and [`StoreAdmin`]: what every backend does, in words that a backend can be held to.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

pub use bytes::Bytes;

use crate::claim::{
    Claim, Claimed, Grant, Renewed, Resolution, Resolved, Restored, Settled, Settlement,
};
use crate::clock::{Clock, Sleep, Timestamp};
use crate::diagnosis::Finding;
use crate::env::BoxFuture;
use crate::error::{Certainty, StoreError, StoreErrorKind};
use crate::identity::Identity;
use crate::record::{Fence, Record, State};
use crate::wake::Wakeup;

/// What a store call gives: an answer (losing is one), or an error that says what is known.
pub type StoreResult<T> = Result<T, StoreError>;

/// The hot path of a backend.
///
/// # Contract
///
/// - Each of `claim`, `renew`, `settle` and `resolve` is **one atomic step** in the backend, decided
///   there by the rules of `spec/protocol.md` ([`crate::protocol`] is the same in code). No check and
///   then act.
/// - Time is the backend's clock. Durations go in and come out; no caller's clock is compared (P23).
/// - A call may be sent again after a lost reply, and gives the same answer unless the record moved on
///   to another owner meanwhile (P6, P18).
/// - A call whose future is dropped may have happened or not, and never disturbs another call.
/// - A record is used only if its seal is the one asked for (P24); bytes that can't be read are an
///   error of kind `Record`, never "absent" (P25).
/// - An error says honestly whether something may have been changed.
///
/// No method has a default body: what a backend can't do, it has to say.
pub trait Store: Send + Sync + 'static {
    /// Asks to be the one who runs.
    ///
    /// *After*: the answer is the row of the claim table (P5–P12) that fits the record found, and if it
    /// is `Won`, the record says so durably, at the store's durability level.
    ///
    /// *When it fails*: no lease may be assumed; send the same claim, same token, again.
    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, StoreResult<Claimed>>;

    /// Keeps the lease for its full span from now on and, if given, the checkpoint with it.
    ///
    /// *After*: `Held`, and the lease ends one lease span after the store's now; or `Lost`, and nothing
    /// has changed (P14, P15).
    fn renew<'a>(
        &'a self,
        lease: &'a Grant,
        checkpoint: Option<&'a Bytes>,
    ) -> BoxFuture<'a, StoreResult<Renewed>>;

    /// Ends the lease.
    ///
    /// *After*: `Done`, and every later claim sees the settlement until it expires; or `Lost`, and
    /// nothing has changed (P16–P18).
    fn settle<'a>(
        &'a self,
        lease: &'a Grant,
        settlement: &'a Settlement,
    ) -> BoxFuture<'a, StoreResult<Settled>>;

    /// Ends a doubt (P19). Fenced by the doubt's own fence, so that an operator never resolves another
    /// run than the one looked at.
    fn resolve<'a>(
        &'a self,
        identity: &'a Identity,
        fence: Fence,
        resolution: &'a Resolution,
    ) -> BoxFuture<'a, StoreResult<Resolved>>;

    /// The record as it is now; `None` where absent or expired. Changes nothing.
    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<Option<Record>>>;

    /// A hint that completes soon after a record under `identity` was settled or resolved.
    ///
    /// Counts from the moment of the call: watch first, then claim, then wait. It may come without
    /// cause, late, or (see [`Capabilities::wake`]) never: always wait for a time as well.
    fn watch(&self, identity: &Identity) -> Wakeup;

    /// What this backend is and can do. Constant.
    fn capabilities(&self) -> Capabilities;
}

/// What operators need of a backend. Never on the hot path.
pub trait StoreAdmin: Store {
    /// A page of live records that fit `query`, in an order that stays the same from page to page.
    /// A record that is there throughout the listing is listed: once, or at least once where
    /// [`Capabilities::lists_once`] says that it may come again (P29).
    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, StoreResult<Page>>;

    /// Forgets a record, whatever its state: the key is as new. Answers whether there was one.
    /// Fences keep growing (P22).
    fn delete<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<bool>>;

    /// Writes a record that another store kept, as it is, where there is none, or only one that was released (P43).
    /// Its times are on this store's clock: whoever brings it has to have moved them.
    ///
    /// *After*: `Written`, and the record is as if it had been made here; or `Kept`, and nothing has changed. One
    /// atomic step, which races with claims as a claim does.
    fn restore<'a>(
        &'a self,
        identity: &'a Identity,
        record: &'a Record,
    ) -> BoxFuture<'a, StoreResult<Restored>>;

    /// Removes expired records, about `most` of them, without holding up traffic; answers how many.
    /// Never removes a live one (P21).
    fn sweep(&self, most: usize) -> BoxFuture<'_, StoreResult<usize>>;

    /// How many expired records a sweep would find, counted up to `most`. Removes nothing.
    fn expired(&self, most: usize) -> BoxFuture<'_, StoreResult<usize>>;

    /// Now, on the store's clock: what the times of its records are to be read against (P23).
    fn now(&self) -> BoxFuture<'_, StoreResult<Timestamp>>;

    /// How much is in there.
    fn stats(&self) -> BoxFuture<'_, StoreResult<Stats>>;

    /// The connections to the backend; `None` where it needs none. Asks nobody, so it answers in an outage too.
    fn connections(&self) -> Option<Connections>;

    /// Looks the backend over for what breaks people: settings that lose records, clocks that are apart, tables
    /// that grow. Changes nothing. What could not be looked at is a finding too.
    fn diagnose(&self) -> BoxFuture<'_, StoreResult<Vec<Finding>>>;
}

/// What a backend is and can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Its name, as in its URL: `memory`, `redis`, …
    pub name: &'static str,
    /// Whether records outlive this process.
    pub durable: bool,
    /// Whether other processes see the same records.
    pub shared: bool,
    /// How far a [`Wakeup`] can be relied on.
    pub wake: Wake,
    /// Whether a listing shows no record twice. Where it may, it still leaves none out (P29).
    pub lists_once: bool,
    /// The largest answer it takes, head and body together.
    pub max_answer_bytes: usize,
}

/// How far a [`Wakeup`] can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Always comes, and in time: no need to poll.
    Exact,
    /// Usually comes: poll as well, with growing pauses.
    Hint,
    /// Never comes: poll.
    Never,
}

/// Which records to list.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Only of this environment.
    pub environment: Option<String>,
    /// Only of this tenant.
    pub tenant: Option<String>,
    /// Only of this scope.
    pub scope: Option<String>,
    /// Only where the operation stands so. A lapsed lease that may not be taken over counts as in
    /// doubt, not as running.
    pub state: Option<State>,
    /// Go on after the page that gave this cursor.
    pub after: Option<Cursor>,
    /// At most so many, capped at [`Query::MAX_LIMIT`]; 0 takes the cap.
    pub limit: usize,
}

impl Query {
    /// The largest page.
    pub const MAX_LIMIT: usize = 1000;

    /// The page size asked for, within bounds.
    #[must_use]
    pub fn page_size(&self) -> usize {
        if self.limit == 0 {
            Self::MAX_LIMIT
        } else {
            self.limit.min(Self::MAX_LIMIT)
        }
    }

    /// Whether `record` fits, cursor aside.
    #[must_use]
    pub fn fits(&self, record: &Record, now: Timestamp) -> bool {
        let is =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|w| w == found);
        let state = if record.is_in_doubt(now) {
            State::InDoubt
        } else {
            record.state
        };
        !record.is_expired(now)
            && is(&self.environment, record.namespace.environment())
            && is(&self.tenant, record.namespace.tenant())
            && is(&self.scope, record.namespace.scope())
            && self.state.is_none_or(|wanted| wanted == state)
    }
}

/// Where a listing stands; means something only to the store that gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub String);

/// A page of a listing.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The records, with whose they are.
    pub records: Vec<(Identity, Record)>,
    /// Where to go on; `None` at the end. A page may be short, or empty, and still have a next one.
    pub next: Option<Cursor>,
    /// How many records were left out because they can't be read (P25). A store that keeps records packed can't tell whether
    /// such a record fits the query, and counts it.
    pub unreadable: usize,
}

/// The connections of this process to a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// In use now.
    pub active: u32,
    /// The most there can be; `None` where all calls share those that are open.
    pub most: Option<u32>,
    /// How often, since the start, a call got none because all were in use.
    pub exhausted: u64,
}

/// How much is in a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records present, expired ones that no sweep has removed yet included.
    pub records: u64,
    /// The most records it takes; `None` where nothing but the backend's own limits bounds it.
    pub capacity: Option<u64>,
}

/// The answer of a store call, or `Unknown` if none came within `limit`.
///
/// Costs no timer where the call answers at once.
///
/// # Errors
/// Those of the call, and the limit.
pub async fn within<T>(
    clock: &dyn Clock,
    limit: Duration,
    mut call: BoxFuture<'_, StoreResult<T>>,
) -> StoreResult<T> {
    let mut timer: Option<Sleep> = None;
    poll_fn(|cx| {
        if let Poll::Ready(answer) = call.as_mut().poll(cx) {
            return Poll::Ready(answer);
        }
        let timer = timer.get_or_insert_with(|| clock.sleep(limit));
        timer.as_mut().poll(cx).map(|()| Err(no_answer(limit)))
    })
    .await
}

fn no_answer(limit: Duration) -> StoreError {
    let said = format!("no answer within {limit:?}");
    StoreError::new(StoreErrorKind::Unavailable, Certainty::Unknown, said)
}
