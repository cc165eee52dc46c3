//! [`Store`] and [`StoreAdmin`]: the traits that every backend implements, with their contract.

use std::time::Duration;

pub use bytes::Bytes;

use crate::claim::{
    Claim, Claimed, Grant, Renewed, Resolution, Resolved, Restored, Settled, Settlement,
};
use crate::clock::{Clock, Elapsed, Timestamp};
use crate::diagnosis::Finding;
use crate::env::BoxFuture;
use crate::error::{Certainty, StoreError, StoreErrorKind};
use crate::identity::Identity;
use crate::record::{Answer, Fence, Record, State};
use crate::wake::Wakeup;

/// The result of a store call: an answer, which includes a lost claim or lease, or an error that
/// says what is known.
pub type StoreResult<T> = Result<T, StoreError>;

/// The hot path of a backend.
///
/// # Contract
///
/// - Each of `claim`, `renew`, `settle` and `resolve` is **one atomic step** in the backend,
///   decided there by the rules of `spec/protocol.md` ([`crate::protocol`] is the same in code). A
///   separate check and write would race.
/// - Time is the backend's clock. Durations go in and come out; callers' clocks are never compared
///   (P23).
/// - A call may be sent again after a lost reply, and gives the same answer unless another owner
///   has the key by then (P6, P18).
/// - A call whose future is dropped may have happened or not, and never disturbs another call.
/// - A record is used only if its seal belongs to the key (P24). Bytes that can't be read are an
///   error of kind `Record`, never "absent" (P25).
/// - An error says whether something may have been changed.
///
/// No method has a default body: a backend states explicitly what it can't do.
pub trait Store: Send + Sync + 'static {
    /// Claims a key: asks to become the owner that runs its effect.
    ///
    /// *After*: the answer is the row of the claim table (P5–P12) that fits the record found. If it
    /// is `Won`, the record says so durably, at the store's durability level.
    ///
    /// *When it fails*: the caller has no lease, and sends the same claim with the same token
    /// again.
    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, StoreResult<Claimed>>;

    /// Extends the lease to its full span from now and, if given, keeps a checkpoint.
    ///
    /// *After*: `Held`, and the lease ends one span after the store's current time; or `Lost`, and
    /// nothing has changed (P14, P15).
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

    /// Ends a doubt (P19). Fenced by the doubt's own fence, so that an operator resolves exactly
    /// the run that was looked at.
    fn resolve<'a>(
        &'a self,
        identity: &'a Identity,
        fence: Fence,
        resolution: &'a Resolution,
    ) -> BoxFuture<'a, StoreResult<Resolved>>;

    /// Reads the record without changing it. `None` if it is absent or expired.
    ///
    /// A store that decrypts gives a record that it can't decrypt, or doesn't accept, without its
    /// content, so that an operator can still end it: [`Record::locked`] says why. Who needs the
    /// content uses [`Record::into_readable`].
    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<Option<Record>>>;

    /// Returns a hint that completes soon after the record of `identity` was settled or resolved.
    ///
    /// It counts from the moment of the call: watch first, then claim, then wait. It may come
    /// without cause, late, or (see
    /// [`Capabilities::wake`]) never, so always set a timer as well.
    fn watch(&self, identity: &Identity) -> Wakeup;

    /// What this backend can do. Constant.
    fn capabilities(&self) -> Capabilities;
}

/// The operator interface of a backend. Never on the hot path.
pub trait StoreAdmin: Store {
    /// Lists a page of live records that match `query`, in an order that is stable from page to
    /// page. A record that exists throughout the listing is listed once, or at least once if
    /// [`Capabilities::lists_once`] is false (P29). Content that can't be decrypted is left out, as
    /// in [`Store::read`].
    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, StoreResult<Page>>;

    /// Deletes a record in any state: the key can be used anew. Returns whether there was one.
    /// Fences keep growing (P22).
    fn delete<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<bool>>;

