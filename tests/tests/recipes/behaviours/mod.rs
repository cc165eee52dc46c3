//! What must hold behind every proxy: one function for each column of the table in
//! `docs/recipes.md`.
//!
//! | module | behaviours |
//! |---|---|
//! | `duplicates` | replay, conflict, a duplicate that waits, one that is refused |
//! | `bodies` | answers that stream, large bodies |
//! | `losses` | clients that hang up, a lost connection, a store that is down |
//! | `proxying` | forwarding headers, a sidecar that drains and comes back |

mod bodies;
mod duplicates;
mod losses;
mod proxying;

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{LocalBoxFuture, join_all};

use crate::fronts::{CADDY, ENVOY, Front, HAPROXY, NGINX, TRAEFIK};
use crate::rig::Rig;

/// A behaviour: its column, and the test.
type Behaviour = (
    &'static str,
    for<'a> fn(&'a mut Rig) -> LocalBoxFuture<'a, ()>,
);
type SharedBehaviour = (&'static str, for<'a> fn(&'a Rig) -> LocalBoxFuture<'a, ()>);

/// Those that disturb nobody, side by side.
const TOGETHER: [SharedBehaviour; 9] = [
    ("replay", |rig| duplicates::replay(rig).boxed_local()),
    ("conflict", |rig| duplicates::conflict(rig).boxed_local()),
    ("wait", |rig| duplicates::wait(rig).boxed_local()),
    ("busy", |rig| duplicates::busy(rig).boxed_local()),
    ("streaming", |rig| bodies::streaming(rig).boxed_local()),
    ("large body", |rig| bodies::large(rig).boxed_local()),
    ("hang-up", |rig| losses::hang_up(rig).boxed_local()),
    ("no resending", |rig| {
        losses::no_resending(rig).boxed_local()
    }),
    ("headers", |rig| proxying::headers(rig).boxed_local()),
];

/// Those that stop what the others need, one after another.
const ALONE: [Behaviour; 2] = [
    ("store down", |rig| losses::store_down(rig).boxed_local()),
    ("drain", |rig| proxying::drain(rig).boxed_local()),
];

/// The columns of the table.
pub(crate) fn names() -> Vec<&'static str> {
    let together = TOGETHER.iter().map(|(name, _)| *name);
    together
        .chain(ALONE.iter().map(|(name, _)| *name))
        .collect()
}

/// How long one of them may take before it counts as stuck.
const LIMIT: Duration = Duration::from_secs(40);

async fn passes(test: LocalBoxFuture<'_, ()>) -> bool {
    let test = tokio::time::timeout(LIMIT, test);
    matches!(AssertUnwindSafe(test).catch_unwind().await, Ok(Ok(())))
}

/// Runs all of them behind one proxy, and reports every one that fails.
async fn all(front: &'static Front) {
    let mut rig = Rig::start(front).await;
    let shared = &rig;
    let together = TOGETHER
        .iter()
        .map(|(name, test)| async move { (*name, passes(test(shared)).await) });
    let mut outcomes = join_all(together).await;
    for (name, test) in ALONE {
        outcomes.push((name, passes(test(&mut rig)).await));
    }
    let failed: Vec<&str> = outcomes
        .into_iter()
        .filter_map(|(name, passed)| (!passed).then_some(name))
        .collect();
    assert!(failed.is_empty(), "behind {}: {failed:?}", front.name);
}

#[tokio::test]
async fn behind_envoy_all_of_it_holds() {
    all(&ENVOY).await;
}

#[tokio::test]
async fn behind_traefik_all_of_it_holds() {
    all(&TRAEFIK).await;
}

#[tokio::test]
async fn behind_caddy_all_of_it_holds() {
    all(&CADDY).await;
}

#[tokio::test]
async fn behind_haproxy_all_of_it_holds() {
    all(&HAPROXY).await;
}

#[tokio::test]
async fn behind_nginx_all_of_it_holds() {
    all(&NGINX).await;
}
