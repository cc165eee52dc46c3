//! [`SignIns`]: failed sign-ins are in the audit trail, and limited for each address.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use parking_lot::Mutex;
use semel_core::{Clock, Code, Tick};
use serde_json::{Map, json};

use crate::audit::{Draft, Trail};
use crate::listener::caller_network;
use crate::web::{Failure, Peer, bearer};

/// The failed sign-ins of one address within [`WINDOW`], before it must wait.
const MAX_FAILURES: u32 = 10;

/// The time from the first failed sign-in until an address may try again.
const WINDOW: Duration = Duration::from_secs(60);

/// The number of addresses that are counted each on its own. Further addresses are counted as one.
const MAX_ADDRESSES: usize = 4096;

/// The number of tokens that are remembered.
const MAX_TOKENS: usize = 1024;

/// The failed sign-ins at the admin API. Clones share them.
///
/// An address with too many of them is refused before its token is looked at, so that nobody can
/// guess tokens. A token that was valid before is an exception: other programs at the same address
/// cannot lock its operator out.
#[derive(Clone)]
pub(crate) struct SignIns {
    trail: Trail,
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    failures: HashMap<IpAddr, Failures>,
    /// Digests of tokens that were valid.
    known: HashSet<[u8; 32]>,
}

/// The failed sign-ins of an address.
#[derive(Clone, Copy)]
struct Failures {
    first: Tick,
    count: u32,
}

impl Failures {
    /// How long the window lasts; `None` once it is over.
    fn time_left(&self, now: Tick) -> Option<Duration> {
        let left = WINDOW.saturating_sub(now.since(self.first));
        (!left.is_zero()).then_some(left)
    }
}

impl SignIns {
    pub(crate) fn new(trail: Trail, clock: Arc<dyn Clock>) -> Self {
        let state = Arc::default();
        Self {
            trail,
            clock,
            state,
        }
    }

    /// Refuses the token of an address with too many failures.
    pub(super) fn check(&self, parts: &Parts) -> Result<(), Failure> {
        let (Some(token), Some(address)) = (bearer(parts), find_address(parts)) else {
            return Ok(());
        };
        let state = self.state.lock();
        if state.known.contains(&digest(token)) {
            return Ok(());
        }
        let failures = state.failures.get(&state.key_of(address));
        let failures = failures.filter(|failures| failures.count >= MAX_FAILURES);
        match failures.and_then(|failures| failures.time_left(self.clock.now())) {
            None => Ok(()),
            Some(left) => Err(limited(left)),
        }
    }

    /// Remembers a valid token.
    pub(super) fn note_success(&self, parts: &Parts) {
        if let Some(token) = bearer(parts) {
            let known = &mut self.state.lock().known;
            if known.len() < MAX_TOKENS {
                known.insert(digest(token));
            }
        }
    }

    /// Counts a failure, and writes it to the audit trail. Requests without a credential are no
    /// sign-ins.
    pub(super) async fn note_failure(&self, parts: &Parts) {
        let peer = parts.extensions.get::<Peer>();
        let has_certificate = peer.is_some_and(|peer| peer.has_certificate);
        let token = bearer(parts);
        if token.is_none() && !has_certificate {
            return;
        }
        let address = find_address(parts);
        let count = {
            let mut state = self.state.lock();
            if let Some(token) = token {
                state.known.remove(&digest(token));
            }
            address.map_or(1, |address| state.count_failure(address, self.clock.now()))
        };
        // The limit also bounds what one address can write to the trail.
        if count > MAX_FAILURES {
            return;
        }
        let mut detail = Map::new();
        if let Some(peer) = peer {
            detail.insert(
                "address".to_owned(),
                json!(peer.address.ip().to_canonical()),
            );
        }
        let name = peer.and_then(|peer| peer.certificate_name.as_deref());
        if let Some(name) = name.filter(|_| token.is_none()) {
            detail.insert("certificate".to_owned(), json!(name));
        }
        detail.insert("failures".to_owned(), json!(count));
        let draft = Draft {
            kind: "admin.sign_in.failed",
            detail,
            ..Draft::default()
        };
        if self.trail.record(draft).await.is_err() {
            tracing::warn!("a failed sign-in could not be written to the audit trail");
        }
    }
}

impl State {
    /// The key under which an address is counted.
    fn key_of(&self, address: IpAddr) -> IpAddr {
        let is_full = self.failures.len() >= MAX_ADDRESSES;
        match is_full && !self.failures.contains_key(&address) {
            true => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            false => address,
        }
    }

    fn count_failure(&mut self, address: IpAddr, now: Tick) -> u32 {
        if self.failures.len() >= MAX_ADDRESSES {
            self.failures
                .retain(|_, failures| failures.time_left(now).is_some());
        }
        let new = Failures {
            first: now,
            count: 0,
        };
        let failures = self.failures.entry(self.key_of(address)).or_insert(new);
        if failures.time_left(now).is_none() {
            *failures = new;
        }
        failures.count = failures.count.saturating_add(1);
        failures.count
    }
}

fn digest(token: &str) -> [u8; 32] {
    *blake3::hash(token.as_bytes()).as_bytes()
}

/// The address that counts as one caller.
fn find_address(parts: &Parts) -> Option<IpAddr> {
    let peer = parts.extensions.get::<Peer>()?;
    Some(caller_network(peer.address.ip()))
}

fn limited(left: Duration) -> Failure {
    let detail = "too many sign-ins from this address have failed; wait before the next one";
    let mut failure = Failure::new(Code::RateLimited, detail);
    failure.0.retry_after = Some(left);
    failure
}

impl std::fmt::Debug for SignIns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SignIns({})", self.state.lock().failures.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_forgotten_after_the_window() {
        let (address, start) = (IpAddr::from([192, 0, 2, 1]), Tick::new(WINDOW));
        let mut state = State::default();
        for count in 1..=MAX_FAILURES + 2 {
            assert_eq!(state.count_failure(address, start), count);
        }
        let failures = state.failures[&address];
        assert_eq!(failures.time_left(start), Some(WINDOW));
        let end = start.plus(WINDOW);
        assert_eq!(failures.time_left(end), None);
        assert_eq!(state.count_failure(address, end), 1);
    }

    /// Whoever has many addresses can neither fill the memory nor hide among them.
    #[test]
    fn addresses_beyond_the_limit_count_as_one() {
        let start = Tick::new(Duration::ZERO);
        let mut state = State::default();
        let address = |number: usize| {
            let number = u32::try_from(number).unwrap();
            IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number))
        };
        for number in 0..MAX_ADDRESSES {
            assert_eq!(state.count_failure(address(number), start), 1);
        }
        for number in 1..=20 {
            let count = state.count_failure(address(MAX_ADDRESSES + number), start);
            assert_eq!(usize::try_from(count).unwrap(), number);
        }
        assert_eq!(state.count_failure(address(0), start), 2, "it has its own");
        assert!(state.failures.len() <= MAX_ADDRESSES + 1);
        let later = start.plus(WINDOW);
        assert_eq!(state.count_failure(address(MAX_ADDRESSES + 1), later), 1);
        assert_eq!(state.failures.len(), 1, "the others are over");
    }
}