    /// Writes a record of another store unchanged, if the key has no record here or a released one
    /// (P43). The caller has converted its times to this store's clock.
    ///
    /// *After*: `Written`, and the record is as if it had been made here; or `Kept`, and nothing
    /// has changed. One atomic step, which races with claims as a claim does.
    fn restore<'a>(
        &'a self,
        identity: &'a Identity,
        record: &'a Record,
    ) -> BoxFuture<'a, StoreResult<Restored>>;

    /// Removes about `most` expired records without blocking traffic, and returns how many. Never
    /// removes a live one (P21).
    fn sweep(&self, most: usize) -> BoxFuture<'_, StoreResult<usize>>;

    /// Counts the expired records that a sweep would find, up to `most`. Removes nothing.
    fn expired(&self, most: usize) -> BoxFuture<'_, StoreResult<usize>>;

    /// The current time on the store's clock, to which the times of its records refer (P23).
    fn now(&self) -> BoxFuture<'_, StoreResult<Timestamp>>;

    /// The number of records, and the capacity.
    fn stats(&self) -> BoxFuture<'_, StoreResult<Stats>>;

    /// The connections to the backend; `None` if it needs none. Makes no call, so it also works in
    /// an outage.
    fn connections(&self) -> Option<Connections>;

    /// Health check: looks for settings that lose records, clocks that differ, tables that grow.
    /// Changes nothing. A check that could not be made is a finding too.
    fn diagnose(&self) -> BoxFuture<'_, StoreResult<Vec<Finding>>>;
}

/// What a backend can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Its name, as in its URL: `memory`, `redis`, …
    pub name: &'static str,
    /// Whether records outlive this process.
    pub durable: bool,
    /// Whether other processes see the same records.
    pub shared: bool,
    /// How far a [`Wakeup`] can be relied on.
    pub wake: Wake,
    /// Whether a listing shows each record once. If false, a record may appear again, but none is
    /// left out (P29).
    pub lists_once: bool,
    /// The largest answer it takes, head and body together.
    pub max_answer_bytes: usize,
}

impl Capabilities {
    /// The least that a backend can do: nothing outlives this process, no other process sees it, no
    /// wake-up comes, and a listing may repeat a record. It takes the largest answer that any
    /// policy may keep.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            durable: false,
            shared: false,
            wake: Wake::Never,
            lists_once: false,
            max_answer_bytes: Answer::MAX_HEAD_BYTES + Answer::MAX_BODY_BYTES,
        }
    }

    /// Sets [`durable`](Self::durable).
    #[must_use]
    pub const fn with_durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// Sets [`shared`](Self::shared).
    #[must_use]
    pub const fn with_shared(mut self, shared: bool) -> Self {
        self.shared = shared;
        self
    }

    /// Sets [`wake`](Self::wake).
    #[must_use]
    pub const fn with_wake(mut self, wake: Wake) -> Self {
        self.wake = wake;
        self
    }

    /// Sets [`lists_once`](Self::lists_once).
    #[must_use]
    pub const fn with_lists_once(mut self, lists_once: bool) -> Self {
        self.lists_once = lists_once;
        self
    }

    /// Sets [`max_answer_bytes`](Self::max_answer_bytes).
    #[must_use]
    pub const fn with_max_answer_bytes(mut self, max_answer_bytes: usize) -> Self {
        self.max_answer_bytes = max_answer_bytes;
        self
    }
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

/// The filter and position of a listing.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Query {
    /// Only records of this environment.
    pub environment: Option<String>,
    /// Only records of this tenant.
    pub tenant: Option<String>,
    /// Only records of this scope.
    pub scope: Option<String>,
    /// Only records in this state. A lapsed lease that may not be taken over counts as in doubt,
    /// not as running.
    pub state: Option<State>,
    /// Continue after the page that gave this cursor.
    pub after: Option<Cursor>,
    /// The most records per page, at most [`Query::MAX_LIMIT`]; 0 means that maximum.
    pub limit: usize,
}

impl Query {
    /// The largest page.
    pub const MAX_LIMIT: usize = 1000;

    /// The requested page size, within bounds.
    #[must_use]
    pub fn page_size(&self) -> usize {
        if self.limit == 0 {
            Self::MAX_LIMIT
        } else {
            self.limit.min(Self::MAX_LIMIT)
        }
    }

    /// Whether `record` passes the filter.
    #[must_use]
    pub fn fits(&self, record: &Record, now: Timestamp) -> bool {
        let is =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|w| w == found);
        !record.is_expired(now)
            && is(&self.environment, record.namespace.environment())
            && is(&self.tenant, record.namespace.tenant())
            && is(&self.scope, record.namespace.scope())
            && self
                .state
                .is_none_or(|wanted| wanted == record.state_at(now))
    }

    /// Sets [`environment`](Self::environment).
    #[must_use]
    pub fn with_environment(mut self, environment: impl Into<Option<String>>) -> Self {
        self.environment = environment.into();
        self
    }

    /// Sets [`tenant`](Self::tenant).
    #[must_use]
    pub fn with_tenant(mut self, tenant: impl Into<Option<String>>) -> Self {
        self.tenant = tenant.into();
        self
    }

    /// Sets [`scope`](Self::scope).
    #[must_use]
    pub fn with_scope(mut self, scope: impl Into<Option<String>>) -> Self {
        self.scope = scope.into();
        self
    }

    /// Sets [`state`](Self::state).
    #[must_use]
    pub fn with_state(mut self, state: impl Into<Option<State>>) -> Self {
        self.state = state.into();
        self
    }

    /// Sets [`after`](Self::after).
    #[must_use]
    pub fn with_after(mut self, after: impl Into<Option<Cursor>>) -> Self {
        self.after = after.into();
        self
    }

    /// Sets [`limit`](Self::limit).
    #[must_use]
    pub const fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }
}

/// The position of a listing. Only the store that gave it can read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub String);

/// A page of a listing.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Page {
    /// The records and their identities.
    pub records: Vec<(Identity, Record)>,
    /// Where to continue; `None` at the end. A page may be short, or empty, and still have a next
    /// one.
    pub next: Option<Cursor>,
    /// How many records were left out because they can't be read (P25). A store with packed records
    /// can't tell whether such a record matches the query, and counts it.
    pub unreadable: usize,
}

impl Page {
    /// Sets [`records`](Self::records).
    #[must_use]
    pub fn with_records(mut self, records: Vec<(Identity, Record)>) -> Self {
        self.records = records;
        self
    }

    /// Sets [`next`](Self::next).
    #[must_use]
    pub fn with_next(mut self, next: impl Into<Option<Cursor>>) -> Self {
        self.next = next.into();
        self
    }

    /// Sets [`unreadable`](Self::unreadable).
    #[must_use]
    pub const fn with_unreadable(mut self, unreadable: usize) -> Self {
        self.unreadable = unreadable;
        self
    }
}

/// The connections of this process to a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Connections {
    /// In use now.
    pub active: u32,
    /// The size of the pool; `None` if all calls share the open connections.
    pub most: Option<u32>,
    /// How many calls since the start got no connection because all were in use.
    pub exhausted: u64,
}

impl Connections {
    /// This many connections in use, of a pool without a bound.
    #[must_use]
    pub const fn new(active: u32) -> Self {
        Self {
            active,
            most: None,
            exhausted: 0,
        }
    }

    /// Sets [`most`](Self::most).
    #[must_use]
    pub fn with_most(mut self, most: impl Into<Option<u32>>) -> Self {
        self.most = most.into();
        self
    }

    /// Sets [`exhausted`](Self::exhausted).
    #[must_use]
    pub const fn with_exhausted(mut self, exhausted: u64) -> Self {
        self.exhausted = exhausted;
        self
    }
}

/// The size of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Records present, including expired ones that no sweep has removed yet.
    pub records: u64,
    /// The most records it takes; `None` if only the backend's own limits apply.
    pub capacity: Option<u64>,
}

impl Stats {
    /// A store with this many records and no capacity of its own.
    #[must_use]
    pub const fn new(records: u64) -> Self {
        Self {
            records,
            capacity: None,
        }
    }

    /// Sets [`capacity`](Self::capacity).
    #[must_use]
    pub fn with_capacity(mut self, capacity: impl Into<Option<u64>>) -> Self {
        self.capacity = capacity.into();
        self
    }
}

/// Awaits a store call with a timeout. Fails with [`Certainty::Unknown`] if no answer came within
/// `limit`.
///
/// Creates no timer if the call answers at once.
///
/// # Errors
/// Those of the call, and the limit.
pub async fn within<T>(
    clock: &dyn Clock,
    limit: Duration,
    call: BoxFuture<'_, StoreResult<T>>,
) -> StoreResult<T> {
    let answer = clock.timeout(limit, call).await;
    answer.unwrap_or_else(|Elapsed| Err(no_answer(limit)))
}

fn no_answer(limit: Duration) -> StoreError {
    let reason = format!("no answer within {limit:?}");
    StoreError::new(StoreErrorKind::Unavailable, Certainty::Unknown, reason)
}
